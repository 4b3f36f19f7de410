package providers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/store"
)

// Stored credentials go to the address and certificate that they were set for. A provider that was changed to lead
// elsewhere, or a new one, gets them after they were set again.
func TestCredentialsAreForOnePlace(t *testing.T) {
	t.Parallel()
	l := open(t)
	ctx := t.Context()
	dir := t.TempDir()
	v := Vault{Store: l.db, Sealer: l.box, Files: confine.Dirs{dir}}
	l.Vault.Files = v.Files
	ca := filepath.Join(dir, "ca.pem")
	authority := func(text string) {
		t.Helper()
		if err := os.WriteFile(ca, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	authority("one")
	put := func(name string, s model.VSphere) model.VSphere {
		t.Helper()
		text := fmt.Sprintf("kind: Provider\nmetadata: {name: %s}\nspec: {type: vsphere, vsphere: {url: %q, "+
			"thumbprint: %q, caFile: %q, credentials: vcenter, datacenter: DC, cluster: C, datastores: [ds]}}\n",
			name, s.URL, s.Thumbprint, s.CAFile)
		return *l.put(t, text).Provider.VSphere
	}
	set := func() {
		t.Helper()
		if _, err := l.SetCredentials(ctx, "ann", "vcenter", "kaas@vsphere.local", "hunter2"); err != nil {
			t.Fatal(err)
		}
	}
	try := func(name string, s model.VSphere, ok bool) {
		t.Helper()
		c, err := v.Open(ctx, name, s)
		switch {
		case ok && (err != nil || c.Password.Reveal() != "hunter2"):
			t.Errorf("%s: %+v, %v", name, c, err)
		case !ok && c.Password != "":
			t.Errorf("%s: it got the password", name)
		case !ok:
			wantKind(t, err, director.KindConflict, name, "directorctl provider credentials set vcenter")
		}
	}
	pin, other := strings.Repeat("AB:", 31)+"AB", strings.Repeat("CD:", 31)+"CD"
	vc := put("vc", model.VSphere{URL: "vc.example.org", Thumbprint: pin})
	set()
	try("vc", vc, true)
	same := put("same", model.VSphere{URL: "https://VC.example.org:443/sdk", Thumbprint: strings.ToLower(pin)})
	try("same", same, true)
	for what, s := range map[string]model.VSphere{
		"host": {URL: "evil.example.org", Thumbprint: pin}, "port": {URL: "vc.example.org:8443", Thumbprint: pin},
		"pin":    {URL: "vc.example.org", Thumbprint: other},
		"no pin": {URL: "vc.example.org"}, "authority": {URL: "vc.example.org", Thumbprint: pin, CAFile: ca},
	} {
		t.Log(what)
		try("vc", put("vc", s), false)
	}
	vc = put("vc", model.VSphere{URL: "vc.example.org", CAFile: ca})
	try("vc", vc, false)
	set()
	try("vc", vc, true)
	try("same", same, true)
	authority("two")
	try("vc", vc, false)
	set()
	try("vc", vc, true)

	test, err := l.TestProvider(ctx, "vc")
	if err != nil || len(test) == 0 || test[0].Err != nil {
		t.Errorf("the provider's test says %+v, %v", test, err)
	}
	put("vc", model.VSphere{URL: "evil.example.org", CAFile: ca})
	test, err = l.TestProvider(ctx, "vc")
	if err != nil || len(test) != 1 || director.KindOf(test[0].Err) != director.KindConflict {
		t.Errorf("the provider's test says %+v, %v", test, err)
	}
}

// Credentials from before, and those that were set before their provider, belong to what names them at their first use.
func TestCredentialsGetTheirPlaceAtFirstUse(t *testing.T) {
	t.Parallel()
	l := open(t)
	ctx := t.Context()
	sealed, err := l.box.Seal(store.CredentialsOwner, "vcenter", []byte(`{"name":"vcenter","password":"hunter2"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.db.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.PutCredentials("vcenter", "u", sealed, "earlier", time.Now())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	v := Vault{Store: l.db, Sealer: l.box}
	put := func(url string) model.VSphere {
		t.Helper()
		return *l.put(
			t,
			"kind: Provider\nmetadata: {name: vc}\nspec: {type: vsphere, vsphere: {url: "+url+
				", credentials: vcenter, datacenter: DC, cluster: C, datastores: [ds]}}\n",
		).Provider.VSphere
	}
	first := put("one.example.org")
	for range 2 {
		if c, err := v.Open(ctx, "vc", first); err != nil || c.Password.Reveal() != "hunter2" || c.Revision != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	_, err = v.Open(ctx, "vc", put("two.example.org"))
	wantKind(t, err, director.KindConflict, "set the credentials again")
	if err := l.db.Update(ctx, func(tx *store.Tx) error {
		return tx.ResealCredentials("vcenter", sealed, sealed)
	}); director.KindOf(err) != director.KindConflict {
		t.Errorf("a seal that is gone was replaced: %v", err)
	}
}

// The token and the gossip key of a Consul go to the servers and authorities that they were set for.
func TestCredentialsOfAConsul(t *testing.T) {
	t.Parallel()
	l := open(t)
	ctx := t.Context()
	put := func(address, name string) model.Consul {
		t.Helper()
		return *l.put(t, fmt.Sprintf("kind: Consul\nmetadata: {name: dc1}\nspec: {addresses: [%q], datacenter: dc1, "+
			"tls: {serverName: %q}, credentials: token, gossip: gossip}\n", address, name)).Consul
	}
	here := put("https://consul.example.org", "server.dc1.consul")
	for _, name := range []string{"token", "gossip"} {
		if _, err := l.SetCredentials(ctx, "ann", name, "director", "hunter2"); err != nil {
			t.Fatal(err)
		}
		c, err := l.Vault.OpenConsul(ctx, "dc1", name, here)
		if err != nil || c.Password.Reveal() != "hunter2" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		wantKind(t, l.DeleteCredentials(ctx, "ann", name), director.KindConflict, "Consul/dc1")
	}
	for _, elsewhere := range []model.Consul{
		put("https://evil.example.org", "server.dc1.consul"), put("https://consul.example.org", "evil.example.org"),
	} {
		c, err := l.Vault.OpenConsul(ctx, "dc1", "token", elsewhere)
		wantKind(t, err, director.KindConflict, "Consul/dc1", "directorctl provider credentials set token")
		if c.Password != "" {
			t.Errorf("%+v got the token", elsewhere)
		}
	}
	list, err := l.ListCredentials(ctx)
	if err != nil || len(list) != 2 || len(list[0].Providers) != 1 || list[0].Providers[0] != "Consul/dc1" {
		t.Errorf("listed %+v, %v", list, err)
	}
}

// The account at an outer registry goes to the servers and authorities that it was set for: with endpoints those, and
// otherwise the host.
func TestCredentialsOfARegistry(t *testing.T) {
	t.Parallel()
	l := open(t)
	ctx := t.Context()
	ca, err := pki.NewCA("of the registry")
	if err != nil {
		t.Fatal(err)
	}
	const account = "hub"
	trusting := fmt.Sprintf(", ca: %q", ca.Cert)
	put := func(spec string) model.Registry {
		t.Helper()
		return *l.put(
			t, "kind: Registry\nmetadata: {name: outer}\nspec: {credentials: "+account+", "+spec+"}\n",
		).Registry
	}
	const mirror = "host: docker.io, mode: mirror, endpoints: "
	for here, elsewhere := range map[string][]string{
		"host: registry.example.org": {
			"host: evil.example.org", "host: 'registry.example.org:5000'", "host: registry.example.org" + trusting,
			"host: registry.example.org, mode: replace, endpoints: ['https://evil.example.org']",
		},
		mirror + "['https://a.example.org', 'https://b.example.org']" + trusting: {
			mirror + "['https://a.example.org', 'https://evil.example.org']" + trusting,
			mirror + "['https://a.example.org', 'https://b.example.org']", "host: docker.io" + trusting,
		},
	} {
		r := put(here)
		if _, err := l.SetCredentials(ctx, "ann", account, "robot", "hunter2"); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(r.Endpoints) // their order means nothing for who gets the account
		got, err := l.Vault.OpenRegistry(ctx, "outer", r)
		if err != nil || got.User != "robot" || got.Password.Reveal() != "hunter2" {
			t.Errorf("%s: %+v, %v", here, got, err)
		}
		for _, spec := range elsewhere {
			got, err := l.Vault.OpenRegistry(ctx, "outer", put(spec))
			wantKind(t, err, director.KindConflict, "Registry/outer", "directorctl provider credentials set "+account)
			if got.Password != "" {
				t.Errorf("%s got the account of %s", spec, here)
			}
		}
	}
	wantKind(t, l.DeleteCredentials(ctx, "ann", account), director.KindConflict, "Registry/outer")
}

// The password of a mail server goes to the server, the port and the authority that it was set for, and a client
// certificate to its endpoint.
func TestCredentialsOfNotifications(t *testing.T) {
	t.Parallel()
	l := open(t)
	ctx := t.Context()
	put := func(name, spec string) model.Notification {
		t.Helper()
		return *l.put(t, "kind: Notification\nmetadata: {name: "+name+"}\nspec: "+spec+"\n").Notification
	}
	mail := func(server string) model.Notification {
		return put("oncall", "{mail: {from: d@example.org, to: [ann@example.org], credentials: smtp, "+server+"}}")
	}
	hook := func(host string) model.Notification {
		return put("chat", "{webhook: {clientCredentials: pair, url: \"https://"+host+"/x\"}}")
	}
	for name, n := range map[string]model.Notification{
		"smtp": mail("server: mail.example.org"), "pair": hook("chat.example.org"),
	} {
		if _, err := l.SetCredentials(ctx, "ann", name, "director", "hunter2"); err != nil {
			t.Fatal(err)
		}
		c, err := l.Vault.OpenNotification(ctx, "n", n)
		if err != nil || c.Password.Reveal() != "hunter2" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		wantKind(t, l.DeleteCredentials(ctx, "ann", name), director.KindConflict, "Notification/")
	}
	for _, elsewhere := range []model.Notification{
		mail("server: evil.example.org"), mail("server: mail.example.org, port: 25"),
		mail("server: mail.example.org, ca: \"-----BEGIN CERTIFICATE-----\""), hook("evil.example.org"),
	} {
		c, err := l.Vault.OpenNotification(ctx, "n", elsewhere)
		wantKind(t, err, director.KindConflict, "Notification/n", "directorctl provider credentials set")
		if c.Password != "" {
			t.Errorf("%+v got the password", elsewhere)
		}
	}
}
