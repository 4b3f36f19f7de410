package providers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/capacity"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/servicetest"
)

const crowded = `apiVersion: kaas/v1
kind: Provider
metadata: {name: lab}
spec:
  type: sim
  sim: {hosts: [{name: h1}, {name: h2}]}
  quota: {machines: 9, memory: 64GiB}
  clusterQuota: {cpus: 12}
  overcommit: {cpuPercent: 200, memoryPercent: 50}
`

func countsOf(v []CapacityView) []string {
	var out []string
	for _, f := range v[0].Fits {
		out = append(out, fmt.Sprintf("%s %d by %s", f.Pool, f.Count, f.By))
	}
	return out
}

// A provider that hangs is said not to answer, and those that answer are told of.
func TestCapacityOfProviderThatHangs(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.put(t, "kind: Provider\nmetadata: {name: other}\nspec: {type: sim, sim: {hosts: [{name: h1}]}}\n")
	b, err := l.Backends.Backend(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	hung := sim.NewWorld(sim.Host{Name: "h9"})
	hung.Inject(sim.Fault{Verb: sim.VerbCapacity, Hang: true, Times: -1})
	rooms := NewCapacity(l.db, backendsByName{"lab": sim.Open(hung), "other": b}, l.db.DirectorID())
	rooms.patience = 50 * time.Millisecond
	v, err := rooms.Capacity(t.Context(), CapacityQuery{})
	if err != nil || len(v) != 2 {
		t.Fatalf("got %+v, %v", v, err)
	}
	wantKind(t, v[0].Err, director.KindUnavailable, "provider lab does not answer within 50ms", "provider test lab")
	if v[1].Err != nil || len(v[1].Hosts) != 2 {
		t.Errorf("got %+v", v[1])
	}
}

type backendsByName map[string]hypervisor.Backend

func (b backendsByName) Backend(_ context.Context, name string) (hypervisor.Backend, error) {
	return b[name], nil
}

// What still fits: under the policy, the quotas of the provider and of each cluster, and with the network's addresses.
func TestCapacity(t *testing.T) {
	t.Parallel()
	l := servicetest.Open(t, 1, 3)
	ctx := t.Context()
	rooms := NewCapacity(l.Store, l.Env.Backends, l.Director.ID)
	l.World.SetHosts(sim.Host{
		Name: "h1", CPUs: 8, Memory: 64 << 30, Disk: 1 << 40,
	}, sim.Host{Name: "h2", CPUs: 2, Memory: 64 << 30, Disk: 1 << 40})
	size := model.VMSize{CPUs: 2, Memory: 4 * model.GiB, Disk: 30 * model.GiB}
	ask := func(q CapacityQuery) []string {
		t.Helper()
		v, err := rooms.Capacity(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return countsOf(v)
	}
	// Without a policy, what is free counts: 64 GiB on each of two hosts.
	if diff := cmp.Diff([]string{" 32 by memory of the hosts"}, ask(CapacityQuery{Size: size})); diff != "" {
		t.Error(diff)
	}
	l.Put(t, crowded)
	one := l.Made["c000-w-1"]
	if err := l.AddPlan(ctx, "p1", true, one); err != nil {
		t.Fatal(err)
	}
	l.MakeVM(t, one)
	// h1: 16 vCPUs may be promised and 2 are; h2: 4. The quota has room for 8 machines.
	if diff := cmp.Diff(
		[]string{" 8 by spec.quota.machines of Provider/lab"},
		ask(CapacityQuery{Size: size, Providers: []string{"lab"}}),
	); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(
		[]string{" 4 by cpus of the hosts"},
		ask(CapacityQuery{Size: model.VMSize{CPUs: 4, Memory: model.GiB, Disk: model.GiB}}),
	); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(
		[]string{"w 5 by spec.clusterQuota.cpus of Provider/lab"}, ask(CapacityQuery{Cluster: "c000"}),
	); diff != "" {
		t.Error(diff)
	}
	l.World.SetReachable("h2", false)
	v, err := rooms.Capacity(ctx, CapacityQuery{Size: size})
	if err != nil || v[0].Err == nil || v[0].Fits != nil ||
		v[0].Used != (capacity.Use{Machines: 1, CPUs: 2, Memory: 4 << 30}) {
		t.Errorf("got %+v, %v", v, err)
	}
	_, err = rooms.Capacity(ctx, CapacityQuery{Cluster: "none"})
	servicetest.WantKind(t, err, director.KindNotFound)
}
