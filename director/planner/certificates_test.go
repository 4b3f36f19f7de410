package planner

import (
	"encoding/json"
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
	w.Installed = nil
	if _, err := certificatesOf(t, w, plan.Certificates{}); director.KindOf(err) != director.KindConflict {
		t.Errorf("a cluster that is not installed: %v", err)
	}
}
