package daemon

import (
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/vms"
)

// members is a cluster that has the nodes that playbooks have joined, at the versions that they have brought them to.
type members struct {
	simulate.Cluster
	mu   sync.Mutex
	runs map[string]member
	vms  func(context.Context) (map[string]string, error) // the ids of the nodes' VMs
}

// member is what a playbook left on a VM.
type member struct{ version, vm string }

// versions returns what the nodes run. A node whose VM is another one since it joined, or none, runs nothing.
func (m *members) versions(ctx context.Context) (map[string]string, error) {
	vms, err := m.vms(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]string{}
	for name, is := range m.runs {
		if is.vm != "" && is.vm == vms[name] {
			out[name] = is.version
		}
	}
	return out, nil
}

var inventoryVersion = regexp.MustCompile(`(?m)^kubernetes_version: "?([^"\n]+)"?$`)

// Play does what the playbook does to the membership of its nodes.
func (m *members) Play(ctx context.Context, p ansible.Play) (ansible.Result, error) {
	found := inventoryVersion.FindSubmatch(p.Inventory["group_vars/all.yml"])
	if found == nil {
		return ansible.Result{}, errors.New("the inventory names no version")
	}
	vms, err := m.vms(ctx)
	if err != nil {
		return ansible.Result{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name := strings.TrimSuffix(path.Base(p.Playbook), ".yml")
	for _, node := range p.Limit {
		is := member{string(found[1]), vms[node]}
		switch {
		case name == "control_plane", name == "workers", name == "scale_out", strings.HasPrefix(name, "rejoin_"):
			m.runs[node] = is
		case strings.HasPrefix(name, "upgrade_") && m.runs[node].vm == is.vm:
			m.runs[node] = is
		case strings.HasPrefix(name, "delete_"):
			delete(m.runs, node)
		}
	}
	return ansible.Result{}, nil
}

func (m *members) NodesReady(ctx context.Context, names []string, version string) ([]kube.Absence, error) {
	runs, err := m.versions(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if got := runs[n]; got == "" || version != "" && got != version {
			// At once, rather than after minutes.
			return nil, director.Errorf(director.KindConflict, "members", "%s is not ready", n)
		}
	}
	return nil, nil
}

func (m *members) Nodes(ctx context.Context) ([]kube.Node, error) {
	runs, err := m.versions(ctx)
	out := []kube.Node{}
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		out = append(out, kube.Node{
			Name: name, Ready: true, Etcd: strings.Contains(name, "master"), Version: runs[name],
		})
	}
	return out, err
}

// skipping is a director on a simulated hypervisor whose cluster has the members that its playbooks have made.
type skipping struct {
	services
	docs    *documents.Service
	cluster *members
}

func openSkipping(t *testing.T) *skipping {
	t.Helper()
	c := simulating(t, threeHosts)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.services.engine.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := d.services.parts
	s := &skipping{docs: d.docs, cluster: &members{runs: map[string]member{}, vms: func(
		ctx context.Context,
	) (map[string]string, error) {
		rows, err := p.db.Machines(ctx, store.MachineFilter{})
		out := map[string]string{}
		for _, m := range rows {
			out[m.Name] = m.VMID
		}
		return out, err
	}}}
	p.env.Player = s.cluster
	p.env.Connect = func([]byte) (steps.API, error) { return s.cluster, nil }
	handlers := steps.Handlers(p.env)
	handlers[step.ReleasePush] = plan.HandlerFunc(func(context.Context, plan.Run) error { return nil })
	p.engine, err = engine.New(t.Context(), engine.Config{
		Director: p.db.DirectorID(), Instance: "second", Store: engineStore{p.db}, Handlers: handlers,
		Log: p.log, Explain: explain, Current: planning.Current,
	})
	if err == nil {
		err = p.engine.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := p.engine.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	s.services = newServices(p)
	return s
}

// through runs the request's plan to its end, and has every step skipped that skip says, and all that fail without
// them. It returns what was skipped, and what a person was not allowed to skip.
func (s *skipping) through(t *testing.T, r plan.Request, skip func(plan.Step) bool) (skipped, refused []string) {
	t.Helper()
	p, err := s.planning.MakePlan(t.Context(), "admin", "demo", r)
	if err != nil {
		t.Fatal(err)
	}
	drop := func(step string) {
		t.Helper()
		_, err := s.planning.MovePlan(t.Context(), "admin", p.Plan.ID, planning.Move{
			Verb: planning.VerbSkip, Step: step, Reason: "a person knows better",
		})
		switch {
		case err == nil:
			skipped = append(skipped, step)
		case director.KindOf(err) == director.KindConflict && director.HintOf(err) != "":
			refused = append(refused, step)
		default:
			t.Fatal(err)
		}
	}
	for _, step := range p.Plan.Steps {
		if skip(step) && !step.Back() {
			drop(step.ID)
		}
	}
	if _, err := s.planning.StartPlan(t.Context(), "admin", p.Plan.ID, p.Plan.Hash); err != nil {
		t.Fatal(err)
	}
	for range len(p.Plan.Steps) {
		v := ended(t, s.services, p.Plan.ID)
		if v.State.Status == plan.StatusDone {
			break
		}
		before := len(skipped)
		for _, st := range v.State.Steps {
			if (st.Status == plan.Failed || st.Status == plan.Parked) && !strings.HasPrefix(st.ID, "cluster.forget/") {
				drop(st.ID)
			}
		}
		if len(skipped) == before {
			break // it goes no further, and says why
		}
	}
	return skipped, refused
}

// differences compares the ledger with the hypervisor and with the cluster. It returns the nodes that the ledger says
// less of than there is, and fails the test for everything that the ledger makes up.
func (s *skipping) differences(t *testing.T) (unsaid []string) {
	t.Helper()
	rows, err := s.db.Machines(t.Context(), store.MachineFilter{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.vms.List(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]string{}
	for _, item := range v.Items {
		if item.VM.ID != "" {
			there[item.VM.Name] = string(item.VM.ID)
		}
		if item.Owner != vms.OwnerLedger {
			t.Errorf("VM %s is a %s", item.VM.Name, item.Owner)
		}
	}
	runs, err := s.cluster.versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rows {
		if m.VMID != there[m.Name] {
			t.Errorf("%s: the ledger says VM %q, the hypervisor %q", m.Name, m.VMID, there[m.Name])
		}
		switch m.Kubernetes {
		case runs[m.Name]:
		case "":
			unsaid = append(unsaid, m.Name)
		default:
			t.Errorf("%s: the ledger says version %q, the cluster %q", m.Name, m.Kubernetes, runs[m.Name])
		}
	}
	if _, err := s.db.Document(t.Context(), demoRef); director.KindOf(err) == director.KindNotFound && len(rows) > 0 {
		t.Errorf("the document is gone, and %d machines are left", len(rows))
	}
	return unsaid
}

// agrees fails unless the ledger says what is.
func (s *skipping) agrees(t *testing.T) {
	t.Helper()
	if unsaid := s.differences(t); len(unsaid) > 0 {
		t.Errorf("the ledger does not say that these are members: %v", unsaid)
	}
}

func (s *skipping) apply(t *testing.T, text string) {
	t.Helper()
	if _, err := s.docs.Apply(t.Context(), "admin", []byte(text), "x", false); err != nil {
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
	rows, err := s.db.Machines(t.Context(), store.MachineFilter{})
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

// A VM that was kept on purpose is neither surplus nor in the way of an upgrade, and comes back when the document asks
// for its node again.
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
		rows, err := s.db.Machines(t.Context(), store.MachineFilter{})
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
	if p, err := s.planning.MakePlan(t.Context(), "admin", "demo", plan.Request{}); err != nil ||
		len(p.Plan.Steps) > 0 {
		t.Errorf("a plan of the unchanged document has the steps %v: %v", p.Plan.Steps, err)
	}
	s.apply(t, fewer.Replace(nextRelease()))
	s.through(t, plan.Request{}, none)
	if m := kept(); m.KeptBy != "admin" || m.Kubernetes != "" || s.version(t, "demo-w-1") != "v1.37.2" {
		t.Errorf("after an upgrade: %+v", m)
	}
	v, err := s.nodes.Nodes(t.Context(), "demo")
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
	if p, err := s.planning.MakePlan(t.Context(), "admin", "demo", plan.Request{
		Nodes: []string{"demo-w-2"},
	}); err != nil ||
		!slices.ContainsFunc(p.Plan.Steps, func(st plan.Step) bool { return st.ID == "vm.delete/demo-w-2" }) {
		t.Errorf("a person who names it cannot have it deleted: %v, %v", p.Plan.Steps, err)
	}
}
