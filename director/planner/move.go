package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

const opMove = "planner.move"

// HostsSeen is what is known of the provider's hosts when a plan is made.
type HostsSeen struct {
	Lost map[string]bool   // declared lost, also by the request
	Down map[string]string // that do not answer, with the reason; only looked at for a node that is to be replaced
	All  []string          // that the provider has, as its back end tells; only then
	// Alive are the nodes on lost hosts that show signs of life, with what was seen.
	Alive map[string]string
}

// worldHosts say what becomes of the machines on hosts that are lost or left.
type worldHosts struct{ World }

func (w World) hosts() worldHosts { return worldHosts{w} }

// open returns the provider's hosts that new VMs can go to; none where the hypervisor places them itself.
func (w worldHosts) open() []string {
	return slices.DeleteFunc(slices.Clone(
		w.Provider.Provider.HostNames(),
	), func(h string) bool { return w.Lost[h] || w.Down[h] != "" })
}

// lost reports whether the machine is on a host that was declared lost.
func (w worldHosts) lost(m director.Machine) bool { return m.Host != "" && w.Lost[m.Host] }

// checkHosts refuses a target or a lost host that does not fit the nodes.
func (w worldHosts) checkHosts(r plan.Request, machines []sized) error {
	var problems []director.Field
	add := func(path, hint, format string, args ...any) {
		problems = append(problems, director.Field{Path: path, Msg: fmt.Sprintf(format, args...), Hint: hint})
	}
	provider, all := w.Cluster.Cluster.Provider, w.Provider.Provider.HostNames()
	if len(all) == 0 {
		all = w.All
	}
	if (r.Host != "" || r.LostHost != "") && r.Operation != plan.NodeReplace {
		return invalid(
			opMove, "host and lost_host are for "+string(plan.NodeReplace)+", and not for "+string(r.Operation),
			"leave them out",
		)
	}
	if r.Host != "" {
		hint := "its hosts are " + strings.Join(all, ", ")
		switch {
		case !slices.Contains(all, r.Host):
			add("host", hint, "Provider/%s has no host %q", provider, r.Host)
		case w.Lost[r.Host]:
			add("host", "choose another host: "+strings.Join(w.open(), ", "), "host %s was declared lost", r.Host)
		case w.Down[r.Host] != "":
			add(
				"host", "choose another host: "+strings.Join(w.open(), ", "), "host %s does not answer: %s", r.Host,
				w.Down[r.Host],
			)
		}
	}
	for _, m := range machines {
		if r.Host != "" && m.Host == r.Host {
			add(
				"host", "leave the host out to recreate the VM where it is", "%s is on host %s already", m.Name,
				r.Host,
			)
		}
		if r.LostHost != "" && m.Host != r.LostHost {
			add(
				"lost_host", "name the nodes of one lost host alone", "%s is on host %q, and not on %s", m.Name, m.Host,
				r.LostHost,
			)
		}
		if why := w.Alive[m.Name]; why != "" {
			add(
				"lost_host",
				"switch the host off, or cut it off from the networks of the node, and plan again in a minute",
				"%s is alive: %s", m.Name, why,
			)
		}
	}
	if _, down := w.Down[r.LostHost]; r.LostHost != "" && !down && slices.Contains(all, r.LostHost) {
		add(
			"lost_host", "leave it out: the director deletes the VM itself before it makes another", "host %s answers",
			r.LostHost,
		)
	}
	return director.Invalid(opMove, "the nodes cannot be moved so", problems)
}

// moves returns what follows each of the machines on another host, by name; nothing for those that stay on theirs.
// Errors: conflict if a host does not answer and it was not declared lost, or if no host is left.
func (d *draft) moves(r plan.Request, machines []sized) (map[string]sized, error) {
	w := d.w
	serial := map[string]int{}
	for _, m := range w.Machines {
		serial[m.Name]++
	}
	var next []sized
	pending := map[string]bool{}
	macs := w.macs()
	for _, m := range machines {
		if why := w.Down[m.Host]; why != "" && !w.hosts().lost(m.Machine) {
			return nil, conflict(opMove, fmt.Sprintf(
				"host %s of %s does not answer, so it is unknown whether its VM runs: %s", m.Host, m.Name, why,
			),
				fmt.Sprintf(
					"bring the host back; or, if it is off or cut off for good, say so: directorctl node replace %s "+
						"%s --lost-host %s",
					d.Cluster, m.Name, m.Host,
				))
		}
		if r.Host == "" && !w.hosts().lost(m.Machine) {
			continue
		}
		p := pool{m.Role, m.Pool, 0, m.VMSize, m.persist, m.vm}
		n := allocator{w}.newMachine(p, number(m.Machine), serial, macs)
		if err := w.hosts().keepAddresses(m, &n); err != nil {
			return nil, err
		}
		pending[n.Name] = true
		next = append(next, n)
	}
	if err := (allocator{w}).address(next, pending); err != nil {
		return nil, err
	}
	if err := d.placeMoved(r, machines, next); err != nil {
		return nil, err
	}
	out := map[string]sized{}
	for _, n := range next {
		out[n.Name] = n
	}
	return out, nil
}

// keepAddresses gives next the addresses of m, whose VM is deleted before. The addresses of a VM that was given up are
// not given away: it may run, and two machines would have them. Conflict if the document gives it one.
func (w worldHosts) keepAddresses(m sized, next *sized) error {
	if !w.lost(m.Machine) {
		next.Address = m.On(next.Network)
		for i := range next.NICs {
			next.NICs[i].Address = m.On(next.NICs[i].Network)
		}
		return nil
	}
	for _, role := range append([]string{model.NICInternal}, rolesOf(next.Machine)...) {
		static := m.vm.Interface(role).Static(number(m.Machine))
		network := next.Network
		if i := slices.IndexFunc(next.NICs, func(n director.NIC) bool { return n.Role == role }); i >= 0 {
			network = next.NICs[i].Network
		}
		if static.IsValid() && static.String() == m.On(network) {
			return &director.Error{
				Kind: director.KindConflict, Op: opMove,
				Msg: fmt.Sprintf("the document gives %s to %s, and its lost VM may still have it", static, m.Name),
				Hint: "give the node another address in the document, or bring host " + m.Host +
					" back so that the VM can be deleted",
				Fields: []director.Field{
					{
						Path: allocator(w).field(m.Machine, role),
						Msg:  static.String() + " may be in use by the lost VM",
					},
				},
			}
		}
	}
	return nil
}

func rolesOf(m director.Machine) []string {
	var out []string
	for _, n := range m.NICs {
		out = append(out, n.Role)
	}
	return out
}

// placeMoved chooses the hosts of next, in place: the one that was asked for, or one as for a new node. Masters stay
// apart as far as there are hosts.
func (d *draft) placeMoved(r plan.Request, machines, next []sized) error {
	w := d.w
	load, masters := map[string]int{}, map[string]int{}
	for _, h := range w.hosts().open() {
		load[h] = w.Host[h]
	}
	for _, m := range w.alive() {
		if m.Role == director.RoleMaster && !slices.ContainsFunc(next, func(n sized) bool { return n.Name == m.Name }) {
			masters[m.Host]++
		}
	}
	for i := range next {
		n := &next[i]
		from := machines[slices.IndexFunc(machines, func(m sized) bool { return m.Name == n.Name })].Host
		choice := maps.Clone(load)
		delete(choice, from)
		if len(choice) == 0 && len(w.Provider.Provider.HostNames()) > 0 {
			return conflict(opMove, fmt.Sprintf(
				"Provider/%s has no other host that answers, so %s can go nowhere", w.Cluster.Cluster.Provider, n.Name,
			),
				"add a host to the provider, or bring one back")
		}
		if n.Role != director.RoleMaster {
			n.Host = cmp.Or(r.Host, leastLoaded(choice, nil))
		} else {
			best := leastLoaded(choice, masters)
			n.Host = cmp.Or(r.Host, best)
			if masters[n.Host] > masters[best] {
				return &director.Error{
					Kind: director.KindConflict, Op: opMove, Msg: fmt.Sprintf(
						"host %s has a master of cluster %s, and %s has %s", n.Host, d.Cluster, best,
						fewer(masters[best]),
					),
					Hint:   "name host " + best + ", or leave the host out",
					Fields: []director.Field{{Path: "host", Msg: "masters of a cluster stay apart"}},
				}
			}
			if masters[n.Host] > 0 {
				d.warn(
					fmt.Sprintf(
						"host %s has another master of the cluster: if it is lost, etcd may lose its quorum. Spread "+
							"the masters again when there is another host",
						n.Host,
					),
				)
			}
			masters[n.Host]++
		}
		load[n.Host]++
	}
	return nil
}

func fewer(n int) string {
	if n == 0 {
		return "none"
	}
	return "fewer"
}

// move is node.replace with another host: out of the cluster, the VM deleted or given up with its host, another one
// made, and in again.
func (d *draft) move(m, next sized, r plan.Request, out map[string]bool, needs []string) (string, error) {
	if m.Kubernetes != "" {
		if err := d.quorum(m, out); err != nil {
			return "", err
		}
		needs = []string{
			d.left(m, director.MachineDetached, []string{d.takeOut(m, r, needs, group{})}, group{}),
		}
	}
	if !d.w.hosts().lost(m.Machine) {
		d.Approvals = append(
			d.Approvals,
			fmt.Sprintf(
				"it recreates VM %s on host %s: what is on its root disk is lost", m.Name,
				cmp.Or(next.Host, "of the hypervisor's choice"),
			),
		)
	}
	gone := d.moveVM(m, next, needs)
	if d.moved == nil {
		d.moved = map[string]sized{}
	}
	d.moved[m.Name] = next
	for i := range d.masters {
		if d.masters[i].Name == m.Name {
			d.masters[i] = next.Machine
		}
	}
	last, err := d.join(next, true, []string{gone}, group{})
	delete(out, m.Name) // it is back before the next one goes
	if err != nil || m.Role != director.RoleMaster || next.Address == m.Address ||
		!d.w.Cluster.Cluster.API.VIP.IsValid() {
		return last, err
	}
	var masters []sized
	for _, o := range d.masters {
		masters = append(masters, d.w.sized(o))
	}
	return d.balance(masters, nil, []string{last}), nil
}

// moveVM deletes the VM of m, or gives it up with its host, and puts next in its place in the ledger.
func (d *draft) moveVM(m, next sized, needs []string) string {
	lost := d.w.hosts().lost(m.Machine)
	s := plan.Step{
		ID: step.VMMove + "/" + m.Name, Kind: step.VMMove, Node: m.Name, Needs: needs,
		Title: "Remove VM " + m.Name + " from host " + m.Host,
		Params: encode(step.MoveParams{
			VMParams: d.w.params().vmParams(m), Next: plan.SpecOf(next.Machine), Lost: lost,
		}),
		Attempts: 5, Timeout: 10 * time.Minute, Estimate: 5 * time.Second,
	}
	if lost {
		s.Title = "Give up VM " + m.Name + " with host " + m.Host
		s.Effects = append(s.Effects, d.giveUp(m)...)
	} else {
		s.Effects = append(s.Effects, plan.Effect{
			Verb: "delete", Object: "vm", Name: m.Name, Detail: "with its root disk, on " + m.Host,
		})
	}
	for _, n := range append([]director.NIC{{Network: m.Network, Address: m.Address}}, m.NICs...) {
		e := plan.Effect{Verb: "keep", Object: "address", Name: n.Address}
		if is := next.On(n.Network); is != n.Address {
			e.Detail = "by the lost VM; the node gets " + is
		}
		s.Effects = append(s.Effects, e)
	}
	for _, disk := range d.w.disks().dataDisks(m) {
		s.Effects = append(s.Effects, plan.Effect{
			Verb: "keep", Object: "volume", Name: m.Name + " data",
			Detail: disk.String() + ", where it is: the node begins with an empty one",
		})
		d.Approvals = append(
			d.Approvals,
			fmt.Sprintf(
				"the data disk of %s (%s) stays behind on host %s and is kept; the node begins with an empty one",
				m.Name, disk, m.Host,
			),
		)
	}
	return d.add(s)
}

// giveUp adds a person's word that the VM of m, on a lost host, never runs again with its identity.
func (d *builder) giveUp(m sized) []plan.Effect {
	vm := m.VMID
	if vm == "" {
		vm = "without an id"
	}
	d.Approvals = append(
		d.Approvals,
		fmt.Sprintf(
			"host %s is off, or cut off for good: its VM %s (%s) of node %s will never run again with this identity",
			m.Host, m.Name, vm, m.Name,
		),
	)
	if l := d.w.Provider.Provider.Libvirt; l != nil && l.Autostart {
		d.warn(
			fmt.Sprintf(
				"spec.libvirt.autostart starts VM %s when host %s boots; the director powers it off as soon as it "+
					"sees the host. Boot the host without its networks if you can",
				m.Name, m.Host,
			),
		)
	}
	return []plan.Effect{
		{
			Verb: "fence", Object: "vm", Name: m.Name,
			Detail: "given up with host " + m.Host + ": powered off if it is ever seen again, and never started",
		},
	}
}

// onLostHost refuses work on a machine whose host was declared lost.
func (w worldHosts) onLostHost(op string, m director.Machine) error {
	if !w.lost(m) {
		return nil
	}
	return conflict(
		op, fmt.Sprintf("%s is on host %s, which was declared lost", m.Name, m.Host),
		fmt.Sprintf("make it on another host: directorctl node replace %s %s", w.Cluster.Metadata.Name, m.Name),
	)
}
