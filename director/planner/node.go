package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Node returns the plan of a node operation for the nodes that r names, in the order in which it names them, one after
// the other. Errors: invalid for a request that fits no cluster, not_found for a node that is not there, conflict for
// one that the operation does not fit, or a master without which etcd would lose its quorum.
func Node(w World, r plan.Request) (plan.Content, error) {
	if err := w.checkNodeRequest(r); err != nil {
		return plan.Content{}, err
	}
	var err error
	if r.HostKeys, err = CheckHostKeys(r); err != nil {
		return plan.Content{}, err
	}
	d := w.draft(r.Operation)
	d.Request = r
	machines, err := w.named(r.Nodes)
	if err != nil {
		return plan.Content{}, err
	}
	if err := w.hosts().checkHosts(r, machines); err != nil {
		return plan.Content{}, err
	}
	if err := d.nodes(r, machines); err != nil {
		return plan.Content{}, err
	}
	if len(d.Steps) == 0 {
		return *d.Content, nil
	}
	for _, m := range machines {
		if next, moves := d.moved[m.Name]; moves {
			m = next
		}
		d.concerns(m)
	}
	var all []sized
	for _, m := range w.alive() {
		all = append(all, w.sized(m))
	}
	facts := w.facts(all)
	for _, name := range slices.Sorted(maps.Keys(d.moved)) {
		facts.Moves = append(facts.Moves, plan.SpecOf(d.moved[name].Machine))
	}
	d.Facts = encode(facts)
	return d.done(), nil
}

const opNode = "planner.node"

// checkNodeRequest refuses a request that no cluster could fulfil, and one on a cluster that is not installed.
func (w World) checkNodeRequest(r plan.Request) error {
	switch cluster := w.Cluster.Metadata.Name; {
	case len(r.Nodes) == 0:
		return invalid(opNode, string(r.Operation)+" names no node", "name one or more")
	case w.Installed == nil:
		return notInstalled(opNode, cluster)
	case len(r.AdoptDisks) > 0:
		return invalid(
			opNode, string(r.Operation)+" makes no new node that could take over a disk",
			"name the disk in a plan that adds the node: directorctl plan "+cluster,
		)
	}
	return nil
}

// named returns the machines with the names, in their order. Errors: invalid for a name that is there twice.
func (w World) named(names []string) ([]sized, error) {
	var machines []sized
	seen := map[string]bool{}
	for _, name := range names {
		m, err := w.machine(opNode, name)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, invalid(opNode, "node "+name+" is named twice", "name it once")
		}
		seen[name] = true
		machines = append(machines, w.sized(m))
	}
	return machines, nil
}

func (d *draft) nodes(r plan.Request, machines []sized) error {
	list := strings.Join(names(machines), ", ")
	var before []string
	out := map[string]bool{} // masters that the plan has taken out so far
	var back []sized         // masters that the plan has brought back so far
	elsewhere := map[string]sized{}
	if r.Operation == plan.NodeReplace {
		var err error
		if elsewhere, err = d.moves(r, machines); err != nil {
			return err
		}
	}
	for _, m := range machines {
		var last string
		var err error
		switch r.Operation {
		case plan.NodeCordon, plan.NodeUncordon:
			last, err = d.mark(r.Operation, m, before)
		case plan.NodeDrain:
			if err = d.wantMember(m); err == nil {
				last = d.drain(m, r.Drain, before, group{})
			}
		case plan.NodeDelete:
			last, err = d.leave(m, r, out, before)
		case plan.NodeRejoin:
			last, err = d.rejoinAgain(m, &back, before)
		case plan.NodeReplace:
			if next, moves := elsewhere[m.Name]; moves {
				last, err = d.move(m, next, r, out, before)
			} else {
				last, err = d.replace(m, r, out, before)
			}
		default:
			return invalid("planner.node", "there is no node operation "+string(r.Operation), "")
		}
		if err != nil {
			return err
		}
		if last != "" {
			before = []string{last}
		}
	}
	verb := map[plan.Operation]string{
		plan.NodeCordon: "Cordon", plan.NodeUncordon: "Uncordon", plan.NodeDrain: "Drain",
		plan.NodeDelete: "Take out of the cluster:",
		plan.NodeRejoin: "Bring back into the cluster:", plan.NodeReplace: "Recreate:",
	}[r.Operation]
	d.Summary = fmt.Sprintf("%s %s.", verb, list)
	if len(d.Steps) == 0 {
		d.Summary = fmt.Sprintf("%s: nothing is to be done.", list)
	}
	return nil
}

func (d *draft) wantMember(m sized) error {
	if m.Kubernetes == "" {
		return conflict("planner.node", fmt.Sprintf(
			"%s is not a node of the cluster now: its machine is %s", m.Name, m.State,
		),
			fmt.Sprintf("bring it back first: directorctl node rejoin %s %s", d.Cluster, m.Name))
	}
	return nil
}

// mark cordons or uncordons.
func (d *draft) mark(op plan.Operation, m sized, needs []string) (string, error) {
	if err := d.wantMember(m); err != nil {
		return "", err
	}
	if op == plan.NodeCordon {
		return d.play(playbook{
			name: "cordon", title: "Cordon " + m.Name, limit: []string{m.Name}, vars: d.cluster(m),
			estimate: 5 * time.Second,
			effects: []plan.Effect{
				{Verb: "change", Object: "api", Name: "node/" + m.Name, Detail: "takes no new pods"},
			},
		}, needs, group{}), nil
	}
	return d.uncordon(m, needs, group{}), nil
}

func (d *builder) uncordon(m sized, needs []string, in group) string {
	return d.play(playbook{
		name: "uncordon", title: "Uncordon " + m.Name, limit: []string{m.Name}, vars: d.cluster(m),
		estimate: 5 * time.Second,
		effects: []plan.Effect{
			{Verb: "change", Object: "api", Name: "node/" + m.Name, Detail: "takes new pods again"},
		},
	}, needs, in)
}

// cluster returns the variables of a run on node m that works on the cluster through a master.
func (d *builder) cluster(m sized) map[string]any {
	return map[string]any{"acting_master": d.acting(m.Name), "node_reachable": d.w.up(m.Name)}
}

// acting returns the master on which the work on the cluster is done while node is worked on: one that answers, and
// another one if there is any.
func (d *builder) acting(node string) string {
	up := func(name string) bool { return d.fresh[name] || d.w.up(name) }
	for _, m := range d.masters {
		if m.Name != node && up(m.Name) {
			return m.Name
		}
	}
	for _, m := range d.masters {
		if up(m.Name) {
			return m.Name
		}
	}
	if len(d.masters) > 0 {
		return d.masters[0].Name
	}
	return ""
}

// drain moves the pods of m away.
func (d *builder) drain(m sized, how plan.Drain, needs []string, in group) string {
	care := d.w.Cluster.Cluster.Maintenance
	timeout := cmp.Or(how.Timeout, time.Duration(care.DrainTimeout))
	vars := d.cluster(m)
	vars["drain_timeout_seconds"] = int(timeout.Seconds())
	vars[step.DrainUnmanaged] = how.Unmanaged || care.EvictUnmanaged
	vars[step.DrainLocalData] = how.DeleteEmptyDir || care.DeleteEmptyDir
	return d.play(playbook{
		name: "drain_" + string(m.Role), id: "drain", title: "Drain " + m.Name, limit: []string{m.Name}, vars: vars,
		estimate: 30 * time.Second,
		timeout:  timeout + 10*time.Minute,
		effects: []plan.Effect{
			{
				Verb: plan.VerbEvict, Object: "pod", Name: m.Name,
				Detail: "all but those of daemon sets and the control plane, as disruption budgets allow",
			},
		},
	}, needs, in)
}

// takeOut drains m and takes it out of the cluster. A node that does not answer is not drained: what ran there runs no
// more, or that is unknown. Neither is one of which a person has said so: a drain that fails would stop the plan before
// the deletion.
func (d *builder) takeOut(m sized, r plan.Request, needs []string, in group) string {
	up := d.w.up(m.Name)
	switch {
	case up && !r.Undrained:
		needs = []string{d.drain(m, r.Drain, needs, in)}
	case up:
		d.Approvals = append(
			d.Approvals,
			fmt.Sprintf("%s is taken out without a drain, as was asked for: what runs there ends at once", m.Name),
		)
	default:
		d.Approvals = append(
			d.Approvals, fmt.Sprintf("%s does not answer: its pods cannot be moved away, and are given up", m.Name),
		)
	}
	vars := d.cluster(m)
	vars["delete_undrained"] = r.Undrained || !up
	return d.play(playbook{
		name: "delete_" + string(m.Role), id: "delete", title: "Take " + m.Name + " out of the cluster",
		limit: []string{m.Name}, vars: vars, estimate: deleteTime,
		effects: []plan.Effect{{Verb: "delete", Object: "api", Name: "node/" + m.Name, Detail: outOf(m.Role)}},
	}, needs, in)
}

func outOf(r director.Role) string {
	if r == director.RoleMaster {
		return "with its etcd member"
	}
	return ""
}

// keeps reports whether VMs stay when their nodes leave.
func (d *builder) keeps() bool {
	return d.Request.KeepVM && (d.Operation == plan.NodeDelete || d.Operation == plan.ClusterScale)
}

// endpointWithout is where the cluster's API answers once m is gone.
func (d *builder) endpointWithout(m sized) string {
	var rest []sized
	for _, o := range d.masters {
		if o.Name != m.Name {
			rest = append(rest, d.w.sized(o))
		}
	}
	if rest == nil {
		return ""
	}
	return d.w.endpoint(rest)
}

// left records that m is no member any more.
func (d *builder) left(m sized, state director.MachineState, needs []string, in group) string {
	s := in.step(step.NodeLeft, m.Name, "Record that "+m.Name+" has left")
	s.Needs = needs
	s.Params = encode(step.NodeParams{
		UID: d.w.Cluster.UID, Cluster: d.Cluster, Endpoint: d.endpointWithout(m), Node: m.Name, Machine: m.ID,
		State: state, Keep: d.keeps(),
	})
	s.Attempts, s.Timeout, s.Estimate = 3, time.Minute, time.Second
	return d.add(s)
}

// ready waits until m is a node that is ready at the release's version, and records that.
func (d *builder) ready(m sized, masters []sized, image string, needs []string, in group) string {
	s := in.step(step.NodeReady, m.Name, "Wait until "+m.Name+" is ready")
	s.Needs = needs
	s.Params = encode(step.NodeParams{
		UID: d.w.Cluster.UID, Cluster: d.Cluster, Endpoint: d.w.endpoint(masters), Node: m.Name, Machine: m.ID,
		Version: d.w.Release.Release.Kubernetes, Image: image, State: director.MachinePresent,
	})
	s.Attempts, s.Timeout, s.Estimate = 3, 15*time.Minute, 30*time.Second
	return d.add(s)
}

// leave is node.delete: out of the cluster, and the VM away unless it is to stay.
func (d *draft) leave(m sized, r plan.Request, out map[string]bool, needs []string) (string, error) {
	if m.Kubernetes == "" && (r.KeepVM || m.State == director.MachineIntended) {
		return "", nil
	}
	last := ""
	if m.Kubernetes != "" {
		if err := d.quorum(m, out); err != nil {
			return "", err
		}
		last = d.takeOut(m, r, needs, group{})
		last = d.left(m, director.MachineDetached, []string{last}, group{})
	}
	if !r.KeepVM {
		d.Approvals = append(d.Approvals, "it destroys VM "+m.Name+" with its root disk")
		last = d.deleteVM(m, append([]string{last}, needs...), group{})
	}
	if m.Role == director.RoleMaster {
		last = d.forgetMaster(out, []string{last})
	}
	return last, nil
}

// forgetMaster has the balancers of the other masters forget those that are out.
func (d *draft) forgetMaster(out map[string]bool, needs []string) string {
	var stay, gone []sized
	for _, m := range d.masters {
		if out[m.Name] {
			gone = append(gone, d.w.sized(m))
		} else {
			stay = append(stay, d.w.sized(m))
		}
	}
	if !d.w.Cluster.Cluster.API.VIP.IsValid() {
		return needs[0]
	}
	return d.balance(stay, gone, needs)
}

// rejoinAgain is node.rejoin. The balancers of the other masters have forgotten a master that was out; they learn of it
// again.
func (d *draft) rejoinAgain(m sized, back *[]sized, needs []string) (string, error) {
	if err := d.w.upgrades().upgraded("planner.node"); err != nil {
		return "", err
	}
	last, err := d.join(m, true, needs, group{})
	if err != nil || m.Role != director.RoleMaster || m.Kubernetes != "" || !d.w.Cluster.Cluster.API.VIP.IsValid() {
		return last, err
	}
	*back = append(*back, m)
	masters := slices.Clone(*back)
	for _, o := range d.masters {
		masters = append(masters, d.w.sized(o))
	}
	slices.SortStableFunc(masters, func(a, b sized) int { return byPlace(a.Machine, b.Machine) })
	return d.balance(masters, nil, []string{last}), nil
}

// Behind returns the lowest version that a master runs and the one that the document wants if they differ, and ""
// otherwise: no node can join then before the masters are upgraded.
func (w World) Behind() (runs, wants string) {
	for _, m := range w.masters() {
		if runs == "" || older(m.Kubernetes, runs) {
			runs = m.Kubernetes
		}
	}
	if wants = w.Release.Release.Kubernetes; runs == wants {
		return "", ""
	}
	return runs, wants
}

// upgraded refuses a cluster of which an upgrade is left half way, or waits.
func (w worldUpgrades) upgraded(op string) error {
	runs, wants := w.Behind()
	if runs == "" {
		return nil
	}
	name := w.Cluster.Metadata.Name
	return conflict(
		op, fmt.Sprintf("cluster %s runs %s and its document wants %s", name, runs, wants),
		"finish the upgrade first: directorctl plan "+name,
	)
}

// halfUpgraded reports whether an upgrade has left the masters at several versions.
func (w worldUpgrades) halfUpgraded() bool {
	masters := w.masters()
	for _, m := range masters {
		if m.Kubernetes != masters[0].Kubernetes {
			return true
		}
	}
	return false
}

// join makes m a ready node: its VM, the preparation, the join itself. again also clears what an earlier membership of
// the same name has left.
func (d *draft) join(m sized, again bool, needs []string, in group) (string, error) {
	if err := d.w.hosts().onLostHost("planner.node", m.Machine); err != nil {
		return "", err
	}
	others := 0
	for _, o := range d.masters {
		if o.Name != m.Name {
			others++
		}
	}
	if m.Role == director.RoleMaster && others == 0 {
		return "", conflict("planner.node", m.Name+" is the only master: there is no cluster that it could join again",
			"restore the cluster from a backup of etcd, or delete it and create it again")
	}
	boot := d.boot(m, needs, in)
	name, title := "scale_out", "Join "+string(m.Role)+" "+m.Name
	if again {
		name, title = "rejoin_"+string(m.Role), "Bring "+m.Name+" back into the cluster"
	}
	joined := d.play(playbook{
		name: name, id: "join", title: title, limit: []string{m.Name},
		vars: map[string]any{"acting_master": d.acting(m.Name)}, estimate: joinTime,
		effects: []plan.Effect{{Verb: "create", Object: "api", Name: "node/" + m.Name}},
	}, []string{boot, d.consul().agentTokens()}, in)
	masters := []sized{}
	for _, o := range d.masters {
		masters = append(masters, d.w.sized(o))
	}
	image := d.w.image()
	if d.Request.HostKeys[m.Name] != "" {
		image = "" // only its maker knows
	}
	return d.ready(m, masters, image, []string{joined}, in), nil
}

// replace is node.replace: out, the VM recreated under the same name and addresses, and in again.
func (d *draft) replace(m sized, r plan.Request, out map[string]bool, needs []string) (string, error) {
	if m.Kubernetes != "" {
		if err := d.quorum(m, out); err != nil {
			return "", err
		}
		needs = []string{
			d.left(m, director.MachineDetached, []string{d.takeOut(m, r, needs, group{})}, group{}),
		}
	}
	d.Approvals = append(d.Approvals, "it recreates VM "+m.Name+": what is on its root disk is lost")
	last, err := d.join(m, true, []string{d.removeVM(m, needs, group{})}, group{})
	delete(out, m.Name) // it is back before the next one goes
	return last, err
}
