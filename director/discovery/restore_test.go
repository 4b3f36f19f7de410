package discovery

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/discovery/consultest"
)

// acls returns the accessors of the tokens, and the names of the policies, of the director's clusters.
func (f *fixture) acls(t *testing.T) []string {
	t.Helper()
	acl := f.consul.Client(t, f.consul.Management).ACL()
	policies, _, err := acl.PolicyList(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range policies {
		if readNote(p.Description).owner != f.Director {
			continue
		}
		out = append(out, p.Name)
		list, _, err := acl.TokenListFiltered(api.ACLTokenFilterOptions{Policy: p.ID}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			out = append(out, p.Name+" "+e.AccessorID)
		}
	}
	slices.Sort(out)
	return out
}

// stranger registers what is not of the director.
func stranger(t *testing.T, server *consultest.Server, node string) {
	t.Helper()
	_, err := server.Client(t, server.Management).Catalog().Register(&api.CatalogRegistration{
		Node: node, Address: "10.9.9.9", NodeMeta: map[string]string{MetaOwner: "another"},
		Service: &api.AgentService{ID: "kaas-api-x", Service: "kaas-api-rest", Port: 1},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// granted seals tokens for the agents of a cluster that register a service, as a plan does.
func (f *fixture) granted(t *testing.T, uid string, services ...string) {
	t.Helper()
	a := f.manned(uid)
	for node, token := range a.Tokens {
		token.Services = services
		a.Tokens[node] = token
	}
	f.sealed.setAgents(uid, &a)
	f.keep(t, uid)
}

// A Consul that is restored from an older backup is brought to what is so now: tokens that it has lost are made again,
// those that had ended end again, and what is of others stays.
func TestRestoredConsul(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	f := setup(t, server, "director-restore")
	may, _ := server.Token(t, makerRules)
	f.account.token = director.Secret(may)
	f.cluster("gone", "gone", "dc1", 1)
	f.cluster("r1", "rest", "dc1", 2)
	for _, uid := range []string{"gone", "r1"} {
		f.granted(t, uid, "web")
		f.syncing(t, uid)
	}
	f.well(t)
	stranger(t, server, "kaas-strange")
	c := server.Client(t, server.Management)
	backup, _, err := c.Snapshot().Save(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backup.Close() }()

	f.drop("gone", "gone")
	f.sealed.setAgents("gone", nil)
	delete(f.sealed.has, "gone")
	f.cluster("r1", "rest", "dc1", 3)
	f.cluster("r2", "new", "dc1", 1)
	f.granted(t, "r1", "db", "web")
	f.granted(t, "r2", "web")
	former := f.sealed.has["r1"]
	renewed := f.syncing(t, "r1")
	if err := f.KeepToken(t.Context(), "dc1", "r1", renewed.Accessor); err != nil {
		t.Fatal(err)
	}
	f.syncing(t, "r2")
	f.well(t)
	entries, acls := f.entries(t, f.Director), f.acls(t)
	if len(entries) != 7 || slices.Contains(acls, policyPrefix+"r1 "+former.Accessor) {
		t.Fatalf("before the restore there are %v and %v", entries, acls)
	}
	if err := c.Snapshot().Restore(nil, backup); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(acls, f.acls(t)); diff == "" {
		t.Fatal("the restore changes nothing")
	}
	began := time.Now()
	until(t, "a comparison that is well", func() bool { return f.pass(t).Problem == "" })
	t.Logf("after %s all was there", time.Since(began).Round(time.Millisecond))
	if diff := cmp.Diff(entries, f.entries(t, f.Director)); diff != "" {
		t.Errorf("entries\n%s", diff)
	}
	if diff := cmp.Diff(acls, f.acls(t)); diff != "" {
		t.Errorf("policies and tokens\n%s", diff)
	}
	for _, secret := range []director.Secret{renewed.Secret, f.sealed.agents["r1"].Tokens["rest-master-3"].Secret} {
		if _, _, err := server.Client(t, secret.Reveal()).ACL().TokenReadSelf(nil); err != nil {
			t.Errorf("a token that was made again: %v", err)
		}
	}
	list, _, err := c.Catalog().NodeServiceList("kaas-strange", nil)
	if err != nil || list == nil || len(list.Services) != 1 {
		t.Errorf("what is of others is %+v, %v", list, err)
	}
	if s := f.well(t); s.Written+s.Removed != 0 {
		t.Errorf("the next comparison: %+v", s)
	}
}
