package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// halfway is a cluster whose change of the etcd authority has stopped.
func halfway(t *testing.T) World {
	t.Helper()
	w := backedUp(t, 3, 2)
	w.Authorities = unchanged()
	w.Authorities["etcd"] = KeyNames{Keys: []string{"key2", "key1"}}
	return w
}

// wantsNext has the document ask for another release.
func wantsNext(w *World) { release(w, "v1.38.0") }

// workers has the document ask for so many workers.
func workers(n int) func(*World) {
	return func(w *World) { want(w, func(c *model.Cluster) { c.Workers[0].Count = n }) }
}

func TestPlansThatMeetHalfAChangeOfAnAuthority(t *testing.T) {
	t.Parallel()
	const in = "in the middle of the change of its etcd authority"
	leaves := plan.Request{
		Operation: plan.ClusterRotateCerts, Certificates: plan.Certificates{EndBefore: time.Unix(1<<40, 0)},
	}
	for name, tt := range map[string]struct {
		change func(*World)
		make   func(World, plan.Request) (plan.Content, error)
		r      plan.Request
		want   string // "" for a plan
	}{
		"an upgrade":       {wantsNext, Apply, plan.Request{}, in},
		"more workers":     {workers(3), Apply, plan.Request{}, in},
		"fewer workers":    {workers(1), Apply, plan.Request{}, ""},
		"its certificates": {func(*World) {}, RotateCertificates, leaves, in},
		"a cold renewal": {func(*World) {}, RotateCertificates, plan.Request{
			Operation:    plan.ClusterRotateCerts,
			Certificates: plan.Certificates{EndBefore: time.Unix(1<<40, 0), Cold: true},
		}, ""},
		"a rejoin of a worker": {func(w *World) { w.Seen["demo-worker-1"] = Seen{} }, Node, requestOn(
			plan.NodeRejoin, "demo-worker-1",
		), ""},
		"a rejoin of a master": {func(w *World) { w.Seen["demo-master-2"] = Seen{} }, Node, requestOn(
			plan.NodeRejoin, "demo-master-2",
		), ""},
		"its end": {func(*World) {}, RotateAuthority, plan.Request{Operation: plan.ClusterEtcdCA}, ""},
		"its end, while an upgrade waits": {
			wantsNext, RotateAuthority, plan.Request{Operation: plan.ClusterEtcdCA}, "",
		},
		"its end, in the middle of an upgrade": {
			func(w *World) { wantsNext(w); w.Machines[0].Kubernetes = "v1.38.0" }, RotateAuthority,
			plan.Request{Operation: plan.ClusterEtcdCA},
			"its document wants",
		},
		"the rest of an upgrade": {
			func(w *World) { wantsNext(w); w.Machines[0].Kubernetes = "v1.38.0" }, Apply, plan.Request{}, "",
		},
		"certificates, in the middle of an upgrade": {
			func(w *World) {
				w.Authorities = unchanged()
				wantsNext(w)
				w.Machines[0].Kubernetes = "v1.38.0"
			}, RotateCertificates, leaves, "its document wants",
		},
		"certificates, while an upgrade waits": {
			func(w *World) { w.Authorities = unchanged(); wantsNext(w) }, RotateCertificates, leaves, "",
		},
	} {
		w := halfway(t)
		tt.change(&w)
		c, err := tt.make(w, tt.r)
		if tt.want == "" && (err != nil || len(c.Steps) == 0) {
			t.Errorf("%s: %d steps, %v", name, len(c.Steps), err)
		}
		if tt.want != "" && (director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
