package steps

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/step"
)

// corp is an outer authority with what it was asked for.
type corp struct {
	root  pki.Pair
	asked []string
	needs []pki.Need
	fails error
}

func (c *corp) Issue(_ context.Context, name, subject string, n pki.Need) (pki.Pair, error) {
	if c.fails != nil {
		return pki.Pair{}, c.fails
	}
	c.asked, c.needs = append(c.asked, name+": "+subject), append(c.needs, n)
	return pki.IssueCA(c.root, subject, 365*24*time.Hour, time.Now())
}

// issuing returns handlers of a director with an outer authority, and a run of a plan for the cluster.
func issuing(t *testing.T, c model.Cluster) (Env, *corp, plan.Run) {
	t.Helper()
	root, err := pki.NewCA("corp")
	if err != nil {
		t.Fatal(err)
	}
	box, err := seal.Open(t.TempDir()+"/sealing.key", true)
	if err != nil {
		t.Fatal(err)
	}
	outer := &corp{root: root}
	c.Services.CIDR = netip.MustParsePrefix("10.97.0.0/16")
	facts, err := json.Marshal(step.Facts{Cluster: "demo", UID: "c1", Document: c, Nodes: []plan.MachineSpec{
		{Name: "demo-master-1", Address: "10.88.0.10"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	run := plan.Run{Plan: &plan.Plan{Content: plan.Content{Cluster: "demo", Facts: facts}}}
	return Env{
		Clusters:  Clusters{Keys: Keys{Secrets: vault{}, Sealer: box}},
		Suppliers: Suppliers{Outer: outer},
	}, outer, run
}

// TestOuterAuthorityIssues makes the authorities of a cluster, and changes one of them. Each step is cut off and runs
// again, and asks for nothing twice then.
func TestOuterAuthorityIssues(t *testing.T) {
	t.Parallel()
	doc := model.Cluster{Certificates: model.ClusterCertificates{Authority: "corp", Etcd: true}}
	doc.Services.Domain = "cluster.example"
	doc.API = model.APIEndpoint{VIP: netip.MustParseAddr("10.88.0.5"), Names: []string{"api.example.org", "10.0.0.9"}}
	env, outer, run := issuing(t, doc)
	for range 2 {
		p := step.ClusterParams{UID: "c1", Name: "demo", Document: doc}
		if err := env.keys().clusterPKI(t.Context(), run, p); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"corp: demo cluster", "corp: demo etcd"}; !slices.Equal(outer.asked, want) {
		t.Errorf("it was asked for %v, not %v", outer.asked, want)
	}
	made, err := env.ClusterPKI(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		pair pki.Pair
		own  bool
	}{"cluster": {made.CA, false}, "etcd": {made.EtcdCA, false}, "front-proxy": {made.FrontProxyCA, true}} {
		c, err := pki.ParseCert(tt.pair.Cert)
		if err != nil || (c.CheckSignatureFrom(c) == nil) != tt.own || strings.Count(tt.pair.Cert, "BEGIN") != 1 {
			t.Errorf("%s is %v: %v", name, c.Issuer, err)
		}
	}
	n := outer.needs[0]
	for _, name := range []string{
		"demo-master-1", "kubernetes.default.svc.cluster.example", "api.example.org", "localhost",
	} {
		if !slices.Contains(n.Names, name) {
			t.Errorf("%s is not among %v", name, n.Names)
		}
	}
	for _, a := range []string{"10.88.0.10", "10.88.0.5", "10.0.0.9", "10.97.0.1", "127.0.0.1"} {
		if !slices.Contains(n.IPs, netip.MustParseAddr(a)) {
			t.Errorf("%s is not among %v", a, n.IPs)
		}
	}

	for _, do := range []step.AuthorityVerb{step.AuthorityAdd, step.AuthorityAdd, step.AuthorityUse} {
		p := step.AuthorityParams{
			UID: "c1", Cluster: "demo", Authority: "front-proxy", Do: do, Name: "key2", Issuer: "corp",
		}
		if err := env.keys().authority(t.Context(), run, p); err != nil {
			t.Fatal(err)
		}
	}
	if len(outer.asked) != 3 || outer.asked[2] != "corp: demo front-proxy key2" {
		t.Errorf("for the change it was asked for %v", outer.asked)
	}
}

func TestOuterAuthorityFails(t *testing.T) {
	t.Parallel()
	doc := model.Cluster{Certificates: model.ClusterCertificates{Authority: "corp"}}
	env, outer, run := issuing(t, doc)
	p := step.ClusterParams{UID: "c1", Name: "demo", Document: doc}
	for name, tt := range map[string]struct {
		err  error
		want plan.EventKind
	}{
		"no path length": {director.Invalid("test", "no", []director.Field{{Path: "x", Msg: "y"}}), plan.NeedsHuman},
		"no certificate": {director.Errorf(director.KindConflict, "test", "no certificate"), plan.NeedsHuman},
		"is away":        {director.Errorf(director.KindUnavailable, "test", "away"), plan.Retry},
	} {
		outer.fails = tt.err
		err := classify(env.keys().clusterPKI(t.Context(), run, p))
		if err == nil || plan.OutcomeOf(err).Kind != tt.want || plan.OutcomeOf(err).Text == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if sealed, err := env.Secrets.Secret(t.Context(), "c1", SecretPKI); err != nil || sealed != nil {
		t.Errorf("half of the authorities are kept: %v", err)
	}
	outer.fails = nil
	if err := env.keys().clusterPKI(t.Context(), run, p); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}
