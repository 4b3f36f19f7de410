package vsphere

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
)

// probe runs the connection test and returns one line for each thing that was looked at.
func (f *fixture) probe(t *testing.T) []string {
	t.Helper()
	b := f.open(t)
	defer b.Close()
	probes, err := b.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range probes {
		line := strings.TrimSpace(p.Host + " " + p.What)
		if p.Err == nil {
			if p.Found == "" {
				t.Errorf("%s is well, and nothing is said of it", line)
			}
			out = append(out, line+": ok")
			continue
		}
		if p.Found != "" || director.HintOf(p.Err) == "" {
			t.Errorf("%s: found %q, hint %q", line, p.Found, director.HintOf(p.Err))
		}
		text := fmt.Sprint(p.Err)
		if strings.Contains(text, password) {
			t.Errorf("%s: the password is in %s", line, text)
		}
		out = append(out, fmt.Sprintf("%s: %s", line, director.KindOf(p.Err)))
	}
	return out
}

// Everything that the director needs is looked at, and all is well.
func TestProbe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if diff := cmp.Diff([]string{
		"connection: ok", "account: ok", "datacenter DC0: ok", "cluster DC0_C0: ok", "datastore LocalDS_0: ok",
		"datastore LocalDS_1: ok",
		"resource pool of cluster DC0_C0: ok", "DC0_C0_H0 host: ok", "DC0_C0_H1 host: ok", "DC0_C0_H2 host: ok",
		"DRS: ok",
		"space of datastore LocalDS_0: ok", "space of datastore LocalDS_1: ok", "privileges on datacenter DC0: ok",
		"privileges on cluster DC0_C0: ok",
		"privileges on pool Resources: ok", "privileges on folder vm: ok", "privileges on datastore LocalDS_0: ok",
		"privileges on datastore LocalDS_1: ok",
		"port groups: ok", "VMs: ok",
	}, f.probe(t)); diff != "" {
		t.Error(diff)
	}
}

// Each thing that is wrong is said by itself, and hides no other.
func TestProbeFindsEverything(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := f.Model.Service.Context
	ctx.Map.Put(&poorAccount{
		ctx.Map.Get(*f.Admin.ServiceContent.AuthorizationManager).(*simulator.AuthorizationManager),
	})
	for _, e := range ctx.Map.All("HostSystem") {
		switch h := e.(*simulator.HostSystem); h.Name {
		case "DC0_C0_H0":
			h.Runtime.InMaintenanceMode = true
		case "DC0_C0_H1":
			h.Datastore = h.Datastore[:1]
		}
	}
	for _, e := range ctx.Map.All("Datastore") {
		if d := e.(*simulator.Datastore); d.Name == "LocalDS_0" {
			d.Summary.FreeSpace, d.Info.GetDatastoreInfo().FreeSpace = 1<<20, 1<<20
		}
	}
	f.cfg.Folder, f.cfg.Datastores, f.cfg.Hosts = "nofolder", []string{"LocalDS_0", "nostore", "LocalDS_1"},
		[]string{"DC0_C0_H0", "DC0_C0_H1", "gone"}
	f.cfg.ResourcePool = "nopool"
	got := f.probe(t)
	if diff := cmp.Diff([]string{
		"connection: ok", "account: ok", "datacenter DC0: ok", "cluster DC0_C0: ok", "folder nofolder: not_found",
		"datastore LocalDS_0: ok", "datastore nostore: not_found",
		"datastore LocalDS_1: ok", "resource pool nopool: not_found", "hosts: not_found", "DC0_C0_H0 host: unavailable",
		"DC0_C0_H1 host: not_found", "DRS: ok",
		"space of datastore LocalDS_0: exhausted", "space of datastore LocalDS_1: ok",
		"privileges on datacenter DC0: ok", "privileges on cluster DC0_C0: ok",
		"privileges on datastore LocalDS_0: forbidden", "privileges on datastore LocalDS_1: forbidden",
		"port groups: ok", "VMs: ok",
	}, got); diff != "" {
		t.Error(diff)
	}
}

// Without a session there is nothing more to look at; the certificate and the account are told apart.
func TestProbeWithoutSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, tt := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"certificate": {func(c *Config) { c.Thumbprint = "" }, []string{"connection: invalid"}},
		"certificate and account": {func(c *Config) {
			c.Thumbprint = ""
			c.Credentials = func(context.Context) (string, director.Secret, error) {
				return "", "", director.Errorf(director.KindNotFound, "test", "there are no credentials").
					WithHint("set them")
			}
		}, []string{"connection: invalid", "account: not_found"}},
		"password": {func(c *Config) {
			c.Credentials = func(context.Context) (string, director.Secret, error) { return account, "wrong", nil }
		}, []string{"connection: ok", "account: invalid"}},
		"datacenter": {
			func(c *Config) { c.Datacenter = "nowhere" },
			[]string{"connection: ok", "account: ok", "datacenter nowhere: not_found"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := *f
			tt.change(&x.cfg)
			if diff := cmp.Diff(tt.want, x.probe(t)[:len(tt.want)]); diff != "" {
				t.Error(diff)
			}
			if got := x.probe(t); len(got) > len(tt.want) && name != "datacenter" {
				t.Errorf("more was looked at: %v", got)
			}
		})
	}
}

// A test leaves no session behind.
func TestProbeSessions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.probe(t)
	if got := f.sessions(t); len(got) != 0 {
		t.Errorf("%d sessions are left", len(got))
	}
}

// The account's new password is taken up by the next login, and nothing else is done.
func TestRotation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	secret, asked := director.Secret(password), 0
	f.cfg.Credentials = func(context.Context) (string, director.Secret, error) { asked++; return account, secret, nil }
	b := f.open(t)
	defer b.Close()
	ask := func() director.Kind {
		_, err := b.Get(t.Context(), "1c1e5d4a-0000-0000-0000-000000000000")
		return director.KindOf(err)
	}
	if got := ask(); got != director.KindNotFound {
		t.Fatal(got)
	}
	const fresh = "the next password"
	f.Model.Service.Context.Map.SessionManager().ValidLogin = func(l *types.Login) bool {
		return l.UserName == account && l.Password == fresh
	}
	if got := ask(); got != director.KindNotFound || asked != 1 {
		t.Errorf("the open session: %s, asked %d times", got, asked)
	}
	f.endSessions(t)
	if got := ask(); got != director.KindInvalid {
		t.Errorf("with the old password: %s", got)
	}
	secret = fresh
	if got := ask(); got != director.KindNotFound || asked != 3 {
		t.Errorf("with the new password: %s, asked %d times", got, asked)
	}
}
