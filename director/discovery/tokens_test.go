package discovery

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/model"
)

// makerRules are those of a director that makes tokens for the syncs of clusters.
const makerRules = rules + aclRule + "\n"

// syncRules are those that planners write for a cluster that exports web alone.
func syncRules(uid string) string {
	return `node_prefix "" { policy = "read" }
node "kaas-` + uid + `" { policy = "write" }
node_prefix "kaas-` + uid + `." { policy = "write" }
service_prefix "" { policy = "read" }
service "web" { policy = "write" }
service_prefix "kaas-" { policy = "read" }
`
}

// syncing has the sync of the cluster installed by a plan, and returns its token.
func (f *fixture) syncing(t *testing.T, uid string) director.ConsulToken {
	t.Helper()
	token := director.ConsulToken{
		Consul: "dc1", Accessor: uuid.NewString(), Secret: director.Secret(uuid.NewString()), Rules: syncRules(uid),
	}
	f.sealed.set(uid, token)
	if state, err := f.MakeToken(t.Context(), uid, token); err != nil || state != director.TokenThere {
		t.Fatalf("made: %s, %v", state, err)
	}
	return token
}

// tokens returns the accessors of the tokens of syncs, and the names of their policies.
func (f *fixture) tokens(t *testing.T) (tokens, policies []string) {
	t.Helper()
	acl := f.consul.Client(t, f.consul.Management).ACL()
	list, _, err := acl.TokenList(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Description, policyPrefix) {
			tokens = append(tokens, e.AccessorID)
		}
	}
	all, _, err := acl.PolicyList(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if strings.HasPrefix(p.Name, policyPrefix) {
			policies = append(policies, p.Name)
		}
	}
	return tokens, policies
}

// The life of a sync's token: made once, renewed, revoked, lost with a Consul, and gone with the cluster.
func testTokens(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-tokens")
	f.cluster("t1", "demo", "dc1", 1)
	token := director.ConsulToken{Consul: "dc1", Accessor: uuid.NewString(), Secret: director.Secret(uuid.NewString())}
	_, err := f.MakeToken(t.Context(), "t1", token)
	if director.KindOf(err) != director.KindForbidden || !strings.Contains(director.HintOf(err), aclRule) {
		t.Errorf("a director that may make no tokens: %v", err)
	}
	may, _ := server.Token(t, makerRules)
	f.account.token = director.Secret(may)
	first := f.syncing(t, "t1")
	if state, err := f.MakeToken(t.Context(), "t1", first); err != nil || state != director.TokenThere {
		t.Errorf("made again: %s, %v", state, err)
	}
	second := f.syncing(t, "t1") // another one
	if tokens, policies := f.tokens(t); len(tokens) != 2 || len(policies) != 1 {
		t.Errorf("there are tokens %v and policies %v", tokens, policies)
	}
	if err := f.KeepToken(t.Context(), "dc1", "t1", second.Accessor); err != nil {
		t.Fatal(err)
	}
	if tokens, _ := f.tokens(t); !slices.Equal(tokens, []string{second.Accessor}) {
		t.Errorf("kept are %v", tokens)
	}
	f.well(t)
	acl := server.Client(t, server.Management).ACL()
	if _, err := acl.TokenDelete(second.Accessor, nil); err != nil {
		t.Fatal(err)
	}
	if s := f.pass(t); !strings.Contains(s.Problem, "revoked in Consul: demo") ||
		!strings.Contains(s.Hint, "rotate consul-token demo") {
		t.Errorf("a token that was revoked: %+v", s)
	}
	p, _, err := acl.PolicyReadByName(policyPrefix+"t1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := acl.PolicyDelete(p.ID, nil); err != nil { // as a Consul that was restored
		t.Fatal(err)
	}
	f.well(t)
	if tokens, _ := f.tokens(t); !slices.Equal(tokens, []string{second.Accessor}) {
		t.Errorf("a Consul that lost all has %v", tokens)
	}
	// A plan that ended while Consul was away: nothing is known of the sync any more.
	f.drop("t1", "demo")
	delete(f.sealed.has, "t1")
	f.well(t)
	if tokens, policies := f.tokens(t); len(tokens)+len(policies) != 0 {
		t.Errorf("a deleted cluster leaves tokens %v and policies %v", tokens, policies)
	}
}

// A sync may write its names, and nothing of the director; its end takes what it wrote.
func testRightsOfASync(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-sync")
	may, _ := server.Token(t, makerRules)
	f.account.token = director.Secret(may)
	f.cluster("s1", "to-sync", "dc1", 1)
	f.cluster("s2", "synced", "dc1", 1)
	f.well(t)
	token := f.syncing(t, "s1")
	c := server.Client(t, token.Secret.Reveal())
	register := func(node, service string) error {
		_, err := c.Catalog().Register(&api.CatalogRegistration{
			Node: node, Address: NodeAddress, NodeMeta: nodeMeta("director-sync", "s1"), Service: &api.AgentService{
				ID: "x", Service: service, Address: "10.9.9.9", Port: 80,
				Meta: map[string]string{MetaOwner: "director-sync", MetaCluster: "s1", MetaKey: "service/default/web"},
			},
		}, nil)
		return err
	}
	deregister := func(node, id string) error {
		_, err := c.Catalog().Deregister(&api.CatalogDeregistration{Node: node, ServiceID: id}, nil)
		return err
	}
	for what, err := range map[string]error{
		"another name":                register("kaas-s1", "vault"),
		"a name of the director":      register("kaas-s1", "kaas-api-other"),
		"to remove another's service": deregister("kaas-s2", "kaas-api-vip"),
		"a node of another cluster":   register("kaas-s2.2", "web"),
	} {
		if err == nil {
			t.Errorf("its token allows %s", what)
		}
	}
	if err := errors.Join(register("kaas-s1", "web"), register("kaas-s1.2", "web")); err != nil {
		t.Fatal(err)
	}
	// Its document does not ask for a sync, and one is installed: what it wrote stays until it is removed.
	if s := f.well(t); s.Removed != 0 {
		t.Errorf("%+v", s)
	}
	delete(f.sealed.has, "s1")
	for range 2 {
		if err := f.EndSync(t.Context(), "dc1", "s1"); err != nil {
			t.Fatal(err)
		}
	}
	tokens, policies := f.tokens(t)
	left := f.entries(t, "director-sync")
	if len(tokens)+len(policies) != 0 || slices.Contains(left, "s1/x=") || slices.Contains(left, "s1.2/x=") {
		t.Errorf("after its end there are %v, %v, %v", tokens, policies, left)
	}
	f.well(t)
	if n, _, err := server.Client(t, server.Management).Catalog().Node("kaas-s1.2", nil); err != nil || n != nil {
		t.Errorf("a node that only a sync had is still there: %+v, %v", n, err)
	}
	// One whose Consul was away at its end.
	f.sealed.set("s2", director.ConsulToken{Consul: "dc1"})
	_, err := server.Client(t, server.Management).Catalog().Register(&api.CatalogRegistration{
		Node: "kaas-s2", Address: NodeAddress, SkipNodeUpdate: true, Service: &api.AgentService{
			ID: "y", Service: "y", Meta: map[string]string{MetaOwner: "director-sync", MetaCluster: "s2"},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := f.well(t); s.Removed != 0 {
		t.Errorf("a sync without ACLs: %+v", s)
	}
	delete(f.sealed.has, "s2")
	if s := f.well(t); s.Removed != 1 {
		t.Errorf("a sync that ended while Consul was away: %+v", s)
	}
	// The test of a Consul asks for the right as soon as a cluster needs it.
	f.world.docs[model.Ref{Kind: model.KindCluster, Name: "synced"}].Cluster.Discovery.Export.Ingress = true
	found := findings(t, f)
	if err, asked := found["right acl:write"]; !asked || err != nil {
		t.Errorf("found %v", found)
	}
	less, _ := server.Token(t, rules)
	f.account.token = director.Secret(less)
	if w := wrong(findings(t, f)); !slices.Equal(w, []string{"right acl:write"}) {
		t.Errorf("wrong are %v", w)
	}
}
