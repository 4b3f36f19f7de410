package planning

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/capacity"
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
