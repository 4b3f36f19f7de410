package daemon

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/operations"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// members is a cluster that has the nodes that playbooks have joined, at the versions that they have brought them to.
type members struct {
	simulate.Cluster
	mu   sync.Mutex
	runs map[string]string // version by node
	next string            // that nodes are brought to
}

// Play does what the playbook does to the membership of its nodes.
func (m *members) Play(_ context.Context, p ansible.Play) (ansible.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := strings.TrimSuffix(path.Base(p.Playbook), ".yml")
	for _, node := range p.Limit {
		switch {
		case name == "control_plane", name == "workers", name == "scale_out", strings.HasPrefix(name, "rejoin_"):
			m.runs[node] = m.next
		case strings.HasPrefix(name, "upgrade_") && m.runs[node] != "":
			m.runs[node] = m.next
		case strings.HasPrefix(name, "delete_"):
			delete(m.runs, node)
		}
	}
	return ansible.Result{}, nil
}

func (m *members) NodesReady(_ context.Context, names []string, version string) (out []kube.Absence, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range names {
		if got := m.runs[n]; got == "" || version != "" && got != version {
			return nil, director.Errorf(director.KindConflict, "members", "%s is not ready", n) // at once, rather than after minutes
		}
	}
	return nil, nil
}

func (m *members) Nodes(context.Context) ([]kube.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []kube.Node{}
	for _, name := range slices.Sorted(maps.Keys(m.runs)) {
		out = append(out, kube.Node{Name: name, Ready: true, Etcd: strings.Contains(name, "master"), Version: m.runs[name]})
	}
	return out, nil
}

// skipping is a director on a simulated hypervisor whose cluster has the members that its playbooks have made.
type skipping struct {
	*operations.Operations
	cluster *members
}

func openSkipping(t *testing.T) *skipping {
	t.Helper()
	c := simulating(t, threeHosts)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.ops.Engine.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &skipping{cluster: &members{runs: map[string]string{}, next: "v1.37.1"}}
	conf := d.ops.Config
	conf.Env.Player = s.cluster
	conf.Env.Connect = func([]byte) (steps.API, error) { return s.cluster, nil }
	handlers := steps.Handlers(conf.Env)
	handlers[planner.StepReleasePush] = plan.HandlerFunc(func(context.Context, plan.Run) error { return nil })
	conf.Engine, err = engine.New(t.Context(), engine.Config{
		Director: conf.Store.DirectorID(), Instance: "second", Store: engineStore{conf.Store}, Handlers: handlers, Log: conf.Log, Explain: explain, Current: operations.Current,
	})
	if err == nil {
		err = conf.Engine.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := conf.Engine.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	s.Operations = operations.New(conf)
	return s
}

// through runs the request's plan and has every step skipped that is of the kind (or class) and node, and all that fail without them.
func (s *skipping) through(t *testing.T, r plan.Request, skip func(plan.Step) bool) (skipped []string) {
	t.Helper()
	p, err := s.MakePlan(t.Context(), "admin", "demo", r)
	if err != nil {
		t.Fatal(err)
	}
	drop := func(step string) {
		t.Helper()
		if _, err := s.MovePlan(t.Context(), "admin", p.Plan.ID, api.Move{Verb: api.VerbSkip, Step: step, Reason: "a person knows better"}); err != nil {
			t.Fatal(err)
		}
		skipped = append(skipped, step)
	}
	for _, step := range p.Plan.Steps {
		if skip(step) && !step.Back() {
			drop(step.ID)
		}
	}
	if _, err := s.StartPlan(t.Context(), "admin", p.Plan.ID, p.Plan.Hash); err != nil {
		t.Fatal(err)
	}
	for range len(p.Plan.Steps) {
		v := ended(t, s.Operations, p.Plan.ID)
		if v.State.Phase == plan.PhaseDone {
			return skipped
		}
		moved := false
		for _, st := range v.State.Steps {
			if st.Status == plan.Failed || st.Status == plan.Parked {
				if strings.HasPrefix(st.ID, "cluster.forget/") {
					return skipped // it refuses, and says why
				}
				drop(st.ID)
				moved = true
			}
		}
		if !moved {
			t.Fatalf("the plan is %s: %s", v.State.Phase, v.State.Message)
		}
	}
	return skipped
}

// agrees compares the ledger with the hypervisor and with the cluster.
func (s *skipping) agrees(t *testing.T) {
	t.Helper()
	rows, err := s.Store.Machines(t.Context(), store.MachineFilter{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.VMs(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	vms := map[string]bool{}
	for _, item := range v.Items {
		if item.VM.ID != "" {
			vms[item.VM.Name] = true
		}
		if item.Owner != api.OwnerLedger {
			t.Errorf("VM %s is a %s", item.VM.Name, item.Owner)
		}
	}
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	var want, got []string
	for _, m := range rows {
		if !vms[m.Name] {
			// A node whose VM was never made is a member of a pretended cluster if its playbook ran: no VM, no member.
			delete(s.cluster.runs, m.Name)
		}
		want = append(want, fmt.Sprintf("%s runs %q", m.Name, s.cluster.runs[m.Name]))
		got = append(got, fmt.Sprintf("%s runs %q", m.Name, m.Kubernetes))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-cluster +ledger:\n%s", diff)
	}
	if doc, err := s.Document(t.Context(), demoRef); director.KindOf(err) == director.KindNotFound && err != nil && len(rows) > 0 {
		t.Errorf("the document is gone (%v), and %d machines are left", doc, len(rows))
	}
}

func (s *skipping) apply(t *testing.T, text string) {
	t.Helper()
	if _, err := s.Apply(t.Context(), "admin", []byte(text), "x", false); err != nil {
		t.Fatal(err)
	}
}

// A join that was skipped, because its node is to come later, makes no member of that node; the others are recorded.
func TestASkippedJoinIsNoMember(t *testing.T) {
	t.Parallel()
	s := openSkipping(t)
	s.through(t, plan.Request{}, func(step plan.Step) bool { return step.ID == "workers/demo-w-2" })
	s.agrees(t)
	if got := s.version(t, "demo-w-2"); got != "" {
		t.Errorf("the node without a join is recorded at %q", got)
	}
	if got := s.version(t, "demo-w-1"); got != "v1.37.1" {
		t.Errorf("the node with a join is recorded at %q", got)
	}
	s.through(t, plan.Request{}, func(plan.Step) bool { return false }) // the next plan brings it in
	if got := s.version(t, "demo-w-2"); got != "v1.37.1" {
		t.Errorf("the next plan leaves it at %q", got)
	}
	s.agrees(t)
}

func (s *skipping) version(t *testing.T, node string) string {
	t.Helper()
	rows, err := s.Store.Machines(t.Context(), store.MachineFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rows {
		if m.Name == node {
			return m.Kubernetes
		}
	}
	return "no row"
}

// A VM that was kept on purpose is neither surplus nor in the way of an upgrade, and comes back when the document asks for its node again.
func TestAKeptVMIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := openSkipping(t)
	none := func(plan.Step) bool { return false }
	s.through(t, plan.Request{}, none)
	cluster := threeHosts[strings.LastIndex(threeHosts, "apiVersion"):]
	fewer := strings.NewReplacer("count: 3}]", "count: 2}]")
	s.apply(t, fewer.Replace(cluster))
	s.through(t, plan.Request{Nodes: []string{"demo-w-2"}, KeepVM: true}, none)
	kept := func() director.Machine {
		t.Helper()
		rows, err := s.Store.Machines(t.Context(), store.MachineFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range rows {
			if m.Name == "demo-w-2" {
				return m
			}
		}
		t.Fatal("the kept VM is gone")
		return director.Machine{}
	}
	if m := kept(); m.KeptBy != "admin" || m.State != director.MachineDetached {
		t.Errorf("the ledger says %+v", m)
	}
	if p, err := s.MakePlan(t.Context(), "admin", "demo", plan.Request{}); err != nil || len(p.Plan.Steps) > 0 {
		t.Errorf("a plan of the unchanged document has the steps %v: %v", p.Plan.Steps, err)
	}
	s.cluster.next = "v1.37.2"
	s.apply(t, fewer.Replace(nextRelease()))
	s.through(t, plan.Request{}, none)
	if m := kept(); m.KeptBy != "admin" || m.Kubernetes != "" || s.version(t, "demo-w-1") != "v1.37.2" {
		t.Errorf("after an upgrade: %+v", m)
	}
	v, err := s.Nodes(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range v.Nodes {
		if n.Problem != "" || n.Name == "demo-w-2" && n.KeptBy != "admin" {
			t.Errorf("%s: %q, kept by %q", n.Name, n.Problem, n.KeptBy)
		}
	}
	s.apply(t, nextRelease())
	s.through(t, plan.Request{}, none)
	if m := kept(); m.KeptBy != "" || m.Kubernetes != "v1.37.2" {
		t.Errorf("it does not come back: %+v", m)
	}
	s.agrees(t)
	s.through(t, plan.Request{Operation: plan.NodeDelete, Nodes: []string{"demo-w-2"}, KeepVM: true}, none)
	s.apply(t, fewer.Replace(nextRelease()))
	if p, err := s.MakePlan(t.Context(), "admin", "demo", plan.Request{Nodes: []string{"demo-w-2"}}); err != nil || !slices.ContainsFunc(p.Plan.Steps, func(st plan.Step) bool { return st.ID == "vm.delete/demo-w-2" }) {
		t.Errorf("a person who names it cannot have it deleted: %v, %v", p.Plan.Steps, err)
	}
}
