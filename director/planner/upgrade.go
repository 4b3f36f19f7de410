package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Upgrade returns the plan that brings every member to the document's release, and to its image where the strategy
// makes VMs anew: masters first and one by one, then workers in a window. Members that are there already are left
// alone, so an upgrade that stopped half way is gone on with by planning again. Machines that are no members, such as
// nodes that were taken out for a time, are not touched: they join at the new release afterwards. Errors: conflict for
// a downgrade or a skipped minor.
func Upgrade(w World, r plan.Request) (plan.Content, error) {
	target := w.Release.Release.Kubernetes
	if err := w.reachable(target); err != nil {
		return plan.Content{}, err
	}
	d := w.draft(plan.ClusterUpgrade)
	d.Request = r
	old := w.outdated()
	oldMasters := mastersOf(old)
	workers := old[len(oldMasters):]
	u, err := d.upgrading(r, old, workers)
	if err != nil {
		return plan.Content{}, err
	}
	base := append([]string{d.releasePush(), d.imageEnsure()}, d.formerImages(workers, u.ways)...)
	before := base
	for _, m := range oldMasters {
		last, err := u.master(m, before)
		if err != nil {
			return plan.Content{}, err
		}
		before = append(slices.Clone(base), last)
	}
	// A plan that ended behind its masters may not have come to what all nodes share: the plan that goes on does.
	if len(oldMasters) > 0 || slices.ContainsFunc(workers, func(m sized) bool { return m.Kubernetes != target }) {
		before = d.shared(u.masters, before)
	}
	if len(workers) > 0 {
		before = []string{d.traffic(u.masters, before)}
	}
	last := before
	like := plan.Step{Window: d.window()}
	for i := range d.Windows {
		d.Windows[i].Goal = "run " + target
	}
	for _, m := range workers {
		done, err := u.renew(m, before, like)
		if err != nil {
			return plan.Content{}, err
		}
		last = append(slices.Clone(last), done)
	}
	stay := slices.DeleteFunc(slices.Clone(u.all), func(m sized) bool { _, goes := u.next[m.Name]; return goes })
	d.record(w.clusterParams(w.endpoint(u.masters), mastersFirst(stay)), d.verify(last...))
	u.say(target, old, oldMasters)
	facts := w.facts(mastersFirst(u.all))
	facts.Former = u.former(target)
	d.Facts = encode(facts)
	return d.done(), nil
}

// upgrading is an upgrade on its way from member to member.
type upgrading struct {
	d       *draft
	request plan.Request
	ways    map[string]way
	next    map[string]sized // the successors of members that go, by name
	all     []sized          // members and successors
	masters []sized          // as they are after the steps so far
	gone    []sized          // masters that have a successor
	out     map[string]bool
}

func (d *draft) upgrading(r plan.Request, old, workers []sized) (*upgrading, error) {
	u := &upgrading{d: d, request: r, out: map[string]bool{}}
	for _, m := range d.w.members() {
		u.all = append(u.all, d.w.sized(m))
	}
	u.masters = mastersOf(u.all)
	u.ways = d.ways(workers)
	var err error
	u.next, err = d.successors(old)
	return u, err
}

// renew brings a member to the release, or a successor in its place.
func (u *upgrading) renew(m sized, needs []string, like plan.Step) (string, error) {
	d, from := u.d, len(u.d.Steps)
	way, back := u.ways[m.Name]
	fresh, ok := u.next[m.Name]
	if !ok {
		last, err := d.renew(m, u.masters, u.request, u.out, needs, like)
		if err == nil && back {
			d.putBack(m, u.masters, way, from, like)
		}
		return last, err
	}
	u.all = append(u.all, fresh)
	return d.swap(m, fresh, u.request, back, needs, like)
}

// master is renew for a master, which the balancers follow.
func (u *upgrading) master(m sized, needs []string) (string, error) {
	last, err := u.renew(m, needs, plan.Step{})
	if err != nil {
		return "", err
	}
	fresh, ok := u.next[m.Name]
	if !ok {
		return last, nil
	}
	u.gone = append(u.gone, m)
	u.masters = append(
		slices.DeleteFunc(slices.Clone(u.masters), func(o sized) bool { return o.Name == m.Name }), fresh,
	)
	u.d.succeed(m, fresh)
	if u.d.w.Cluster.Cluster.API.VIP.IsValid() {
		last = u.d.balance(u.masters, u.gone, []string{last})
	}
	return last, nil
}

// say writes what the upgrade does, what it does otherwise than asked, and what it destroys.
func (u *upgrading) say(target string, old, oldMasters []sized) {
	d, w := u.d, u.d.w
	d.Summary = fmt.Sprintf("Upgrade cluster %s to Kubernetes %s, %s: %s and %s, workers %d at once.", d.Cluster,
		target,
		strings.ReplaceAll(w.Cluster.Cluster.Maintenance.Strategy, "_", " "), count(len(oldMasters), "master"),
		count(len(old)-len(oldMasters), "worker"),
		max(w.Cluster.Cluster.Maintenance.MaxUnavailable, 1))
	if len(u.masters) == 1 && len(oldMasters) == 1 && w.Cluster.Cluster.Maintenance.Strategy != model.UpgradeInPlace {
		d.Warnings = append(
			d.Warnings,
			u.masters[0].Name+
				" is upgraded in place: it is the only master, and its VM cannot be made anew without losing etcd",
		)
	}
	d.concerns(old...)
	var destroyed, anew []sized
	for _, m := range old {
		if fresh, ok := u.next[m.Name]; ok {
			d.concerns(fresh)
			destroyed = append(destroyed, m)
		} else if d.strategy(m) == model.UpgradeReconstitute {
			anew = append(anew, m)
		}
	}
	if n := len(destroyed); n > 0 {
		d.Approvals = append(
			d.Approvals,
			fmt.Sprintf("it destroys %s with their disks, each after its successor has joined", count(n, "VM")),
		)
	}
	if n := len(anew); n > 0 {
		d.Approvals = append(
			d.Approvals, fmt.Sprintf("it makes %s anew: what is on their root disks is lost", count(n, "VM")),
		)
	}
}

// former returns the releases that nodes go back to if their upgrade is undone.
func (u *upgrading) former(target string) map[string]step.ReleaseFacts {
	var former map[string]step.ReleaseFacts
	for _, way := range u.ways {
		if r := way.release; r.Kubernetes != target {
			if former == nil {
				former = map[string]step.ReleaseFacts{}
			}
			former[r.Kubernetes] = step.ReleaseFacts{
				Bundle: r.Release.Bundle, Tags: r.Bundle.ImageTags, Digest: r.Bundle.Digest,
				Programs: r.Bundle.Programs,
			}
		}
	}
	return former
}

// shared brings what all nodes share to the release, behind all masters, and returns what to wait for. Nothing changes
// where it is there already.
func (d *draft) shared(masters []sized, needs []string) []string {
	if n := len(masters); n > 0 && d.strategy(masters[n-1]) != model.UpgradeInPlace {
		// kubeadm brings CoreDNS and kube-proxy to the release only in an upgrade of a master, and these joined anew.
		m := masters[n-1]
		needs = []string{d.play(playbook{
			name: "upgrade_master", id: "addons", title: "Bring CoreDNS and kube-proxy to the release", limit: []string{
				m.Name,
			},
			vars: map[string]any{"acting_master": m.Name}, estimate: time.Minute,
			effects: []plan.Effect{{Verb: "change", Object: "api", Name: "coredns, kube-proxy"}},
		}, needs, plan.Step{})}
	}
	return []string{d.play(playbook{
		name: "install/pod_network", id: "pod_network", subject: d.Cluster,
		title: "Bring the pod network to the release", estimate: time.Minute,
		effects: []plan.Effect{{Verb: "change", Object: "api", Name: d.w.Cluster.Cluster.Pods.Plugin}},
	}, needs, plan.Step{})}
}

// traffic waits for the rollouts of kube-proxy and the pod network before workers are drained: a node whose kube-proxy
// is just being exchanged does not see the pods move. They go from node to node.
func (d *draft) traffic(masters []sized, needs []string) string {
	nodes := time.Duration(len(d.w.members()))
	return d.add(plan.Step{
		ID: step.KubeTraffic + "/" +
			d.Cluster, Kind: step.KubeTraffic, Title: "Wait until kube-proxy and the pod network are rolled out",
		Needs:  needs,
		Params: encode(d.w.clusterParams(d.w.endpoint(masters), nil)), Attempts: 3,
		Timeout: 10*time.Minute + nodes*time.Minute, Estimate: 10*time.Second + nodes*10*time.Second,
	})
}

// succeed has the rest of the plan work through fresh where it would through m: that is gone by then.
func (d *draft) succeed(m, fresh sized) {
	d.masters = append(
		slices.DeleteFunc(slices.Clone(d.masters), func(o director.Machine) bool { return o.Name == m.Name }),
		fresh.Machine,
	)
	if d.fresh == nil {
		d.fresh = map[string]bool{}
	}
	d.fresh[fresh.Name] = true
}

// outdated returns the members that do not run the document's release, or whose VM was made from another image where
// that matters. Members of a pool that the document does not have any more are left alone: they are to go.
func (w World) outdated() []sized {
	c, target := w.Cluster.Cluster, w.Release.Release.Kubernetes
	var out []sized
	masters := len(w.masters())
	for _, m := range w.members() {
		if m.Role == director.RoleWorker &&
			!slices.ContainsFunc(c.Workers, func(p model.WorkerPool) bool { return p.Name == m.Pool }) {
			continue
		}
		// A row from before images had their checksum in their names tells no more than the document.
		another := m.Image != w.image() && m.Image != c.Image
		if m.Kubernetes != target || (another && w.strategy(m, masters) != model.UpgradeInPlace) {
			out = append(out, w.sized(m))
		}
	}
	return out
}

// reachable refuses versions that members cannot go to: older ones, and those behind the next minor.
func (w World) reachable(target string) error {
	const op = "planner.upgrade"
	members := w.members()
	if len(members) == 0 {
		return conflict(op, "cluster "+w.Cluster.Metadata.Name+" has no members", "")
	}
	oldest := slices.MinFunc(members, func(a, b director.Machine) int {
		return cmp.Or(
			cmp.Compare(minor(a.Kubernetes), minor(b.Kubernetes)), strings.Compare(a.Kubernetes, b.Kubernetes),
		)
	})
	for _, m := range members {
		if older(target, m.Kubernetes) {
			return conflict(op, fmt.Sprintf(
				"%s runs %s, and Release/%s is %s: Kubernetes does not go back", m.Name, m.Kubernetes,
				w.Cluster.Cluster.Release, target,
			),
				"name a release of at least "+m.Kubernetes)
		}
	}
	if step := minor(target) - minor(oldest.Kubernetes); step > 1 {
		return conflict(op, fmt.Sprintf(
			"%s runs %s, and %s would skip %s", oldest.Name, oldest.Kubernetes, target, count(step-1, "minor version"),
		),
			fmt.Sprintf("upgrade to v1.%d first", minor(oldest.Kubernetes)+1))
	}
	return nil
}

// strategy is how m is upgraded. The only master of a cluster is upgraded in place, since etcd lives on it alone,
// unless another one may come first.
func (d *draft) strategy(m sized) string { return d.w.strategy(m.Machine, len(d.masters)) }

func (w World) strategy(m director.Machine, masters int) string {
	s := w.Cluster.Cluster.Maintenance.Strategy
	if m.Role == director.RoleMaster && masters == 1 &&
		(s != model.UpgradeReplace || !w.Cluster.Cluster.API.VIP.IsValid()) {
		return model.UpgradeInPlace
	}
	return cmp.Or(s, model.UpgradeInPlace)
}

// successors returns the machine that follows each of old where the strategy makes a new one first, by the old one's
// name.
func (d *draft) successors(old []sized) (map[string]sized, error) {
	taken := map[string]bool{}
	serial := map[string]int{}
	for _, m := range d.w.Machines {
		serial[m.Name]++
		taken[m.Name] = taken[m.Name] || m.Deleted.IsZero()
	}
	macs := d.w.macs()
	var fresh []sized
	for _, m := range old {
		if d.strategy(m) != model.UpgradeReplace {
			continue
		}
		p := pool{m.Role, m.Pool, 0, m.VMSize, m.persist, m.vm}
		for n := 1; ; n++ {
			if name := nodeName(d.w.Cluster.Metadata.Name, p.name, n); !taken[name] {
				taken[name] = true
				fresh = append(fresh, d.w.newMachine(p, n, serial, macs))
				break
			}
		}
	}
	if err := d.w.settle(fresh); err != nil {
		return nil, err
	}
	next := map[string]sized{}
	for _, m := range old {
		if d.strategy(m) == model.UpgradeReplace {
			next[m.Name], fresh = fresh[0], fresh[1:]
		}
	}
	return next, nil
}

// swap brings fresh into the cluster, and then takes m out. Both are one group of a window, with the way back if there
// is one.
func (d *draft) swap(m, fresh sized, r plan.Request, back bool, needs []string, like plan.Step) (string, error) {
	if err := d.quorumSwap(m); err != nil {
		return "", err
	}
	from := len(d.Steps)
	joined, err := d.join(fresh, false, needs, like)
	if err != nil {
		return "", err
	}
	gone := d.left(m, director.MachineDetached, []string{d.takeOut(m, r, []string{joined}, like)}, like)
	last := d.deleteVM(m, []string{gone}, like)
	if back {
		d.takeBack(m, fresh, r, from, like)
	}
	for i := from; i < len(d.Steps) && like.Window != ""; i++ {
		if d.Steps[i].Window != "" { // a network is everybody's
			d.Steps[i].Node = m.Name
		}
	}
	return last, nil
}

// renew brings one member to the release.
func (d *draft) renew(
	m sized, masters []sized, r plan.Request, out map[string]bool, needs []string, like plan.Step,
) (string, error) {
	if err := d.w.onLostHost("planner.upgrade", m.Machine); err != nil {
		return "", err
	}
	if d.strategy(m) == model.UpgradeReconstitute {
		if err := d.quorum(m, out); err != nil {
			return "", err
		}
		gone := d.left(m, director.MachineDetached, []string{d.takeOut(m, r, needs, like)}, like)
		last, err := d.join(m, true, []string{d.removeVM(m, []string{gone}, like)}, like)
		delete(out, m.Name)
		return last, err
	}
	if !d.w.up(m.Name) {
		return "", conflict(
			"planner.upgrade", m.Name+" is not ready, so it cannot be upgraded in place",
			fmt.Sprintf("repair it first: directorctl node replace %s %s", d.Cluster, m.Name),
		)
	}
	if err := d.quorumWithout(m); err != nil {
		return "", err
	}
	drained := d.drain(m, r.Drain, needs, like)
	upgraded := d.play(playbook{
		name: "upgrade_" + string(m.Role), id: "upgrade",
		title: "Upgrade " + m.Name + " to " + d.w.Release.Release.Kubernetes, limit: []string{m.Name},
		vars: map[string]any{"acting_master": d.acting(m.Name)}, estimate: 3 * time.Minute,
		effects: []plan.Effect{
			{Verb: "change", Object: "file", Name: m.Name, Detail: "kubeadm, kubelet, kubectl"},
			{Verb: "restart", Object: "api", Name: "node/" + m.Name},
		},
	}, []string{drained}, like)
	ready := d.ready(m, masters, "", []string{upgraded}, like)
	return d.uncordon(m, []string{ready}, like), nil
}
