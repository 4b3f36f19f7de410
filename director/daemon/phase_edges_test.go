package daemon

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/wire"
)

// A plan that was given up ends its task for good.
func TestPhaseOfAPlanThatWasGivenUp(t *testing.T) {
	t.Parallel()
	c := simulating(t, threeHosts)
	c.Simulation.Plays.Faults = []simulate.PlayFault{
		{Hosts: "demo-w-*", Playbook: "drain_worker", Outcome: "failed", Percent: 100},
	}
	_, api := created(t, c)
	nodes, masters := hosts(t, api)
	node := nodes[masters[0]][0]
	request := director.PhaseRequest{Phase: director.PhasePreNodeLock, Node: node}
	task := phase(t, api, "lock", request)
	if (task.State != "failed" && task.State != "parked") || task.FinishedAt != nil ||
		!strings.Contains(task.Hint, "directorctl retry ") {
		t.Fatalf("a drain that fails: %+v", task)
	}
	id := task.Clusters[0].Plans[0].ID
	if _, err := api.DiscardPlan(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	task = phase(t, api, "lock", request)
	if task.State != "failed" || task.FinishedAt == nil || !strings.Contains(task.Hint, "another task id") ||
		len(task.Clusters[0].Plans) != 1 {
		t.Errorf("after its plan was given up: %+v", task)
	}
	if diff := cmp.Diff([]string{}, out(t, api)); diff != "" {
		t.Errorf("out of the cluster: %s", diff)
	}
}

// A plan that a person has to agree to is waited for, and started once that was done.
func TestPhasesWaitForApproval(t *testing.T) {
	t.Parallel()
	c := simulating(t, threeHosts)
	c.Approval = "any"
	_, api := created(t, c)
	wantDone(t, phase(t, api, "lock", director.PhaseRequest{Phase: director.PhasePreNodeLock, Node: "demo-w-1"}))
	recreate := nextRelease() + "  maintenance: {strategy: reconstitute}\n"
	if _, err := api.Apply(t.Context(), []byte(recreate), "x", false); err != nil {
		t.Fatal(err)
	}
	request := director.PhaseRequest{Phase: director.PhasePostNodeUnlock, Node: "demo-w-1"}
	var first wire.PhaseTask
	for range 3 {
		task, err := api.AskPhase(t.Context(), "unlock", request)
		if err != nil || task.State != "waiting" ||
			!strings.Contains(task.Message, "has to be approved first: it recreates 5 VMs") ||
			len(task.Clusters[0].Plans) != 1 {
			t.Fatalf("before it was approved: %+v, %v", task, err)
		}
		if first.TaskID == "" {
			first = task
		}
		if task.Clusters[0].Plans[0].ID != first.Clusters[0].Plans[0].ID {
			t.Errorf("each question makes a plan of its own: %s", task.Clusters[0].Plans[0].ID)
		}
	}
	p, err := api.Plan(t.Context(), first.Clusters[0].Plans[0].ID)
	if err == nil {
		_, err = api.ApprovePlan(t.Context(), p.ID, p.Hash)
	}
	if err != nil {
		t.Fatal(err)
	}
	task := phase(t, api, "unlock", request)
	wantDone(t, task)
	if got := operationsOf(task); !slices.Equal(got, []string{"cluster.upgrade", "node.rejoin"}) {
		t.Errorf("it made plans of %v", got)
	}
}

// The machines of a creation that stopped half way keep no host from its unlock: there is no cluster that they could
// come back to.
func TestUnlockBesideAClusterThatWasNeverInstalled(t *testing.T) {
	t.Parallel()
	c := simulating(t, threeHosts)
	c.Simulation.Plays.Faults = []simulate.PlayFault{{Playbook: "control_plane", Outcome: "failed", Percent: 100}}
	_, api := opened(t, c)
	p, err := api.MakePlan(t.Context(), "demo", plan.Request{})
	if err == nil {
		_, err = api.StartPlan(t.Context(), p.ID, p.Hash)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(
		50 * time.Millisecond,
	); err == nil && p.Status != string(plan.StatusFailed) && p.Status != string(plan.StatusParked); <-tick.C {
		p, err = api.Plan(ctx, p.ID)
	}
	if err == nil {
		_, err = api.DiscardPlan(t.Context(), p.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	machines, _ := hosts(t, api)
	if len(machines["h1"]) == 0 {
		t.Fatal("nothing was left half way")
	}
	wantDone(t, phase(t, api, "unlock", unlock("h1")))
	wantDone(t, phase(t, api, "lock", lock("h1")))
}

// However many ask at once, also with the same breath, a task makes one plan.
func TestAPhaseThatManyAskFor(t *testing.T) {
	t.Parallel()
	_, api := created(t, simulating(t, threeHosts))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := api.AskPhase(t.Context(), "lock", lock("h1")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	task := phase(t, api, "lock", lock("h1"))
	wantDone(t, task)
	plans, err := api.Plans(t.Context(), client.PlanFilter{Cluster: "demo"})
	if err != nil || len(plans) != 2 || plans[0].ID != task.Clusters[0].Plans[0].ID {
		t.Errorf("%d plans beside the creation's: %+v, %v", len(plans)-1, plans, err)
	}
}

// The phase cluster creates a cluster that is not installed if the request asks for that, once for a task, and waits
// for its nodes. An installed cluster it only checks (D5).
func TestAPhaseInstalls(t *testing.T) {
	t.Parallel()
	_, api := opened(t, simulating(t, threeHosts))
	install := director.PhaseRequest{Phase: director.PhaseCluster, Cluster: "demo", Install: true}
	task := phase(t, api, "install", install)
	wantDone(t, task)
	if got := operationsOf(task); !slices.Equal(got, []string{"cluster.create"}) {
		t.Errorf("it made plans of %v", got)
	}
	if nodes, masters := hosts(t, api); len(nodes) == 0 || len(masters) != 3 {
		t.Errorf("nodes %v, masters on %v", nodes, masters)
	}
	again := phase(t, api, "install", install)
	if diff := cmp.Diff(task, again); diff != "" {
		t.Errorf("the same task again (-first +again):\n%s", diff)
	}
	other := phase(t, api, "install-2", install)
	wantDone(t, other)
	if got := operationsOf(other); len(got) != 0 {
		t.Errorf("a cluster that is installed gets plans of %v", got)
	}
}
