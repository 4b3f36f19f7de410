package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// askHooks puts the steps that tell and ask hooks around those of their phases. It is the last word on a plan: the
// steps that it finds keep their order, and each comes after what is asked before it.
//
// A step that asks is of the same node and window as the one that it is for. Rollback steps are asked for nothing: a
// node that is neither here nor there waits for no one.
func (d *builder) askHooks() {
	if len(d.w.Hooks) == 0 || len(d.Steps) == 0 {
		return
	}
	a := asker{builder: d, steps: d.Steps}
	d.Steps = nil
	first := a.around(plan.Step{}, "before."+model.MomentPlan, d.Cluster, nil)
	for i := range a.steps {
		s := a.steps[i]
		if s.Back() {
			d.Steps = append(d.Steps, s)
			continue
		}
		if len(s.Needs) == 0 {
			s.Needs = first
		}
		before, after := a.moments(s)
		for _, m := range before {
			s.Needs = unique(append(a.around(s, "before."+m, subject(s), s.Needs), s.Needs...))
		}
		d.Steps = append(d.Steps, s)
		last := []string{s.ID}
		for _, m := range after {
			if asked := a.around(s, "after."+m, subject(s), last); len(asked) > 0 {
				last = asked
			}
		}
		if last[0] != s.ID {
			a.follow(i+1, s.ID, last)
		}
	}
	a.around(plan.Step{}, "after."+model.MomentPlan, d.Cluster, a.ends())
	a.undoAnswers()
}

// asker adds steps of hooks to a plan.
type asker struct {
	*builder
	steps []plan.Step // as they were before
}

// around adds a step for each hook of the phase, side by side, and returns their ids.
func (a *asker) around(of plan.Step, phase, about string, needs []string) []string {
	role, node := a.roleOf(about), ""
	if role != "" {
		node = about
	}
	var ids []string
	for _, doc := range a.w.Hooks {
		h := doc.Hook
		if !h.For(a.Cluster, role) || !slices.Contains(h.Phases, phase) {
			continue
		}
		p := step.HookParams{
			Hook: doc.Metadata.Name, Phase: phase, Mode: h.Mode, Node: node, Role: role, Cluster: a.w.Cluster.UID,
		}
		title := fmt.Sprintf("Tell Hook/%s: %s of %s", p.Hook, strings.ReplaceAll(phase, ".", " "), about)
		if h.Blocks() {
			p.Deadline, p.OnDeadline, p.OnRefuse = time.Duration(h.Deadline), h.OnDeadline, h.OnRefuse
			title = fmt.Sprintf(
				"Ask Hook/%s %s of %s, and wait for %s at most", p.Hook, strings.ReplaceAll(phase, ".", " "), about,
				h.Deadline,
			)
		}
		ids = append(ids, a.add(plan.Step{
			ID: step.HookID(phase, p.Hook, about), Kind: step.HookAsk, Title: title, Node: of.Node, Window: of.Window,
			Needs: needs, Params: encode(p), Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
		}))
	}
	return ids
}

// follow lets what needs the step wait for what is asked after it, too.
func (a *asker) follow(from int, id string, asked []string) {
	for i := from; i < len(a.steps); i++ {
		if s := &a.steps[i]; !s.Back() && slices.Contains(s.Needs, id) {
			s.Needs = unique(append(slices.Clone(s.Needs), asked...))
		}
	}
}

// ends returns the steps that nothing waits for.
func (a *asker) ends() []string {
	needed := map[string]bool{}
	for _, s := range a.Steps {
		for _, n := range s.Needs {
			needed[n] = needed[n] || !s.Back()
		}
	}
	var out []string
	for _, s := range a.Steps {
		if !s.Back() && !needed[s.ID] {
			out = append(out, s.ID)
		}
	}
	return out
}

// moments returns what begins with the step and what ends with it, in order.
func (a *asker) moments(s plan.Step) (before, after []string) {
	has := func(class string) bool {
		return slices.ContainsFunc(a.steps, func(o plan.Step) bool { return !o.Back() && o.ID == class+"/"+subject(s) })
	}
	var out []string
	switch s.Class() {
	case "cordon":
		out = []string{model.MomentLock}
	case "drain":
		out = []string{model.MomentLock, model.MomentDrain}
	case "delete":
		if out = []string{model.MomentDelete}; !has("drain") {
			out = []string{model.MomentLock, model.MomentDelete}
		}
	case step.VMDelete:
		if !has("delete") { // the cluster goes as a whole, or the VM never was a node
			out = []string{model.MomentDelete}
		}
	case "upgrade":
		out = []string{model.MomentUpgrade}
	case "join":
		if out = []string{model.MomentRejoin}; !has("uncordon") { // pods come as soon as it has joined
			return []string{model.MomentRejoin, model.MomentUnlock}, out
		}
	case step.NodeReady:
		if out = []string{model.MomentVerify}; has("join") && !has("uncordon") {
			return out, []string{model.MomentVerify, model.MomentUnlock}
		}
	case "verify":
		out = []string{model.MomentVerify}
	case "uncordon":
		out = []string{model.MomentUnlock}
	}
	back := slices.Clone(out)
	slices.Reverse(back)
	return out, back
}

// roleOf returns the role of the node, or "" for a cluster.
func (a *asker) roleOf(node string) string {
	for _, m := range a.Machines {
		if m.Name == node {
			return m.Role
		}
	}
	for _, m := range a.w.alive() {
		if m.Name == node {
			return string(m.Role)
		}
	}
	return ""
}

// subject returns the node or the cluster that the step is about.
func subject(s plan.Step) string {
	_, about, _ := strings.Cut(s.ID, "/")
	return about
}

// undoAnswers lets a refusal roll a node back as any failure between the same steps does: what undoes a step also
// undoes what is asked behind it, as long as the node is not through its gate.
func (a *asker) undoAnswers() {
	type group struct{ window, node string }
	undone, of := map[group]map[string]bool{}, map[string]group{}
	for _, s := range a.Steps {
		if key := (group{s.Window, s.Node}); s.Back() {
			if undone[key] == nil {
				undone[key] = map[string]bool{}
			}
			for _, u := range s.Undoes {
				undone[key][u] = true
			}
		}
	}
	before := map[string][]string{} // the steps of its own node that come before each, other than those of hooks
	for i := range a.Steps {
		s := &a.Steps[i]
		key := group{s.Window, s.Node}
		if s.Back() || undone[key] == nil {
			continue
		}
		for _, n := range s.Needs {
			if of[n] != key {
				continue
			}
			before[s.ID] = append(before[s.ID], before[n]...)
			if !step.IsHook(n) {
				before[s.ID] = append(before[s.ID], n)
			}
		}
		of[s.ID], before[s.ID] = key, unique(before[s.ID])
		if step.IsHook(s.ID) {
			a.undoAnswer(*s, before[s.ID], undone[key])
		}
	}
}

// undoAnswer lets what undoes one of the steps before that of the hook undo that one, too.
func (a *asker) undoAnswer(asks plan.Step, before []string, undone map[string]bool) {
	for _, b := range before {
		if !undone[b] {
			return // through its gate
		}
	}
	for i := range a.Steps {
		b := &a.Steps[i]
		undoes := func(s string) bool { return slices.Contains(b.Undoes, s) }
		if b.Back() && b.Window == asks.Window && b.Node == asks.Node && slices.ContainsFunc(before, undoes) {
			b.Undoes = append(slices.Clone(b.Undoes), asks.ID)
		}
	}
}
