package planner

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

func certificatesOf(t *testing.T, w World, c plan.Certificates) (plan.Content, error) {
	t.Helper()
	return RotateCertificates(w, plan.Request{Operation: plan.ClusterRotateCerts, Certificates: c})
}

// Masters are renewed one after the other and before any worker; what is known to end later is left out.
func TestRotateCertificates(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	w := running(t, 3, 2, v)
	w.CertificateEnds = map[string]time.Time{"demo-master-2": at.Add(time.Hour), "demo-worker-1": at.Add(-time.Hour)}
	c, err := certificatesOf(t, w, plan.Certificates{EndBefore: at})
	want := []string{
		"rotate_certs/demo-master-1", "rotate_certs/demo-master-3", "rotate_certs/demo-worker-1",
		"rotate_certs/demo-worker-2",
	}
	if diff := cmp.Diff(want, ids(t, c, err)); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	if c.Steps[1].Needs[0] != want[0] || c.Steps[2].Needs[0] != want[1] || c.Steps[3].Needs[0] != want[1] {
		t.Errorf("the order is wrong: %+v", c.Steps)
	}
	if c.Steps[1].Window != "" || c.Steps[2].Window == "" {
		t.Error("workers have to be in a window, and masters not")
	}
	var p step.PlayParams
	if err := json.Unmarshal(c.Steps[0].Params, &p); err != nil {
		t.Fatal(err)
	}
	if p.Vars["certs_before"] != float64(at.Unix()) || p.Vars["certs_cold"] != nil ||
		p.Vars["membership_kubernetes_version"] != v {
		t.Errorf("variables: %v", p.Vars)
	}
	all, err := certificatesOf(t, w, plan.Certificates{MadeBefore: at})
	if n := len(ids(t, all, err)); n != 5 {
		t.Errorf("all: %d steps, want 5", n)
	}
	for _, m := range w.Machines {
		w.CertificateEnds[m.Name] = at.AddDate(1, 0, 0)
	}
	again, err := certificatesOf(t, w, plan.Certificates{MadeBefore: at.Add(-time.Hour)})
	if n := len(ids(t, again, err)); n != 0 || !strings.HasPrefix(again.Summary, "Nothing to do") {
		t.Errorf("a second run has %d steps: %s", n, again.Summary)
	}
}

// A cluster whose certificates have ended is renewed without its API: all masters together, and then the workers.
func TestRotateCertificatesCold(t *testing.T) {
	t.Parallel()
	w := running(t, 3, 2, v)
	w.Seen, w.Blind = nil, "the certificate has expired"
	if _, err := certificatesOf(t, w, plan.Certificates{}); director.KindOf(err) != director.KindConflict {
		t.Errorf("a cluster that does not answer: %v", err)
	}
	c, err := certificatesOf(t, w, plan.Certificates{MadeBefore: time.Unix(1, 0), Cold: true})
	if diff := cmp.Diff([]string{"rotate_certs/masters", "rotate_certs/workers"}, ids(t, c, err)); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	if len(c.Approvals) != 1 || len(c.Steps[1].Needs) != 1 {
		t.Errorf("approvals %q, needs %q", c.Approvals, c.Steps[1].Needs)
	}
	// Years later, a worker that was away alone has nothing that lasts: no master is touched, and nobody has to agree.
	w.CertificateEnds = map[string]time.Time{"demo-worker-1": time.Unix(1, 0).AddDate(-5, 0, 0)}
	for _, name := range []string{"demo-master-1", "demo-master-2", "demo-master-3", "demo-worker-2"} {
		w.CertificateEnds[name] = time.Unix(1<<40, 0)
	}
	c, err = certificatesOf(t, w, plan.Certificates{MadeBefore: time.Unix(1, 0), Cold: true})
	if diff := cmp.Diff([]string{"rotate_certs/demo-worker-1"}, ids(t, c, err)); diff != "" || len(c.Approvals) != 0 {
		t.Errorf("a worker alone, -want +got:\n%s; approvals %q", diff, c.Approvals)
	}
	w.Installed = nil
	if _, err := certificatesOf(t, w, plan.Certificates{}); director.KindOf(err) != director.KindConflict {
		t.Errorf("a cluster that is not installed: %v", err)
	}
}

// Authorities that have ended are replaced before the nodes are renewed, and go when the cluster runs again. A plan
// that stopped half way takes up what the former one has made.
func TestEndedAuthorities(t *testing.T) {
	t.Parallel()
	half := func(w *World) {
		for _, which := range []string{"cluster", "etcd"} {
			w.Authorities[which] = KeyNames{Keys: []string{"key2", "key1"}}
		}
	}
	refused := []string{
		"rotate_ca_refuse/demo-master-1",
		"rotate_ca_refuse/demo-master-2",
		"rotate_ca_refuse/demo-master-3",
	}
	workers := []string{
		"rotate_ca_refuse/demo-worker-1",
		"rotate_ca_refuse/demo-worker-2",
		"authorities_published_refuse/demo",
	}
	renewed := []string{"rotate_certs/masters", "rotate_certs/workers"}
	for name, tt := range map[string]struct {
		ended  []string
		change func(*World)
		want   [][]string
	}{
		"the cluster's": {[]string{"cluster"}, nil, [][]string{
			{"authority.change/add", "authority.change/use"},
			renewed,
			{"authorities_published_trust/demo"},
			{"authority.change/drop"},
			refused, workers,
		}},
		"etcd's alone": {[]string{"etcd"}, nil, [][]string{
			{"authority.change/add", "authority.change/use"}, renewed, {"authority.change/drop"}, refused,
		}},
		"both": {[]string{"cluster", "etcd"}, nil, [][]string{
			{
				"authority.change/add-cluster", "authority.change/use-cluster", "authority.change/add-etcd",
				"authority.change/use-etcd",
			},
			renewed,
			{"authorities_published_trust/demo"},
			{"authority.change/drop-cluster", "authority.change/drop-etcd"},
			refused, workers,
		}},
		"both, half way": {[]string{"cluster", "etcd"}, half, [][]string{
			{"authority.change/use-cluster", "authority.change/use-etcd"},
			renewed,
			{"authorities_published_trust/demo"},
			{"authority.change/drop-cluster", "authority.change/drop-etcd"},
			refused, workers,
		}},
	} {
		w := running(t, 3, 2, v)
		w.Seen, w.Blind, w.Authorities, w.EndedAuthorities = nil, "the certificate "+
			"has expired", unchanged(), map[string]bool{}
		w.CertificateEnds = map[string]time.Time{"demo-master-2": time.Unix(1<<40, 0)}
		for _, which := range tt.ended {
			w.EndedAuthorities[which] = true
		}
		if tt.change != nil {
			tt.change(&w)
		}
		c, err := certificatesOf(t, w, plan.Certificates{MadeBefore: time.Unix(1, 0), Cold: true})
		want := slices.Concat([]string{"clocks/demo"}, slices.Concat(tt.want...))
		if diff := cmp.Diff(want, ids(t, c, err)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
			continue
		}
		if len(c.Approvals) != 1 || !strings.Contains(c.Summary, tt.ended[0]) {
			t.Errorf("%s: approvals %q: %s", name, c.Approvals, c.Summary)
		}
		if first, last := c.Steps[0].Safety, c.Steps[len(c.Steps)-1].Safety; first != safeEnded ||
			last != safeAuthority {
			t.Errorf("%s: if a step fails, %q and then %q", name, first, last)
		}
		masters, _ := (&plan.Plan{Content: c}).Step("rotate_certs/masters")
		var p step.PlayParams
		if err := json.Unmarshal(masters.Params, &p); err != nil || p.Vars["certs_authorities"] != true ||
			p.Vars["certs_cold"] != true || len(p.Limit) != 3 || len(masters.Needs) != 1 {
			t.Errorf("%s: the masters are given %v of %v after %v: %v", name, p.Vars, p.Limit, masters.Needs, err)
		}
	}
}
