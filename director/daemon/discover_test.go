package daemon

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/plugins/vsphere/vspheretest"
)

func draftProvider(spec string) []byte {
	return []byte("apiVersion: kaas/v1\nkind: Provider\nmetadata: {name: new}\nspec: " + spec + "\n")
}

// A vCenter that no document names is asked what it has, with an account of the request or with sealed credentials.
func TestDiscoverDraftOfVSphere(t *testing.T) {
	t.Parallel()
	s := vspheretest.Start(t)
	api := startReal(t, func(*Config) {})
	ctx := t.Context()
	where := fmt.Sprintf("url: %q, thumbprint: %q", s.Host, s.Thumbprint)
	bare := draftProvider("{type: vsphere, vsphere: {" + where + "}}")
	named := draftProvider("{type: vsphere, vsphere: {" + where + ", credentials: vcenter}}")

	check := func(d wire.Discovery, err error) {
		t.Helper()
		has := func(kind, name string) bool {
			return slices.ContainsFunc(d.Items,
				func(i wire.Discovered) bool { return i.Kind == kind && i.Name == name })
		}
		if err != nil || !has("datacenter", "/DC0") || !has("cluster", "/DC0/host/DC0_C0") ||
			!has("datastore", "/DC0/datastore/LocalDS_0") {
			t.Errorf("got %+v, %v", d, err)
		}
	}
	check(api.DiscoverDraft(ctx, bare, vspheretest.Account, director.Secret(vspheretest.Password)))
	_, err := api.DiscoverDraft(ctx, bare, vspheretest.Account, "hunter2")
	if err == nil || strings.Contains(fmt.Sprintf("%+v", err), "hunter2") {
		t.Errorf("with a wrong password: %+v", err)
	}
	_, err = api.SetCredentials(ctx, "vcenter", vspheretest.Account, director.Secret(vspheretest.Password))
	if err != nil {
		t.Fatal(err)
	}
	check(api.DiscoverDraft(ctx, named, "", ""))
	other := draftProvider(fmt.Sprintf("{type: vsphere, vsphere: {url: %q, thumbprint: %q}}", s.Host,
		strings.Repeat("ab", 32)))
	_, err = api.DiscoverDraft(ctx, other, vspheretest.Account, director.Secret(vspheretest.Password))
	if director.KindOf(err) != director.KindInvalid && director.KindOf(err) != director.KindUnavailable {
		t.Errorf("with another certificate: %+v", err)
	}
}

// A provider that is not stored leads no further than a stored one: not to the director's own machine or link, to its
// files or to its programs.
func TestDraftsAreConfined(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in := t.TempDir()
	_, api := startRealDaemon(t, func(c *Config) {
		c.ProviderNetworks, c.ProviderFiles = confine.Private(), confine.Dirs{in}
	})
	host := func(uri string) string {
		return fmt.Sprintf("{type: libvirt, libvirt: {hosts: [{name: h, uri: %q}]}}", uri)
	}
	for spec, want := range map[string]string{
		fmt.Sprintf("{type: vsphere, vsphere: {url: %q}}", l.Addr()):  "may not connect to",
		"{type: vsphere, vsphere: {url: 169.254.169.254}}":            "may not connect to",
		"{type: vsphere, vsphere: {url: vc, caFile: /etc/shadow}}":    "providerFiles",
		"{type: sim, sim: {hosts: [{name: h}]}}":                      "does not simulate",
		host("qemu+ssh://" + l.Addr().String() + "/system"):           "may not connect to",
		host("qemu+tls://" + l.Addr().String() + "/system"):           "may not connect to",
		host("qemu+ssh://192.0.2.1/system?keyfile=/root/.ssh/id_rsa"): "providerFiles",
		host("qemu+ext:///system?command=/bin/sh"):                    "spec.libvirt.hosts[0].uri",
		host("qemu+unix:///system?socket=/run/libvirt/libvirt-sock"):  "providerSockets",
	} {
		user, password := "", director.Secret("")
		if strings.Contains(spec, "vsphere") {
			user, password = "u", "hunter2"
		}
		_, err := api.DiscoverDraft(t.Context(), draftProvider(spec), user, password)
		if got := fmt.Sprintf("%+v %s", err, director.HintOf(err)); err == nil || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
	if err := l.(*net.TCPListener).SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if c, err := l.Accept(); err == nil {
		t.Errorf("there was a connection from %s", c.RemoteAddr())
	}
}
