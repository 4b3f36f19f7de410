package planner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// draft is a plan that is being written. Its methods write what operations consist of.
type draft struct{ *builder }

// builder adds steps to a plan.
type builder struct {
	*plan.Content
	w       World
	masters []director.Machine // members; a master that the plan replaces gives way to its successor
	fresh   map[string]bool    // names of the masters that the plan has brought in
	moved   map[string]sized   // what has followed nodes on other hosts so far, by name
}

// worldParams writes the parameters of steps.
type worldParams struct{ World }

func (w World) params() worldParams { return worldParams{w} }

// in returns a draft of the same plan whose steps are about another world, such as that of a former release.
func (d *builder) in(w World) *builder {
	other := *d
	other.w = w
	return &other
}

// group is what the steps have in common that one builder of this package adds for another.
type group struct {
	window string   // id of the window that they belong to; empty outside of windows
	undoes []string // ids of the steps that they undo; empty for steps that undo none
}

// rollsBack reports whether the steps of the group run only to undo others.
func (g group) rollsBack() bool { return len(g.undoes) > 0 }

// step returns the step of the group that is of the kind and works on the node.
func (g group) step(kind, node, title string) plan.Step {
	return plan.Step{
		ID: kind + "/" + node, Kind: kind, Node: node, Title: title, Window: g.window, Undoes: g.undoes,
	}
}

func (w World) draft(op plan.Operation) *draft {
	return &draft{&builder{
		w: w, masters: w.masters(),
		Content: &plan.Content{
			Format: plan.Plain, DirectorVersion: w.Director.Version, Operation: op, Cluster: w.Cluster.Metadata.Name,
			Playbooks: w.Director.Playbooks, Models: w.refs(),
		},
	}}
}

// concerns names machines that the plan makes, works on or takes away.
func (d *builder) concerns(machines ...sized) {
	for _, m := range machines {
		d.Machines = append(d.Machines, planMachine(m.Machine))
	}
}

// done returns the finished content. A step whose class has run before gets the time that it took as its estimate.
func (d *builder) done() plan.Content {
	d.backupFirst()
	d.askHooks()
	for i := range d.Steps {
		if took, known := d.w.Times[d.Steps[i].Class()]; known {
			d.Steps[i].Estimate = took.Round(time.Millisecond)
		}
	}
	d.Estimate = plan.CriticalPath(d.Steps)
	records := func(s plan.Step) bool { return s.Kind == step.ClusterReady }
	if in := d.w.Installed; in != nil && slices.ContainsFunc(d.Steps, records) {
		d.Before = &plan.Former{Generation: in.Generation, Labels: in.Labels, Spec: encode(in.Cluster)}
	}
	return *d.Content
}

func (d *builder) add(s plan.Step) string {
	s.Needs = unique(s.Needs)
	if s.Back() {
		class, subject, _ := strings.Cut(s.ID, "/")
		s.ID = plan.UndoID(class, subject)
	}
	s.Safety = safetyOf(d.Operation, d.Request.Certificates.Cold, s)
	d.Steps = append(d.Steps, s)
	return s.ID
}

// playbook is a run of one.
type playbook struct {
	name     string // path in the tree without .yml
	id       string // first part of the step's id; the name if empty
	subject  string // second part of the step's id; the only node of limit if empty
	title    string
	limit    []string
	without  []string
	vars     map[string]any
	effects  []plan.Effect
	estimate time.Duration
	timeout  time.Duration // 30 minutes if 0
	// kubernetes is the version of the release that the inventory is of; the plan's own if empty.
	kubernetes string
}

// How long plays take that several operations have, before any was measured.
const (
	joinTime   = 90 * time.Second
	deleteTime = 30 * time.Second
)

// play adds the run of a playbook to the group, and returns the step's id. So do the other builders of one step.
func (d *builder) play(p playbook, needs []string, in group) string {
	node := ""
	if len(p.limit) == 1 {
		node = p.limit[0]
	}
	s := in.step(step.Play, node, p.title)
	s.ID = cmp.Or(p.id, p.name) + "/" + cmp.Or(p.subject, node)
	s.Needs, s.Effects = needs, p.effects
	s.Params = encode(step.PlayParams{
		Playbook: p.name + ".yml", Limit: p.limit, Without: p.without, Vars: p.vars, Kubernetes: p.kubernetes,
		Moved: slices.Sorted(maps.Keys(d.moved)),
	})
	s.Attempts, s.Timeout, s.Estimate = 3, cmp.Or(p.timeout, 30*time.Minute), p.estimate
	return d.add(s)
}

func (d *builder) releasePush() string {
	w, c := d.w, d.w.Cluster.Cluster
	return d.add(plan.Step{
		ID: step.ReleasePush + "/" + c.Release, Kind: step.ReleasePush,
		Title: "Bring the images of " + c.Release + " into the registry",
		Params: encode(step.ReleaseParams{
			Name: c.Release, Bundle: w.Release.Release.Bundle, Digest: w.Bundle.Digest,
			Unsigned: w.Release.Release.Unsigned,
		}),
		Effects: []plan.Effect{
			{
				Verb: "create", Object: "registry", Name: w.Director.Registry,
				Detail: strconv.Itoa(len(w.Bundle.ImageTags)) + " images, unless they are there",
			},
		},
		Attempts: 5, Timeout: 15 * time.Minute, Estimate: 15 * time.Second,
	})
}

func (d *builder) imageEnsure() string {
	c := d.w.Cluster.Cluster
	document := c.Image
	if d.w.ofDirector() { // it has no document of its own
		document = ""
	}
	return d.add(plan.Step{
		ID: step.ImageEnsure + "/" + c.Image, Kind: step.ImageEnsure,
		Title: "Bring image " + c.Image + " to provider " + c.Provider,
		Params: encode(step.ImageParams{
			Provider: c.Provider, Name: d.w.image(), Document: document, Image: *d.w.Image.Image,
		}),
		Effects:  []plan.Effect{{Verb: "create", Object: "image", Name: c.Image, Detail: "unless it is there"}},
		Attempts: 5, Timeout: 30 * time.Minute, Estimate: 15 * time.Second,
	})
}

// boot makes the VM of m, or switches it on if it is there, and waits until it is up.
func (d *builder) boot(m sized, needs []string, in group) string {
	vm := d.w.params().vmParams(m)
	if !in.rollsBack() {
		vm.TakeDisk = d.w.Take[m.Name]
		d.offer(m)
	}
	params := encode(vm)
	if key := d.Request.HostKeys[m.Name]; key != "" {
		needs = []string{d.adopt(m, key, needs, in)}
	} else {
		if !in.rollsBack() { // a worker that is rolled back was on its networks before
			needs = append(slices.Clone(needs), d.underlays(m)...)
		}
		needs = []string{d.ensure(m, params, needs, in)}
	}
	return d.booted(m, params, needs, in)
}

// booted waits until the VM of m is up.
func (d *builder) booted(m sized, params json.RawMessage, needs []string, in group) string {
	boot := in.step(step.VMBoot, m.Name, "Wait for "+m.Name+" to boot")
	boot.Needs, boot.Params = needs, params
	boot.Attempts, boot.Timeout, boot.Estimate = 2, 10*time.Minute+time.Duration(m.vm.Budget()), time.Minute
	return d.add(boot)
}

// underlays makes the networks of m's further adapters, each once in the plan.
func (d *builder) underlays(m sized) []string {
	var ids []string
	for _, n := range m.NICs {
		u, known := d.w.Underlays[n.Network]
		if !known {
			continue
		}
		id := step.NetworkEnsure + "/" + n.Network
		if !slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return s.ID == id }) {
			d.add(networkStep(step.NetworkEnsure, "Make network ", n.Network, u.Stored, plan.Effect{
				Verb: "create", Object: "network", Name: n.Network,
				Detail: u.Network.Mode + " " + u.Network.CIDR.String(),
			}))
		}
		ids = append(ids, id)
	}
	return ids
}

func networkStep(kind, title, name string, doc model.Stored, effect plan.Effect) plan.Step {
	return plan.Step{
		ID: kind + "/" + name, Kind: kind, Title: title + name,
		Params: encode(step.NetworkParams{
			Provider: doc.Network.Provider, Name: name, UID: doc.UID, Network: *doc.Network,
		}),
		Effects: []plan.Effect{effect}, Attempts: 5, Timeout: 2 * time.Minute, Estimate: 2 * time.Second,
	}
}

func (d *builder) ensure(m sized, params json.RawMessage, needs []string, in group) string {
	ensure := in.step(step.VMEnsure, m.Name, "Make VM "+m.Name)
	ensure.Needs, ensure.Params, ensure.Effects, ensure.Budgets = needs, params, vmEffects(m, "create"),
		clones(m.Provider, m.Host)
	if disk := d.w.Take[m.Name]; disk != "" && !in.rollsBack() {
		for i := range ensure.Effects {
			if e := &ensure.Effects[i]; e.Object == "volume" {
				e.Verb, e.Detail = "change", disk+", taken over with everything on it"
			}
		}
	}
	ensure.Attempts, ensure.Timeout, ensure.Estimate = 5, 10*time.Minute, 4*time.Second
	// What an undo would delete with its data disk was a node before this plan, or is a voice in etcd.
	_, moved := d.moved[m.Name]
	ensure.Keep = d.w.Installed != nil && !ensure.Back() &&
		(moved || m.Role == director.RoleMaster ||
			slices.ContainsFunc(d.w.Machines, func(o director.Machine) bool { return o.ID == m.ID }))
	return d.add(ensure)
}

// adopt takes over the VM that others make for m, which proves itself with the host key.
func (d *builder) adopt(m sized, key string, needs []string, in group) string {
	d.Approvals = append(d.Approvals, fmt.Sprintf("it takes the VM named %s made by others for this "+
		"node, if it has the SSH host key %s: who holds that key is given what a node knows",
		m.Name, fingerprint(key)))
	s := in.step(step.VMAdopt, m.Name, "Take over VM "+m.Name+" made by others")
	s.Needs, s.Params = needs, encode(step.AdoptParams{VMParams: d.w.params().vmParams(m), HostKey: key})
	s.Effects = []plan.Effect{
		{Verb: "change", Object: "vm", Name: m.Name, Detail: "carries the director's stamp from then on"},
		{Verb: "keep", Object: "address", Name: m.Address},
	}
	if m.DataDisk > 0 {
		s.Effects = append(s.Effects, plan.Effect{
			Verb: "change", Object: "volume", Name: m.Name + " data", Detail: "attached, unless the VM has one",
		})
	}
	s.Attempts, s.Timeout, s.Estimate = 5, 5*time.Minute, 5*time.Second
	return d.add(s)
}

// deleteVM takes the VM of m away with its root disk and its row. Its data disks are kept unless the request says
// otherwise.
func (d *builder) deleteVM(m sized, needs []string, in group) string {
	s := in.step(step.VMDelete, m.Name, "Delete VM "+m.Name)
	params := d.w.params().vmParams(m)
	lost := d.w.hosts().lost(m.Machine)
	disks, doomed := d.disksLeft(m, s.Back() || lost) // what is on a lost host cannot be deleted
	params.DeleteData = doomed
	m.DataDisk = 0
	s.Needs, s.Params, s.Effects = needs, encode(params), append(vmEffects(m, "delete"), disks...)
	if lost {
		s.Effects = append(d.giveUp(m), disks...)
	}
	s.Attempts, s.Timeout, s.Estimate = 5, 10*time.Minute, 5*time.Second
	return d.add(s)
}

// removeVM takes the VM of m away and keeps its row, its address and its data disk for the VM that follows.
func (d *builder) removeVM(m sized, needs []string, in group) string {
	s := in.step(step.VMRemove, m.Name, "Remove VM "+m.Name+" so that it can be recreated")
	s.Needs, s.Params = needs, encode(d.w.params().vmParams(m))
	s.Effects = []plan.Effect{
		{Verb: "delete", Object: "vm", Name: m.Name, Detail: "with its root disk"},
		{Verb: "keep", Object: "address", Name: m.Address},
	}
	for _, n := range m.NICs {
		s.Effects = append(s.Effects, plan.Effect{
			Verb: "keep", Object: "address", Name: n.Address, Detail: n.Role + ", Network/" + n.Network,
		})
	}
	if m.DataDisk > 0 {
		s.Effects = append(s.Effects, plan.Effect{
			Verb: "keep", Object: "volume", Name: m.Name + " data", Detail: m.DataDisk.String(),
		})
	}
	s.Attempts, s.Timeout, s.Estimate = 5, 10*time.Minute, 5*time.Second
	return d.add(s)
}

// balance brings the balancers of the API on all masters to the masters that there are then. Masters that do not answer
// are left out, unless the plan brings them back before: a machine that is off must not stop the others. They get
// theirs when they rejoin.
func (d *builder) balance(masters, gone []sized, needs []string) string {
	var limit, dead []string
	for _, m := range masters {
		if d.w.up(m.Name) || d.joins(m) {
			limit = append(limit, m.Name)
		} else {
			dead = append(dead, m.Name)
		}
	}
	if len(limit) == 0 { // then it fails, and says so, rather than to run on every host of the inventory
		limit, dead = dead, nil
	}
	if len(dead) > 0 {
		d.warn(strings.Join(dead, ", ") + " does not answer: its balancer learns of the other masters when it rejoins")
	}
	id := "api_balancer"
	for n := 2; slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return s.ID == id+"/"+d.Cluster }); n++ {
		id = "api_balancer-" + strconv.Itoa(n)
	}
	return d.play(playbook{
		name: "api_balancer", id: id, subject: d.Cluster,
		title: "Balance the API over " + director.Count(len(masters), "master"), limit: limit, without: names(gone),
		effects: []plan.Effect{
			{
				Verb: "change", Object: "api", Name: d.w.Cluster.Cluster.API.VIP.String(),
				Detail: "haproxy and keepalived on the masters",
			},
		}, estimate: 20 * time.Second,
	}, needs, group{})
}

// joins reports whether the plan makes m a ready node.
func (d *builder) joins(m sized) bool {
	return slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return s.ID == step.NodeReady+"/"+m.Name })
}

// warn adds a warning, once.
func (d *builder) warn(text string) {
	if !slices.Contains(d.Warnings, text) {
		d.Warnings = append(d.Warnings, text)
	}
}

func (d *builder) verify(needs ...string) string {
	return d.play(playbook{
		name: "install/verify", id: "verify", subject: d.Cluster,
		title: "Check DNS, pod network and registry from inside", estimate: 45 * time.Second,
		effects: []plan.Effect{{Verb: "create", Object: "api", Name: "check pods", Detail: "removed again"}},
	}, needs, group{})
}

// record writes down that the cluster is as the document says.
func (d *builder) record(cluster step.ClusterParams, needs ...string) string {
	return d.add(plan.Step{
		ID: step.ClusterReady + "/" + d.Cluster, Kind: step.ClusterReady, Title: "Record what was installed",
		Needs: needs, Params: encode(cluster),
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
}

func (w worldParams) clusterParams(endpoint string, machines []sized) step.ClusterParams {
	return step.ClusterParams{
		UID: w.Cluster.UID, Name: w.Cluster.Metadata.Name, Generation: w.Cluster.Generation,
		Document: *w.Cluster.Cluster,
		Labels:   w.Cluster.Metadata.Labels, Endpoint: endpoint, Nodes: names(machines),
		Kubernetes: w.Release.Release.Kubernetes, Registries: outerRegistries(w).told(),
	}
}

func (w worldParams) vmParams(m sized) step.VMParams {
	p := step.VMParams{
		Machine: plan.SpecOf(m.Machine), Disk: m.Disk, DataDisk: m.DataDisk, Persist: m.persist,
		Network:   *w.Network.Network,
		NetworkID: w.Network.UID,
		SSHKeys:   w.Cluster.Cluster.SSHKeys, Hosts: w.Cluster.Cluster.Hosts, ImageName: w.image(),
		CleanUp: w.Image.Image.CleanUp,
	}
	w.nicParams(&p, m)
	p.VM = m.vm
	p.VM.Interfaces = nil
	if w.ofDirector() {
		p.Appliance = w.Cluster.Director
	}
	return p
}

// nicParams says what the machine's adapters are connected to, and which of them has the default route. Where that is
// not the first, the nodes still have to find the director over the first: that is where it looks for them.
func (w worldParams) nicParams(p *step.VMParams, m sized) {
	elsewhere := false
	for _, n := range m.NICs {
		u, known := w.Underlays[n.Network]
		if !known {
			continue
		}
		i := m.vm.Interface(n.Role)
		nic := step.NICParams{Role: n.Role, Network: *u.Network, DefaultRoute: i != nil && i.DefaultRoute && !elsewhere}
		elsewhere = elsewhere || nic.DefaultRoute
		p.NICs = append(p.NICs, nic)
	}
	first := w.Network.Network
	own, err := netip.ParseAddr(w.Director.Address)
	if elsewhere && err == nil && own.Is4() && first.Gateway.IsValid() && !first.CIDR.Contains(own) {
		p.Routes = []model.Route{{To: netip.PrefixFrom(own, own.BitLen()), Via: first.Gateway}}
	}
}

// image is the name of the cluster's image on its provider.
func (w World) image() string { return w.Image.Image.NameOnProviders(w.Cluster.Cluster.Image) }

func vmEffects(m sized, verb string) []plan.Effect {
	effects := []plan.Effect{
		{
			Verb: verb, Object: "vm", Name: m.Name,
			Detail: fmt.Sprintf("%d vCPU, %s, disk %s, on %s", m.VMSize.CPUs, m.VMSize.Memory, m.Disk, m.Host),
		},
		{Verb: verb, Object: "address", Name: m.Address},
	}
	for _, n := range m.NICs {
		effects = append(effects, plan.Effect{
			Verb: verb, Object: "address", Name: n.Address, Detail: n.Role + ", Network/" + n.Network,
		})
	}
	if m.DataDisk > 0 {
		effects = append(effects, plan.Effect{
			Verb: verb, Object: "volume", Name: m.Name + " data", Detail: m.DataDisk.String(),
		})
	}
	return effects
}

func planMachine(m director.Machine) plan.Machine {
	return plan.Machine{
		ID: m.ID, Name: m.Name, Role: string(m.Role), Pool: m.Pool, Address: m.Address, MAC: m.MAC, Host: m.Host,
	}
}

// clones returns the budgets that a clone takes: an upload or a clone is work for the host's and the provider's
// storage.
func clones(provider, host string) []string {
	out := []string{step.BudgetClones + "/" + provider}
	if host != "" {
		out = append(out, step.BudgetClones+"/"+provider+"/"+host)
	}
	return out
}

// conflict is an error of a request that does not fit the world.
func conflict(op, msg, hint string) error {
	return &director.Error{Kind: director.KindConflict, Op: op, Msg: msg, Hint: hint}
}

// notInstalled is the error of a request that needs a cluster whose creation has ended.
func notInstalled(op, cluster string) error {
	return conflict(op, "cluster "+cluster+" is not installed", "finish its creation first: directorctl plan "+cluster)
}

// invalid is an error of a request that fits no world.
func invalid(op, msg, hint string) error {
	return &director.Error{Kind: director.KindInvalid, Op: op, Msg: msg, Hint: hint}
}

// unique returns the ids without empty ones and repetitions.
func unique(ids []string) []string {
	var out []string
	for _, id := range ids {
		if id != "" && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("planner: " + err.Error()) // plain structs of our own
	}
	return b
}
