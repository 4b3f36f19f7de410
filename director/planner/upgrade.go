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

// upgradeDraft plan upgrades, and how workers that fail them are rolled back.
type upgradeDraft struct{ *draft }

// worldUpgrades say what an upgrade would do to the nodes of a world.
type worldUpgrades struct{ World }

func (w World) upgrades() worldUpgrades { return worldUpgrades{w} }

func (d *draft) upgrades() upgradeDraft { return upgradeDraft{d} }

// Upgrade returns the plan that brings every member to the document's release, and to its image where the strategy
// makes VMs from it: masters first and one by one, then workers in a window. It leaves alone what is there already, so
// planning again resumes an upgrade that stopped half way. It does not touch machines that are no members, such as
// nodes that were taken out for a time: they join at the new release afterwards. Errors: conflict for a downgrade, a
// skipped minor, or a cluster in the middle of the change of an authority.
func Upgrade(w World, r plan.Request) (plan.Content, error) {
	if err := w.upgrades().reachable(w.Release.Release.Kubernetes); err != nil {
		return plan.Content{}, err
	}
	if !w.upgrades().halfUpgraded() { // one that has begun is finished whatever else has
		if err := w.settled("planner.upgrade", ""); err != nil {
			return plan.Content{}, err
		}
	}
	u, err := newUpgrade(w, r)
	if err != nil {
		return plan.Content{}, err
	}
	needs, err := u.upgradeMasters(u.bringImages())
	if err != nil {
		return plan.Content{}, err
	}
	needs, err = u.upgradeWorkers(u.upgradeShared(needs))
	if err != nil {
		return plan.Content{}, err
	}
	u.record(needs)
	u.summarize()
	return u.d.done(), nil
}

// upgrade is the plan of an upgrade while it is written, member by member.
type upgrade struct {
	d          *draft
	request    plan.Request
	target     string  // version
	oldMasters []sized // that are to be upgraded
	oldWorkers []sized
	rollbacks  map[string]rollback // by the names of workers
	successors map[string]sized    // of members whose VM is replaced, by the members' names
	all        []sized             // members and successors
	masters    []sized             // as they are after the steps so far
	gone       []sized             // masters that a successor has replaced
	out        map[string]bool     // masters that are out of the cluster for a moment
}

func newUpgrade(w World, r plan.Request) (*upgrade, error) {
	u := &upgrade{
		d: w.draft(plan.ClusterUpgrade), request: r, target: w.Release.Release.Kubernetes, out: map[string]bool{},
	}
	u.d.Request = r
	old := w.upgrades().outdated()
	u.oldMasters = mastersOf(old)
	u.oldWorkers = old[len(u.oldMasters):]
	for _, m := range w.members() {
		u.all = append(u.all, w.sized(m))
	}
	u.masters = mastersOf(u.all)
	u.rollbacks = u.d.upgrades().rollbacks(u.oldWorkers)
	var err error
	u.successors, err = u.d.upgrades().successors(old)
	return u, err
}

// bringImages brings all that the members are made from to where they need it, before any of them is touched.
func (u *upgrade) bringImages() []string {
	images := []string{u.d.releasePush(), u.d.imageEnsure()}
	return append(images, u.d.upgrades().formerImages(u.oldWorkers, u.rollbacks)...)
}

// upgradeMasters upgrades the masters one after another.
func (u *upgrade) upgradeMasters(images []string) ([]string, error) {
	needs := images
	for _, m := range u.oldMasters {
		last, err := u.upgradeMaster(m, needs)
		if err != nil {
			return nil, err
		}
		needs = append(slices.Clone(images), last)
	}
	return needs, nil
}

// upgradeMaster upgrades one master. Where another VM replaces it, the balancers of the API follow.
func (u *upgrade) upgradeMaster(m sized, needs []string) (string, error) {
	last, err := u.upgradeMember(m, needs, group{})
	if err != nil {
		return "", err
	}
	successor, ok := u.successors[m.Name]
	if !ok {
		return last, nil
	}
	u.gone = append(u.gone, m)
	u.masters = append(
		slices.DeleteFunc(slices.Clone(u.masters), func(o sized) bool { return o.Name == m.Name }), successor,
	)
	u.d.upgrades().succeed(m, successor)
	if u.d.w.Cluster.Cluster.API.VIP.IsValid() {
		last = u.d.balance(u.masters, u.gone, []string{last})
	}
	return last, nil
}

// upgradeShared brings what all nodes share to the release, behind all masters. Nothing changes where it is there
// already. A former plan may have ended between the masters and this, so it depends on the workers as well whether the
// plan has it.
func (u *upgrade) upgradeShared(needs []string) []string {
	d := u.d
	if len(u.oldMasters) == 0 &&
		!slices.ContainsFunc(u.oldWorkers, func(m sized) bool { return m.Kubernetes != u.target }) {
		return needs
	}
	if n := len(u.masters); n > 0 && d.upgrades().strategy(u.masters[n-1]) != model.UpgradeInPlace {
		// kubeadm brings CoreDNS and kube-proxy to the release only when it upgrades a master, and these have joined.
		m := u.masters[n-1]
		needs = []string{d.play(playbook{
			name: "upgrade_master", id: "addons", title: "Bring CoreDNS and kube-proxy to the release",
			limit: []string{m.Name}, vars: map[string]any{"acting_master": m.Name}, estimate: time.Minute,
			effects: []plan.Effect{{Verb: "change", Object: "api", Name: "coredns, kube-proxy"}},
		}, needs, group{})}
	}
	return []string{d.play(playbook{
		name: "install/pod_network", id: "pod_network", subject: d.Cluster,
		title: "Bring the pod network to the release", estimate: time.Minute,
		effects: []plan.Effect{{Verb: "change", Object: "api", Name: d.w.Cluster.Cluster.Pods.Plugin}},
	}, needs, group{})}
}

// upgradeWorkers upgrades the workers in a window, and returns the last steps of all.
func (u *upgrade) upgradeWorkers(needs []string) ([]string, error) {
	if len(u.oldWorkers) > 0 {
		needs = []string{u.d.upgrades().traffic(u.masters, needs)}
	}
	in := group{window: u.d.window()}
	for i := range u.d.Windows {
		u.d.Windows[i].Goal = "run " + u.target
	}
	last := needs
	for _, m := range u.oldWorkers {
		done, err := u.upgradeMember(m, needs, in)
		if err != nil {
			return nil, err
		}
		last = append(slices.Clone(last), done)
	}
	return last, nil
}

// upgradeMember brings a member to the release by its strategy, and adds what rolls it back if it fails.
func (u *upgrade) upgradeMember(m sized, needs []string, in group) (string, error) {
	to, canRollBack := u.rollbacks[m.Name]
	if successor, ok := u.successors[m.Name]; ok {
		u.all = append(u.all, successor)
		return u.d.upgrades().swap(m, successor, u.request, canRollBack, needs, in)
	}
	first := len(u.d.Steps)
	last, err := u.upgradeByStrategy(m, needs, in)
	switch {
	case err != nil || !canRollBack:
	case to.snapshot:
		u.d.upgrades().revert(m, u.masters, first, in)
	default:
		u.d.upgrades().rollBack(m, u.masters, to, first, in)
	}
	return last, err
}

// upgradeByStrategy upgrades a member that keeps its name and its place: in place, or with a new root disk.
func (u *upgrade) upgradeByStrategy(m sized, needs []string, in group) (string, error) {
	if err := u.d.w.hosts().onLostHost("planner.upgrade", m.Machine); err != nil {
		return "", err
	}
	if u.d.upgrades().strategy(m) == model.UpgradeReconstitute {
		return u.reconstitute(m, needs, in)
	}
	return u.upgradeInPlace(m, needs, in)
}

// reconstitute takes the member out, makes its VM from the release's image, and joins it again.
func (u *upgrade) reconstitute(m sized, needs []string, in group) (string, error) {
	d := u.d
	if err := d.quorum(m, u.out); err != nil {
		return "", err
	}
	gone := d.left(m, director.MachineDetached, []string{d.takeOut(m, u.request, needs, in)}, in)
	last, err := d.join(m, true, []string{d.removeVM(m, []string{gone}, in)}, in)
	delete(u.out, m.Name)
	return last, err
}

// upgradeInPlace exchanges the member's programs on the VM that it has.
func (u *upgrade) upgradeInPlace(m sized, needs []string, in group) (string, error) {
	d := u.d
	if !d.w.up(m.Name) {
		return "", conflict(
			"planner.upgrade", m.Name+" is not ready, so it cannot be upgraded in place",
			fmt.Sprintf("repair it first: directorctl node replace %s %s", d.Cluster, m.Name),
		)
	}
	if err := d.quorumWithout(m); err != nil {
		return "", err
	}
	ready := d.drain(m, u.request.Drain, needs, in)
	bySnapshot := u.rollbacks[m.Name].snapshot
	if bySnapshot {
		ready = d.upgrades().snapshot(step.SnapshotTake, m, []string{ready}, in)
	}
	upgraded := d.play(playbook{
		name: "upgrade_" + string(m.Role), id: "upgrade", title: "Upgrade " + m.Name + " to " + u.target,
		limit: []string{m.Name}, vars: map[string]any{"acting_master": d.acting(m.Name)}, estimate: 3 * time.Minute,
		effects: []plan.Effect{
			{Verb: "change", Object: "file", Name: m.Name, Detail: "kubeadm, kubelet, kubectl"},
			{Verb: "restart", Object: "api", Name: "node/" + m.Name},
		},
	}, []string{ready}, in)
	ready = d.ready(m, u.masters, "", []string{upgraded}, in)
	last := d.uncordon(m, []string{ready}, in)
	if bySnapshot {
		last = d.upgrades().snapshot(step.SnapshotDelete, m, []string{last}, in)
	}
	return last, nil
}

// record checks the cluster after the last steps, and records what it consists of then.
func (u *upgrade) record(last []string) {
	d, w := u.d, u.d.w
	stay := slices.DeleteFunc(slices.Clone(u.all), func(m sized) bool {
		_, replaced := u.successors[m.Name]
		return replaced
	})
	verified := []string{d.verify(last...)}
	d.record(outerRegistries{w}.recordedIn(w.params().clusterParams(w.endpoint(u.masters), mastersFirst(stay))),
		d.consul().discover(newImage, d.tellRegistries(verified))...)
	facts := w.facts(mastersFirst(u.all))
	facts.Former = u.former()
	d.Facts = encode(facts)
}

// summarize says what the upgrade does, where it deviates from what was asked for, and what it destroys.
func (u *upgrade) summarize() {
	d, care := u.d, u.d.w.Cluster.Cluster.Maintenance
	d.Summary = fmt.Sprintf(
		"Upgrade cluster %s to Kubernetes %s, %s: %s and %s, workers %d at once.", d.Cluster, u.target,
		strings.ReplaceAll(care.Strategy, "_", " "), director.Count(len(u.oldMasters), "master"),
		director.Count(len(u.oldWorkers), "worker"), max(care.MaxUnavailable, 1),
	)
	if len(u.masters) == 1 && len(u.oldMasters) == 1 && care.Strategy != model.UpgradeInPlace {
		d.Warnings = append(
			d.Warnings,
			u.masters[0].Name+
				" is upgraded in place: it is the only master, and its VM cannot be recreated without losing etcd",
		)
	}
	old := slices.Concat(u.oldMasters, u.oldWorkers)
	d.concerns(old...)
	destroyed, emptied := 0, 0
	for _, m := range old {
		if successor, ok := u.successors[m.Name]; ok {
			d.concerns(successor)
			destroyed++
		} else if d.upgrades().strategy(m) == model.UpgradeReconstitute {
			emptied++
		}
	}
	if destroyed > 0 {
		d.Approvals = append(d.Approvals, fmt.Sprintf(
			"it destroys %s with their disks, each after its successor has joined", director.Count(destroyed, "VM"),
		))
	}
	if emptied > 0 {
		d.Approvals = append(d.Approvals, fmt.Sprintf(
			"it recreates %s: what is on their root disks is lost", director.Count(emptied, "VM"),
		))
	}
}

// former returns the releases that workers are rolled back to, by version.
func (u *upgrade) former() map[string]step.ReleaseFacts {
	former := map[string]step.ReleaseFacts{}
	for _, to := range u.rollbacks {
		if r := to.release; r.Kubernetes != u.target && !to.snapshot {
			former[r.Kubernetes] = step.ReleaseFacts{
				Bundle: r.Release.Bundle, Tags: r.Bundle.ImageTags, Digest: r.Bundle.Digest,
				Programs: r.Bundle.Programs,
			}
		}
	}
	if len(former) == 0 {
		return nil
	}
	return former
}

// traffic waits for the rollouts of kube-proxy and the pod network before workers are drained: a node whose kube-proxy
// is just being exchanged does not see the pods move. They go from node to node.
func (d upgradeDraft) traffic(masters []sized, needs []string) string {
	nodes := time.Duration(len(d.w.members()))
	return d.add(plan.Step{
		ID: step.KubeTraffic + "/" +
			d.Cluster, Kind: step.KubeTraffic, Title: "Wait until kube-proxy and the pod network are rolled out",
		Needs:  needs,
		Params: encode(d.w.params().clusterParams(d.w.endpoint(masters), nil)), Attempts: 3,
		Timeout: 10*time.Minute + nodes*time.Minute, Estimate: 10*time.Second + nodes*10*time.Second,
	})
}

// succeed makes later steps act through the successor, because m no longer exists by then.
func (d upgradeDraft) succeed(m, successor sized) {
	d.masters = append(
		slices.DeleteFunc(slices.Clone(d.masters), func(o director.Machine) bool { return o.Name == m.Name }),
		successor.Machine,
	)
	if d.fresh == nil {
		d.fresh = map[string]bool{}
	}
	d.fresh[successor.Name] = true
}

// outdated returns the members that do not run the document's release, or whose VM was made from another image where
// that matters. Members of a pool that the document does not have any more are left alone: they are to go.
func (w worldUpgrades) outdated() []sized {
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
func (w worldUpgrades) reachable(target string) error {
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
			"%s runs %s, and %s would skip %s", oldest.Name, oldest.Kubernetes, target,
			director.Count(step-1, "minor version"),
		), fmt.Sprintf("upgrade to v1.%d first", minor(oldest.Kubernetes)+1))
	}
	return nil
}

// strategy is how m is upgraded. The only master of a cluster is upgraded in place, since etcd lives on it alone,
// unless another one may come first.
func (d upgradeDraft) strategy(m sized) string {
	return d.w.upgrades().strategy(m.Machine, len(d.masters))
}

func (w worldUpgrades) strategy(m director.Machine, masters int) string {
	s := w.Cluster.Cluster.Maintenance.Strategy
	if m.Role == director.RoleMaster && masters == 1 &&
		(s != model.UpgradeReplace || !w.Cluster.Cluster.API.VIP.IsValid()) {
		return model.UpgradeInPlace
	}
	return cmp.Or(s, model.UpgradeInPlace)
}

// successors returns the machine that follows each of old where the strategy makes a new one first, by the old one's
// name.
func (d upgradeDraft) successors(old []sized) (map[string]sized, error) {
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
				fresh = append(fresh, allocator{d.w}.newMachine(p, n, serial, macs))
				break
			}
		}
	}
	if err := (allocator{d.w}).settle(fresh); err != nil {
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

// swap brings the successor of m into the cluster, and then takes m out. Both are one group of a window, with what
// rolls it back if canRollBack.
func (d upgradeDraft) swap(
	m, successor sized, r plan.Request, canRollBack bool, needs []string, in group,
) (string, error) {
	if err := d.quorumSwap(m); err != nil {
		return "", err
	}
	first := len(d.Steps)
	joined, err := d.join(successor, false, needs, in)
	if err != nil {
		return "", err
	}
	gone := d.left(m, director.MachineDetached, []string{d.takeOut(m, r, []string{joined}, in)}, in)
	last := d.deleteVM(m, []string{gone}, in)
	if canRollBack {
		d.rollBackSwap(m, successor, r, first, in)
	}
	for i := first; i < len(d.Steps) && in.window != ""; i++ {
		if d.Steps[i].Window != "" { // a network is everybody's
			d.Steps[i].Node = m.Name
		}
	}
	return last, nil
}
