package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// threeHosts is a provider with three hosts, and a cluster of three masters and three workers on them.
const threeHosts = `
apiVersion: kaas/v1
kind: Provider
metadata: {name: lab}
spec: {type: sim, sim: {hosts: [{name: h1}, {name: h2}, {name: h3}, {name: spare}]}}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: net}
spec: {provider: lab, cidr: 10.88.0.0/24, pool: {from: 10.88.0.10, to: 10.88.0.99}}
---
apiVersion: kaas/v1
kind: Image
metadata: {name: node}
spec: {source: /nowhere/image, sha256: "0000000000000000000000000000000000000000000000000000000000000000", ` +
	`kubernetes: v1.37.1}
---
apiVersion: kaas/v1
kind: Release
metadata: {name: k8s}
spec: {bundle: /nowhere/bundle, kubernetes: v1.37.1}
---
apiVersion: kaas/v1
kind: Image
metadata: {name: node-next}
spec: {source: /nowhere/image-next, sha256: "0000000000000000000000000000000000000000000000000000000000000000", ` +
	`kubernetes: v1.37.2}
---
apiVersion: kaas/v1
kind: Release
metadata: {name: k8s-next}
spec: {bundle: /nowhere/bundle-next, kubernetes: v1.37.2}
---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: demo}
spec:
  release: k8s
  provider: lab
  image: node
  network: net
  api: {vip: 10.88.0.5}
  masters: {count: 3}
  workers: [{name: w, count: 3}]
`

// hosts returns the names of the cluster's nodes by host, workers first, and the hosts that have a master.
func hosts(t *testing.T, api *client.Client) (nodes map[string][]string, withMaster []string) {
	t.Helper()
	v, err := api.Nodes(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	nodes = map[string][]string{}
	for _, role := range []string{"worker", "master"} {
		for _, n := range v.Items {
			if n.Role == role {
				nodes[n.Host] = append(nodes[n.Host], n.Name)
				if role == "master" {
					withMaster = append(withMaster, n.Host)
				}
			}
		}
	}
	return nodes, withMaster
}

// out returns the nodes that are out of the cluster, and fails if one of them has lost its VM.
func out(t *testing.T, api *client.Client) []string {
	t.Helper()
	v, err := api.Nodes(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, n := range v.Items {
		if n.Power == "missing" {
			t.Errorf("the VM of %s is gone", n.Name)
		}
		if n.Version == "" {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}

// phase asks for the task until it does not move any more.
func phase(t *testing.T, api *client.Client, id string, r director.PhaseRequest) wire.PhaseTask {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	task, err := api.AskPhase(ctx, id, r)
	for tick := time.NewTicker(
		50 * time.Millisecond,
	); err == nil && (task.State == "running" || task.State == "waiting"); <-tick.C {
		task, err = api.Phase(ctx, id)
	}
	if err != nil {
		t.Fatalf("task %s: %v", id, err)
	}
	return task
}

func lock(host string) director.PhaseRequest {
	return director.PhaseRequest{Phase: director.PhasePreNodeLock, Host: host}
}

func unlock(host string) director.PhaseRequest {
	return director.PhaseRequest{Phase: director.PhasePostNodeUnlock, Host: host}
}

func wantDone(t *testing.T, task wire.PhaseTask) {
	t.Helper()
	if task.State != "done" || task.FinishedAt == nil {
		t.Fatalf("task %s is %s: %s", task.TaskID, task.State, task.Message)
	}
}

// The whole way of an outer plan over its hosts (D5).
func TestPhasesRollOverHosts(t *testing.T) {
	t.Parallel()
	_, api := opened(t, simulating(t, threeHosts))
	whole := director.PhaseRequest{Phase: director.PhaseCluster, Cluster: "demo"}
	if _, err := api.AskPhase(
		t.Context(), "begin", whole,
	); director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("a cluster that is not installed: %v", err)
	}
	run(t, api, plan.ClusterCreate)
	wantDone(t, phase(t, api, "begin", whole)) // what was refused was not kept
	nodes, masters := hosts(t, api)
	if len(masters) != 3 || masters[0] == masters[1] || masters[1] == masters[2] {
		t.Fatalf("the masters are on %v", masters)
	}
	first, second := masters[0], masters[1]

	wantLocked(t, api, nodes, first, second)
	wantRefused(t, api, "lock-2", first, second)
	end := director.PhaseRequest{Phase: director.PhasePostCluster, Cluster: "demo"}
	if _, err := api.AskPhase(t.Context(), "end", end); director.KindOf(err) != director.KindConflict ||
		!strings.Contains(err.Error(), nodes[first][0]+": it was taken out") {
		t.Errorf("the end while a host is out: %v", err)
	}
	wantDone(t, phase(t, api, "unlock-1", unlock(first)))
	if diff := cmp.Diff([]string{}, out(t, api)); diff != "" {
		t.Errorf("after the unlock: %s", diff)
	}
	wantDone(t, phase(t, api, "lock-2", lock(second)))
	if diff := cmp.Diff(sorted(nodes[second]), out(t, api)); diff != "" {
		t.Errorf("out of the cluster: %s", diff)
	}
	wantDone(t, phase(t, api, "unlock-2", unlock(second)))
	wantDone(t, phase(t, api, "end", end))

	wantNodeBackUpgraded(t, api, nodes[second][0], second)
}

// wantLocked takes the host first out, and checks what the task and its repetition tell.
func wantLocked(t *testing.T, api *client.Client, nodes map[string][]string, first, second string) {
	t.Helper()
	locked := phase(t, api, "lock-1", lock(first))
	wantDone(t, locked)
	if diff := cmp.Diff(sorted(nodes[first]), out(t, api)); diff != "" {
		t.Errorf("out of the cluster: %s", diff)
	}
	if got := locked.Clusters[0]; len(got.Plans) != 1 || got.Plans[0].Operation != "node.delete" ||
		got.Nodes[0].StepsDone != got.Nodes[0].StepsTotal || got.Nodes[0].StepsTotal == 0 {
		t.Errorf("it tells %+v", got)
	}
	if diff := cmp.Diff(nodes[first], nodeNames(locked)); diff != "" {
		t.Errorf("workers go first: %s", diff)
	}
	again, err := api.AskPhase(t.Context(), "lock-1", lock(first))
	if diff := cmp.Diff(locked, again); diff != "" || err != nil {
		t.Errorf("the same task again: %v\n%s", err, diff)
	}
	_, err = api.AskPhase(t.Context(), "lock-1", lock(second))
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "host "+first) ||
		!strings.Contains(err.Error(), "host "+second) {
		t.Errorf("the same id for another host: %v", err)
	}
}

// wantRefused checks that the host second is not taken out while first is, and that nothing of it is kept.
func wantRefused(t *testing.T, api *client.Client, id, first, second string) {
	t.Helper()
	_, err := api.AskPhase(t.Context(), id, lock(second))
	if director.KindOf(err) != director.KindConflict ||
		!strings.Contains(err.Error(), "host "+first+" is out with "+firstOf(t, api, first)) ||
		!strings.Contains(director.HintOf(err), "post-node-unlock --host "+first) {
		t.Errorf("a second host: %v; %s", err, director.HintOf(err))
	}
	if _, err := api.Phase(t.Context(), id); director.KindOf(err) != director.KindNotFound {
		t.Errorf("what was refused was kept: %v", err)
	}
}

// wantNodeBackUpgraded takes one node out by its name and brings it back at a release that the document asks for since.
func wantNodeBackUpgraded(t *testing.T, api *client.Client, node, host string) {
	t.Helper()
	wantDone(t, phase(t, api, "node", director.PhaseRequest{Phase: director.PhasePreNodeLock, Node: node}))
	if diff := cmp.Diff([]string{node}, out(t, api)); diff != "" {
		t.Errorf("out of the cluster: %s", diff)
	}
	// The document asks for another release meanwhile: the members go there, and then the node comes back at it.
	if _, err := api.Apply(t.Context(), []byte(nextRelease()), "x", false); err != nil {
		t.Fatal(err)
	}
	begun, err := api.AskPhase(t.Context(), "node-back", unlock(host))
	if err != nil || !strings.Contains(begun.Message, "asks for another release") {
		t.Errorf("it does not say that it upgrades first: %+v, %v", begun, err)
	}
	back := phase(t, api, "node-back", unlock(host))
	wantDone(t, back)
	if got := operationsOf(back); !slices.Equal(got, []string{"cluster.upgrade", "node.rejoin"}) {
		t.Errorf("it made plans of %v", got)
	}
	v, err := api.Nodes(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range v.Items {
		if n.Version != "v1.37.2" {
			t.Errorf("%s runs %s", n.Name, n.Version)
		}
	}
}

// nextRelease is the cluster's document with the next release and its image.
func nextRelease() string {
	cluster := threeHosts[strings.LastIndex(threeHosts, "apiVersion"):]
	return strings.NewReplacer("release: k8s\n", "release: k8s-next\n", "image: node\n", "image: node-next\n").Replace(
		cluster,
	)
}

func nodeNames(t wire.PhaseTask) (names []string) {
	for _, c := range t.Clusters {
		for _, n := range c.Nodes {
			names = append(names, n.Name)
		}
	}
	return names
}

func operationsOf(t wire.PhaseTask) (out []string) {
	for _, c := range t.Clusters {
		for _, p := range c.Plans {
			out = append(out, p.Operation)
		}
	}
	return out
}

// firstOf returns the first node of the host as the ledger lists them: masters first.
func firstOf(t *testing.T, api *client.Client, host string) string {
	t.Helper()
	v, err := api.Nodes(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range v.Items {
		if n.Host == host {
			return n.Name
		}
	}
	return "?"
}

func TestPhasesThatAreNone(t *testing.T) {
	t.Parallel()
	_, api := opened(t, simulating(t, threeHosts))
	task := phase(t, api, "empty", lock("spare"))
	wantDone(t, task)
	if !strings.Contains(task.Message, "host spare has no node") || len(task.Clusters) != 0 {
		t.Errorf("a host without nodes: %+v", task)
	}
	bad := map[string]struct {
		id   string
		r    director.PhaseRequest
		kind director.Kind
		says string
	}{
		"an unknown host": {"x", lock("h9"), director.KindNotFound, `has a host "h9"`},
		"an unknown node": {
			"x",
			director.PhaseRequest{Phase: director.PhasePreNodeLock, Node: "demo-w-9"},
			director.KindNotFound,
			"demo-w-9",
		},
		"an unknown cluster": {
			"x", director.PhaseRequest{Phase: director.PhaseCluster, Cluster: "nope"}, director.KindNotFound, "nope",
		},
		"an unknown provider": {
			"x",
			director.PhaseRequest{Phase: director.PhasePreNodeLock, Host: "h1", Provider: "nope"},
			director.KindNotFound, "nope",
		},
		"host and node": {
			"x",
			director.PhaseRequest{Phase: director.PhasePreNodeLock, Host: "h1", Node: "n"},
			director.KindInvalid,
			"exactly one",
		},
		"neither": {
			"x", director.PhaseRequest{Phase: director.PhasePostNodeUnlock}, director.KindInvalid, "exactly one",
		},
		"a host of a cluster": {
			"x",
			director.PhaseRequest{Phase: director.PhaseCluster, Cluster: "demo", Host: "h1"},
			director.KindInvalid,
			"leave host",
		},
		"no cluster": {
			"x", director.PhaseRequest{Phase: director.PhasePostCluster}, director.KindInvalid, "name it",
		},
		"an unknown phase":   {"x", director.PhaseRequest{Phase: "during", Host: "h1"}, director.KindInvalid, "phase"},
		"no id":              {"", lock("h1"), director.KindInvalid, "task_id"},
		"an id with a slash": {"a/b", lock("h1"), director.KindInvalid, "task_id"},
		"a long id":          {strings.Repeat("x", 129), lock("h1"), director.KindInvalid, "task_id"},
	}
	for name, tt := range bad {
		_, err := api.AskPhase(t.Context(), tt.id, tt.r)
		if director.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s with %q", name, err, tt.kind, tt.says)
		}
	}
	if _, err := api.Phase(t.Context(), "x"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("something of what was refused was kept: %v", err)
	}
}

// A director that died behind the record of a task, or behind the plan that it made, continues when a person asks; and
// another plan is waited for.
func TestPhasesGoOn(t *testing.T) {
	t.Parallel()
	c := simulating(t, threeHosts)
	d, api := created(t, c)
	nodes, masters := hosts(t, api)
	host := masters[0]

	other := pausedCordon(t, api, nodes[masters[1]][0], nodes[masters[2]][0])
	task, err := api.AskPhase(t.Context(), "lock", lock(host))
	if err != nil || task.State != "waiting" ||
		!strings.Contains(task.Message, "plan "+other+" holds cluster demo") ||
		task.Clusters[0].Nodes[0].StepsTotal != 0 {
		t.Fatalf("while another plan holds the cluster: %+v, %v", task, err)
	}

	// So does a second host, which nothing refuses yet.
	if task, err := api.AskPhase(t.Context(), "lock-2", lock(masters[1])); err != nil || task.State != "waiting" {
		t.Fatalf("a second host while another plan holds the cluster: %+v, %v", task, err)
	}

	// The record is all that a director leaves which is killed now; the database is rolled back to that.
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	forgetBegun(t, c)
	if d, err = start(t, c, io.Discard); err != nil {
		t.Fatal(err)
	}
	api = connect(t, c, d)
	if _, err := api.RetryPlan(t.Context(), other, ""); err != nil {
		t.Fatal(err)
	}
	task = phase(t, api, "lock", lock(host))
	wantDone(t, task)
	if diff := cmp.Diff(sorted(nodes[host]), out(t, api)); diff != "" {
		t.Errorf("out of the cluster: %s", diff)
	}
	if ids := task.Clusters[0].Plans; len(ids) != 1 {
		t.Errorf("it made the plans %v", ids)
	}

	second, err := api.AskPhase(t.Context(), "lock-2", lock(masters[1]))
	if err != nil || second.State != "waiting" || !strings.Contains(second.Message, "host "+host+" is out with ") ||
		len(second.Clusters[0].Plans) != 0 {
		t.Errorf("the second host, when the first is out: %+v, %v", second, err)
	}

	// A plan that was made and never started: killed between the two.
	made, err := api.MakePlan(t.Context(), "demo", plan.Request{
		Operation: plan.NodeRejoin, Nodes: unlockOrder(nodes[host]),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	addWaitingUnlock(t, c, host, unlockOrder(nodes[host]), made.ID)
	if d, err = start(t, c, io.Discard); err != nil {
		t.Fatal(err)
	}
	api = connect(t, c, d)
	task = phase(t, api, "unlock", unlock(host))
	wantDone(t, task)
	if ids := task.Clusters[0].Plans; len(ids) != 1 || ids[0].ID != made.ID {
		t.Errorf("it made other plans than %s: %+v", made.ID, ids)
	}
	if diff := cmp.Diff([]string{}, out(t, api)); diff != "" {
		t.Errorf("after the unlock: %s", diff)
	}
}

// pausedCordon starts a plan, and pauses it, so that it holds the cluster.
func pausedCordon(t *testing.T, api *client.Client, nodes ...string) string {
	t.Helper()
	other, err := api.MakePlan(t.Context(), "demo", plan.Request{
		Operation: plan.NodeCordon, Nodes: nodes,
	})
	if err == nil {
		_, err = api.StartPlan(t.Context(), other.ID, other.Hash)
	}
	if err == nil {
		_, err = api.PausePlan(t.Context(), other.ID, "to see what waits")
	}
	if err != nil {
		t.Fatal(err)
	}
	return other.ID
}

// changeTask changes the database of a director that does not run, with the record of the task "lock".
func changeTask(t *testing.T, c Config, change func(*store.Tx, director.PhaseTask) error) {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(c.StateDir, "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := db.PhaseTask(t.Context(), "lock")
	if err == nil {
		err = db.Update(t.Context(), func(tx *store.Tx) error { return change(tx, rec) })
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// forgetBegun leaves of the task "lock" what a director leaves that is killed behind its record.
func forgetBegun(t *testing.T, c Config) {
	t.Helper()
	changeTask(t, c, func(tx *store.Tx, rec director.PhaseTask) error {
		rec.State, rec.Message, rec.Hint = director.PhaseWaiting, "nothing was begun yet", ""
		for i := range rec.Parts {
			rec.Parts[i] = director.PhasePart{Cluster: rec.Parts[i].Cluster, State: director.PhaseWaiting}
		}
		return tx.PutPhaseTask(rec)
	})
}

// addWaitingUnlock adds what a director leaves that is killed between making a plan for a task and starting it.
func addWaitingUnlock(t *testing.T, c Config, host string, nodes []string, plan string) {
	t.Helper()
	changeTask(t, c, func(tx *store.Tx, rec director.PhaseTask) error {
		added, err := tx.AddPhaseTask(director.PhaseTask{
			ID: "unlock", Request: unlock(host), By: "admin", State: director.PhaseWaiting, Started: time.Now().UTC(),
			Parts: []director.PhasePart{
				{
					Cluster: "demo", Nodes: nodes, Plans: []string{plan},
					State: director.PhaseWaiting,
				},
			},
		})
		if err == nil && (!added || rec.ID == "") {
			t.Error("the task was not added")
		}
		return err
	})
}

// unlockOrder is the order in which nodes come back: masters first.
func unlockOrder(names []string) []string {
	names = slices.Clone(names)
	slices.Reverse(names)
	return names
}
