package operations

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/capacity"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
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

func countsOf(v []api.CapacityView) []string {
	var out []string
	for _, f := range v[0].Fits {
		out = append(out, fmt.Sprintf("%s %d by %s", f.Pool, f.Count, f.By))
	}
	return out
}

// What still fits: under the policy, the quotas of the provider and of each cluster, and with the network's addresses.
func TestCapacity(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 3)
	ctx := t.Context()
	l.World.SetHosts(sim.Host{
		Name: "h1", CPUs: 8, Memory: 64 << 30, Disk: 1 << 40,
	}, sim.Host{Name: "h2", CPUs: 2, Memory: 64 << 30, Disk: 1 << 40})
	size := model.VMSize{CPUs: 2, Memory: 4 * model.GiB, Disk: 30 * model.GiB}
	ask := func(q api.CapacityQuery) []string {
		t.Helper()
		v, err := l.Capacity(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return countsOf(v)
	}
	// Without a policy, what is free counts: 64 GiB on each of two hosts.
	if diff := cmp.Diff([]string{" 32 by memory of the hosts"}, ask(api.CapacityQuery{Size: size})); diff != "" {
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
		ask(api.CapacityQuery{Size: size, Providers: []string{"lab"}}),
	); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(
		[]string{" 4 by cpus of the hosts"},
		ask(api.CapacityQuery{Size: model.VMSize{CPUs: 4, Memory: model.GiB, Disk: model.GiB}}),
	); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(
		[]string{"w 5 by spec.clusterQuota.cpus of Provider/lab"}, ask(api.CapacityQuery{Cluster: "c000"}),
	); diff != "" {
		t.Error(diff)
	}
	l.World.SetReachable("h2", false)
	v, err := l.Capacity(ctx, api.CapacityQuery{Size: size})
	if err != nil || v[0].Err == nil || v[0].Fits != nil ||
		v[0].Used != (capacity.Use{Machines: 1, CPUs: 2, Memory: 4 << 30}) {
		t.Errorf("got %+v, %v", v, err)
	}
	_, err = l.Capacity(ctx, api.CapacityQuery{Cluster: "none"})
	servicetest.WantKind(t, err, director.KindNotFound)
}

// All problems at once, also those that can be found without a plan: there is no bundle here, and so none.
func TestCheckFindsAllAtOnce(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 20)
	ctx := t.Context()
	l.Put(t, crowded+`---
apiVersion: kaas/v1
kind: Image
metadata: {name: node}
spec: {source: /nowhere/node.qcow2, sha256: "`+fmt.Sprintf("%064d", 1)+`", kubernetes: v1.37.1}
`)
	l.World.SetReachable("h2", false)
	v, err := l.Check(ctx, "c000", plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range v.Problems {
		got = append(got, p.Path+": "+p.Msg)
		if p.Hint == "" && p.Path != "Provider/lab" {
			t.Errorf("%s: nobody says what to do", p)
		}
	}
	want := []string{
		"Release/k8s: there is no release bundle in /nowhere: it holds no release.yaml",
		"Image/node: spec.source: /nowhere/node.qcow2 does not exist on the director",
		"Provider/lab: spec.quota.machines: 21 would be used and 9 are allowed",
		"Provider/lab: spec.quota.memory: 84GiB would be used and 64GiB are allowed",
		"Provider/lab: spec.clusterQuota.cpus: 42 would be used and 12 are allowed",
		"Provider/lab: host h2 does not answer",
	}
	if diff := cmp.Diff(want[1:], got[1:]); diff != "" || v.Operation != "" {
		t.Errorf("%q %s", got[0], diff)
	}
	_, err = l.Check(ctx, "none", plan.Request{})
	servicetest.WantKind(t, err, director.KindNotFound)
}

// The pre-check holds new VMs against the policy, and says how many would fit.
func TestTooSmall(t *testing.T) {
	t.Parallel()
	w := planner.World{}
	w.Provider.Kind, w.Provider.Metadata.Name = model.KindProvider, "lab"
	size := model.VMSize{CPUs: 4, Memory: 8 * model.GiB, Disk: 100 * model.GiB}
	w.Cluster.Cluster = &model.Cluster{
		Masters: model.Masters{Count: 1, VMSize: size},
		Workers: []model.WorkerPool{{Name: "w", Count: 2, VMSize: size}},
	}
	c := plan.Content{
		Machines: []plan.Machine{
			{Name: "m", Pool: "master", Host: "h1"},
			{Name: "w1", Pool: "w", Host: "h1"},
			{Name: "w2", Pool: "w", Host: "h2"},
		},
	}
	host := func(name string, cpus int, memory, disk int64) capacity.Host {
		h := capacity.Host{CPUsLeft: cpus, MemoryLeft: memory << 30, DiskLeft: disk << 30}
		h.Host, h.CPUs = name, 4
		return h
	}
	var got []string
	for _, f := range tooSmall(w, c, []capacity.Host{host("h1", 6, 12, 15), host("h2", 4, 8, 10)}, nil) {
		got = append(got, f.String())
	}
	const fit = "; on all hosts 2 nodes of the size of w fit, by cpus of the hosts)"
	want := []string{
		"Provider/lab: host h1: 8 vCPUs are needed, and of its 4 CPUs 6 may be promised still (choose smaller nodes " +
			"or fewer of them, or raise spec.overcommit.cpuPercent" + fit,
		"Provider/lab: host h1: 16384 MiB of memory are needed and 12288 MiB are free (choose smaller nodes, fewer " +
			"of them, or a host with more memory" + fit,
		"Provider/lab: host h1: at least 20480 MiB of disk are needed and 15360 MiB are free in its storage pool " +
			"(free space in the pool, or choose smaller disks" + fit,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := tooSmall(w, c, []capacity.Host{host("h1", 6, 12, 15)}, map[string]bool{"w1": true}); got != nil {
		t.Errorf("what exists needs no room: %v", got)
	}
}
