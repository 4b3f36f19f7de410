package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Scale returns the plan that brings the numbers of nodes to the document's: first what is missing, then what is too
// many. Only nodes that come or go, and the balancers of masters, are touched. Of a pool that shrinks, the nodes that r
// names go first.
func Scale(w World, r plan.Request) (plan.Content, error) {
	const op = "planner.scale"
	diff, err := w.compare(r.Nodes)
	if err != nil {
		return plan.Content{}, err
	}
	for _, name := range r.Nodes {
		if !slices.Contains(names(diff.remove), name) {
			if _, err := w.machine(op, name); err != nil {
				return plan.Content{}, err
			}
			return plan.Content{}, conflict(
				op, name+" would stay: the document does not ask for fewer nodes of its pool",
				"lower the pool's count, or take the node out with: directorctl node delete",
			)
		}
	}
	if len(diff.add) > 0 {
		if err := w.settled(op, ""); err != nil {
			return plan.Content{}, err
		}
	}
	d := w.draft(plan.ClusterScale)
	d.Request = r
	masters := mastersOf(diff.all())
	joined, err := d.grow(diff.add)
	if err != nil {
		return plan.Content{}, err
	}
	left, err := d.shrink(diff, r, joined)
	if err != nil {
		return plan.Content{}, err
	}
	last := append(joined, left...)
	if w.Cluster.Cluster.API.VIP.IsValid() && len(mastersOf(diff.add))+len(mastersOf(diff.remove)) > 0 {
		last = append(last, d.balance(masters, mastersOf(diff.remove), last))
	}
	d.record(outerRegistries{w}.recordedIn(w.params().clusterParams(w.endpoint(masters), diff.all())),
		d.consul().discover(whatChanged, d.tellRegistries(last))...)
	var parts []string
	if n := len(diff.add); n > 0 {
		parts = append(parts, "add "+strings.Join(names(diff.add), ", "))
	}
	if n := len(diff.remove); n > 0 {
		parts = append(parts, "remove "+strings.Join(names(diff.remove), ", "))
	}
	d.Summary = fmt.Sprintf("Scale cluster %s to %s and %s: %s. etcd then survives the loss of %s.", d.Cluster,
		director.Count(len(masters), "master"), director.Count(len(diff.all())-len(masters), "worker"),
		strings.Join(parts, "; "), director.Count(losses(len(masters)), "master"))
	d.concerns(append(slices.Clone(diff.add), diff.remove...)...)
	d.Facts = encode(w.facts(diff.known()))
	return d.done(), nil
}

// grow joins machines: workers side by side, masters one by one.
func (d *draft) grow(add []sized) ([]string, error) {
	if len(add) == 0 {
		return nil, nil
	}
	base := []string{d.releasePush(), d.imageEnsure()}
	var joined, master []string
	for _, m := range add {
		needs := base
		if m.Role == director.RoleMaster {
			needs = append(slices.Clone(base), master...)
		}
		last, err := d.join(m, m.State != director.MachineIntended || d.w.Take[m.Name] != "", needs, group{})
		if err != nil {
			return nil, err
		}
		if m.Role == director.RoleMaster {
			master = []string{last}
		}
		joined = append(joined, last)
	}
	return joined, nil
}

// shrink takes machines out: workers in a window, masters one by one.
func (d *draft) shrink(r machineDiff, ask plan.Request, needs []string) ([]string, error) {
	if len(r.remove) == 0 {
		return nil, nil
	}
	if !ask.KeepVM {
		d.Approvals = append(
			d.Approvals,
			fmt.Sprintf(
				"it destroys %s with their root disks: %s", director.Count(len(r.remove), "VM"),
				strings.Join(names(r.remove), ", "),
			),
		)
	}
	window := d.window()
	out := map[string]bool{}
	var left []string
	master := needs
	for _, m := range r.remove {
		in, first := group{window: window}, needs
		if m.Role == director.RoleMaster {
			in, first = group{}, master
		}
		var last []string
		if m.Kubernetes != "" {
			if err := d.quorumWith(m, out, len(mastersOf(r.add))); err != nil {
				return nil, err
			}
			last = []string{d.left(m, director.MachineDetached, []string{d.takeOut(m, ask, first, in)}, in)}
		}
		if !ask.KeepVM {
			last = []string{d.deleteVM(m, append(last, first...), in)}
		}
		if m.Role == director.RoleMaster && len(last) > 0 {
			master = last
		}
		left = append(left, last...)
	}
	return left, nil
}

// window adds the window of workers to the plan and returns its id.
func (d *draft) window() string { return d.windowOf("workers") }

// windowOf is window for a plan that comes to each worker more than once.
func (d *draft) windowOf(id string) string {
	care := d.w.Cluster.Cluster.Maintenance
	if !slices.ContainsFunc(d.Windows, func(w plan.Window) bool { return w.ID == id }) {
		d.Windows = append(d.Windows, plan.Window{ID: id, Size: max(care.MaxUnavailable, 1), PerHost: care.PerHost})
	}
	return id
}
