package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// A provider's URI runs no program on the director: apply refuses it, and a document that an earlier director has
// stored is refused when it is used.
func TestProviderURIRunsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, ran := filepath.Join(dir, "program"), filepath.Join(dir, "ran")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	d, api := startRealDaemon(t, func(c *Config) { c.ProviderFiles = confine.Dirs{dir} })
	for i, uri := range []string{
		"qemu+ext:///system?command=" + program, "qemu+ssh://u@127.0.0.1/system?command=" + program,
		"qemu+ssh://u@127.0.0.1/system?netcat=" + program,
		"qemu+ssh://u@127.0.0.1/system?keyfile=/etc/shadow",
	} {
		name := fmt.Sprintf("p%d", i)
		text := fmt.Sprintf(
			"apiVersion: kaas/v1\nkind: Provider\nmetadata: {name: %s}\nspec: {type: libvirt, libvirt: {hosts: "+
				"[{name: h, uri: %q}]}}\n",
			name, uri,
		)
		if _, err := api.Apply(t.Context(), []byte(text), "x", false); director.KindOf(err) != director.KindInvalid ||
			!strings.Contains(fmt.Sprintf("%+v", err), "spec.libvirt.hosts[0].uri") {
			t.Errorf("%s: %v", uri, err)
		}
		docs, err := model.Parse([]byte(text), "x")
		if err == nil {
			err = d.services.db.Update(t.Context(), func(tx *store.Tx) error {
				return tx.PutDocument(docs[0], "earlier", time.Now())
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		test, err := api.TestProvider(t.Context(), name)
		if err != nil || test.OK || len(test.Probes) != 1 || test.Probes[0].What != "settings" ||
			!strings.Contains(test.Probes[0].Problem, "settings are wrong") {
			t.Errorf("%s: %+v, %v", uri, test, err)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the program ran")
	}
}

// Without providerNetworks the director connects to no provider on its own machine or link: nothing is seen of it
// there.
func TestProviderNetworks(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, api := startRealDaemon(t, func(c *Config) { c.ProviderNetworks = confine.Private() })
	for i, spec := range []string{
		fmt.Sprintf(
			"{type: vsphere, vsphere: {url: %q, credentials: vc, datacenter: DC, cluster: C, datastores: [ds]}}",
			l.Addr(),
		),
		"{type: vsphere, vsphere: {url: 169.254.169.254, credentials: vc, datacenter: DC, cluster: C, datastores: " +
			"[ds]}}",
		fmt.Sprintf(
			"{type: libvirt, libvirt: {hosts: [{name: h, uri: %q}]}}", "qemu+ssh://"+l.Addr().String()+"/system",
		),
		fmt.Sprintf(
			"{type: libvirt, libvirt: {hosts: [{name: h, uri: %q}]}}", "qemu+tls://"+l.Addr().String()+"/system",
		),
	} {
		name := fmt.Sprintf("p%d", i)
		text := fmt.Sprintf("apiVersion: kaas/v1\nkind: Provider\nmetadata: {name: %s}\nspec: %s\n", name, spec)
		if _, err := api.Apply(t.Context(), []byte(text), "x", false); err != nil {
			t.Fatal(err)
		}
		// they are for this provider too
		if _, err := api.SetCredentials(t.Context(), "vc", "u", "hunter2"); err != nil {
			t.Fatal(err)
		}
		test, err := api.TestProvider(t.Context(), name)
		if got := fmt.Sprintf("%+v", test); err != nil || test.OK || !strings.Contains(got, "may not connect to") ||
			!strings.Contains(got, "providerNetworks") {
			t.Errorf("%s: %s, %v", spec, got, err)
		}
	}
	if err := l.(*net.TCPListener).SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if c, err := l.Accept(); err == nil {
		t.Errorf("there was a connection from %s", c.RemoteAddr())
	}
}

// A vCenter's document names no file of the director outside of the configured directories.
func TestFilesOfVSphere(t *testing.T) {
	t.Parallel()
	in := t.TempDir()
	_, api := startRealDaemon(t, func(c *Config) { c.ProviderFiles = confine.Dirs{in} })
	for files, want := range map[string]string{
		"passwordFile: /etc/shadow": "spec.vsphere.passwordFile", "passwordFile: " + in + "/password": "",
		"caFile: /proc/self/environ, passwordFile: " + in + "/password": "spec.vsphere.caFile",
		"caFile: " + in + "/ca, passwordFile: " + in + "/password":      "",
	} {
		text := fmt.Sprintf(
			"apiVersion: kaas/v1\nkind: Provider\nmetadata: {name: vc}\nspec: {type: vsphere, vsphere: {url: "+
				"vcenter.example.org, user: u, %s, datacenter: DC, cluster: C, datastores: [ds]}}\n",
			files,
		)
		_, err := api.Apply(t.Context(), []byte(text), "x", true)
		if got := fmt.Sprintf("%+v", err); (err == nil) != (want == "") ||
			err != nil && (!strings.Contains(got, want) || !strings.Contains(got, "providerFiles")) {
			t.Errorf("%s: %v", files, got)
		}
	}
}

func TestDoorsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string // the key that is wrong; empty for none
	}{
		"default":  {func(*Config) {}, ""},
		"relative": {func(c *Config) { c.ProviderFiles = confine.Dirs{"keys"} }, "providerFiles[0]"},
		"not clean": {
			func(c *Config) { c.ProviderSockets = confine.Dirs{"/run", "/run/../x"} }, "providerSockets[1]",
		},
		"no network": {func(c *Config) { c.ProviderNetworks = confine.Networks{{}} }, "providerNetworks[0]"},
		"no mirrors": {func(c *Config) { c.MirrorNetworks = confine.Networks{{}} }, "mirrorNetworks[0]"},
		"host in network": {
			func(c *Config) { c.ProviderNetworks = confine.Networks{netip.MustParsePrefix("10.0.0.1/8")} },
			"providerNetworks[0]",
		},
		"holds state": {
			func(c *Config) { c.ProviderFiles = confine.Dirs{filepath.Dir(c.StateDir)} }, "providerFiles[0]",
		},
		"in state": {
			func(c *Config) { c.ProviderFiles = confine.Dirs{filepath.Join(c.StateDir, "keys")} }, "providerFiles[0]",
		},
		"holds password": {func(c *Config) {
			c.ProviderFiles, c.AdminPasswordFile = confine.Dirs{"/etc/director"}, "/etc/director/admin"
		}, "providerFiles[0]"},
	} {
		c := testConfig(t)
		tt.change(&c)
		err := c.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	file := filepath.Join(t.TempDir(), "director.yaml")
	if err := os.WriteFile(
		file,
		[]byte(
			"address: 192.0.2.1\nproviderFiles: [/keys]\nproviderSockets: [/run/lab]\nproviderNetworks: "+
				"[127.0.0.0/8]\n",
		),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	c, err := LoadConfig(file)
	if err != nil || c.rules().ProviderFiles[0] != "/keys" || len(c.ProviderFiles) != 1 ||
		c.rules().ProviderSockets[0] != "/run/lab" || fmt.Sprint(c.rules().ProviderNetworks) != "[127.0.0.0/8]" {
		t.Errorf("%+v, %v", c.Doors, err)
	}
}

// Images and bundles outside of the configured directories are refused when they are applied, and nothing is told of
// them; so is what is no file.
func TestFilesOfDocuments(t *testing.T) {
	t.Parallel()
	in, out := t.TempDir(), t.TempDir()
	secret, fifo, door := filepath.Join(out, "secret"), filepath.Join(in, "fifo"), filepath.Join(in, "door")
	if err := errors.Join(
		os.WriteFile(secret, []byte("hunter2"), 0o600), syscall.Mkfifo(fifo, 0o600), os.Symlink(out, door),
	); err != nil {
		t.Fatal(err)
	}
	_, api := startRealDaemon(t, func(c *Config) { c.ImageDirs, c.BundleDirs = confine.Dirs{in}, confine.Dirs{in} })
	image := func(path string) string {
		return fmt.Sprintf(
			"apiVersion: kaas/v1\nkind: Image\nmetadata: {name: node}\nspec: {source: %q, sha256: %q, kubernetes: "+
				"v1.37.1}\n",
			path, strings.Repeat("5", 64),
		)
	}
	release := func(path string) string {
		return fmt.Sprintf(
			"apiVersion: kaas/v1\nkind: Release\nmetadata: {name: k8s}\nspec: {bundle: %q, kubernetes: v1.37.1}\n",
			path,
		)
	}
	for text, want := range map[string]string{
		image(secret): "spec.source", image("/dev/zero"): "spec.source", image(in + "/../x"): "spec.source",
		release(out): "spec.bundle", release("/proc/self"): "spec.bundle",
		image(fifo): "", release(door): "", // by their names they are allowed; who opens them refuses
	} {
		_, err := api.Apply(t.Context(), []byte(text), "x", true)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(fmt.Sprintf("%+v", err), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	text := image(fifo) + "---\n" + release(door) + `---
apiVersion: kaas/v1
kind: Provider
metadata: {name: lab}
spec: {type: libvirt, libvirt: {hosts: [{name: h, uri: "qemu:///system"}]}}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: net}
spec: {provider: lab, cidr: 10.64.0.0/24, pool: {from: 10.64.0.10, to: 10.64.0.20}}
---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: demo}
spec: {provider: lab, network: net, image: node, release: k8s}
`
	if _, err := api.Apply(t.Context(), []byte(text), "x", false); err != nil {
		t.Fatal(err)
	}
	_, err := api.MakePlan(t.Context(), "demo", plan.Request{})
	if got := fmt.Sprintf("%+v", err); err == nil || !strings.Contains(got, "leads out of") {
		t.Errorf("a plan with a bundle behind a link: %v", err)
	}
}
