package planning

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// reads counts what is asked of the database, the hypervisor and the cluster.
type reads struct {
	snapshot.Store
	count map[string]int
}

func (r reads) StepTimes(ctx context.Context) (map[string]time.Duration, error) {
	r.count["step times"]++
	return r.Store.StepTimes(ctx)
}

func (r reads) Document(ctx context.Context, ref model.Ref) (model.Stored, error) {
	r.count["document "+ref.String()]++
	return r.Store.Document(ctx, ref)
}

// Documents counts a read of every document that it returns.
func (r reads) Documents(ctx context.Context, kind model.Kind) ([]model.Stored, error) {
	docs, err := r.Store.Documents(ctx, kind)
	for _, d := range docs {
		r.count["document "+d.Ref().String()]++
	}
	return docs, err
}

// Machines counts a read of every row that it returns.
func (r reads) Machines(ctx context.Context, f store.MachineFilter) ([]director.Machine, error) {
	rows, err := r.Store.Machines(ctx, f)
	for _, m := range rows {
		r.count["machine "+m.Name]++
	}
	return rows, err
}

func (r reads) KeptDisks(ctx context.Context, f store.DiskFilter) ([]director.KeptDisk, error) {
	r.count["disks"]++
	return r.Store.KeptDisks(ctx, f)
}

func (r reads) MACs(ctx context.Context) (map[string]bool, error) {
	r.count["MACs"]++
	return r.Store.MACs(ctx)
}

func (r reads) LostHosts(ctx context.Context, provider string) ([]director.LostHost, error) {
	r.count["lost hosts"]++
	return r.Store.LostHosts(ctx, provider)
}

func (r reads) LostMachines(ctx context.Context, provider string) ([]director.Machine, error) {
	r.count["lost machines"]++
	return r.Store.LostMachines(ctx, provider)
}

func (r reads) Installed(ctx context.Context, cluster string) (store.Installed, bool, error) {
	r.count["installed"]++
	return r.Store.Installed(ctx, cluster)
}

// countedBackend counts the lists of VMs.
type countedBackend struct {
	hypervisor.Backend
	count map[string]int
}

func (b countedBackend) List(ctx context.Context, f hypervisor.Filter) ([]hypervisor.VM, error) {
	b.count["VMs"]++
	return b.Backend.List(ctx, f)
}

func (b countedBackend) Unwrap() hypervisor.Backend { return b.Backend }

// countedCluster is a cluster with the nodes; it counts how often it is asked for them.
type countedCluster struct {
	steps.API
	nodes []kube.Node
	count map[string]int
}

func (c countedCluster) Cluster(context.Context, string, string, string) (steps.API, error) {
	return c, nil
}

func (c countedCluster) Answers(context.Context, director.Machine) (bool, error) { return false, nil }

func (c countedCluster) Nodes(context.Context) ([]kube.Node, error) {
	c.count["nodes"]++
	return c.nodes, nil
}

func (c countedCluster) Close() {}

// One planning pass, the pre-checks of capacity, quota and addresses included, reads each document and each row once,
// and asks the hypervisor for its VMs and the cluster for its nodes once.
func TestAPassReadsOnce(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 3)
	ctx := t.Context()
	machines := []director.Machine{l.Made["c000-w-1"], l.Made["c000-w-2"], l.Made["c000-w-3"]}
	if err := l.AddPlan(ctx, "p1", true, machines...); err != nil {
		t.Fatal(err)
	}
	doc := l.Docs["c000"]
	l.MakeVM(t, machines[0])
	err := l.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.PutInstalled(store.Installed{
			UID: doc.UID, Name: "c000", Generation: 1, Document: doc.Document, Endpoint: "10.64.1.0:6443",
			At: time.Now(),
		})
	})
	if err == nil {
		err = l.Store.SetMembership(ctx, machines[0].ID, store.Membership{Kubernetes: "v1.37.1"})
	}
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	b, err := l.Env.Backends.Backend(ctx, "lab")
	if err != nil {
		t.Fatal(err)
	}
	l.Reader = snapshot.New(snapshot.Config{
		Store: reads{l.Store, count}, Backends: servicetest.Backend{B: countedBackend{b, count}},
		Clusters: countedCluster{nodes: []kube.Node{{Name: "c000-w-1", Ready: true}}, count: count},
		Bundles:  snapshot.Bundles{Dirs: l.Confine.Bundles, Gate: l.Env.Gate}, Director: l.Director,
	})
	s, err := l.facts().seen(ctx, "c000", plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if !s.Seen["c000-w-1"].Ready {
		t.Errorf("the node was not seen: %+v", s.Seen)
	}
	s.Provider.Provider.Quota.Machines = 1
	var nodes []plan.MachineSpec
	for _, m := range s.Machines {
		nodes = append(nodes, plan.SpecOf(m))
	}
	facts, err := json.Marshal(step.Facts{Cluster: "c000", UID: doc.UID, Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	c := plan.Content{Operation: plan.ClusterScale, Cluster: "c000", Facts: facts}
	for _, m := range s.Machines {
		c.Machines = append(c.Machines, plan.Machine{Name: m.Name, ID: m.ID})
		c.Steps = append(c.Steps, plan.Step{ID: step.VMEnsure + "/" + m.Name, Kind: step.VMEnsure})
	}
	looked, err := l.check(ctx, s, &c)
	if director.KindOf(err) != director.KindInvalid || len(looked) != 1 || looked[0].Addresses != 2 {
		t.Errorf("the pre-checks looked at %+v: %v", looked, err)
	}
	want := map[string]int{
		"step times": 1, "disks": 1, "MACs": 1, "lost hosts": 1, "lost machines": 1, "installed": 1,
		"VMs": 1, "nodes": 1,
	}
	for _, ref := range []string{"Cluster/c000", "Provider/lab", "Network/net", "Image/node", "Release/k8s"} {
		want["document "+ref] = 1
	}
	for n := range machines {
		want[fmt.Sprintf("machine c000-w-%d", n+1)] = 1
	}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
}
