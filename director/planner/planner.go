// Package planner compares what should be with what is and writes plans. It is pure: the same World gives the same bytes.
package planner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"sort"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// World is everything that a plan is made from.
type World struct {
	Director  Director
	Cluster   model.Stored
	Provider  model.Stored
	Network   model.Stored
	Image     model.Stored
	Release   model.Stored
	Bundle    Bundle             // what the release's bundle holds
	Machines  []director.Machine // of this cluster's uid, tombstones too
	Used      map[netip.Addr]bool
	Sharers   []string // other clusters with machines on the same network
	Installed *Installed
	Host      map[string]int           // VMs per hypervisor host of the provider, for placement
	Times     map[string]time.Duration // what steps have taken of late, by class
}

// Director is what nodes need to know of the director.
type Director struct {
	ID        string
	Address   string // as the nodes see it
	Registry  string // host:port of the embedded registry
	Playbooks string // hash of the tree of playbooks
}

// Bundle is what a plan needs to know of a release bundle.
type Bundle struct {
	Digest     string            // SHA-256 of release.yaml: the plan is for these bytes
	Components map[string]string // versions by name
	ImageTags  map[string]string // tag by image name
}

// Installed is what the last finished plan brought about.
type Installed struct {
	Generation int64
	Cluster    model.Cluster
}

// Facts is what the inventory of the cluster is rendered from, frozen into the plan. It holds no secret.
type Facts struct {
	Cluster    string             `json:"cluster"`
	UID        string             `json:"uid"`
	Document   model.Cluster      `json:"document"`
	Network    model.Network      `json:"network"`
	Kubernetes string             `json:"kubernetes"`
	Bundle     string             `json:"bundle"` // directory of the release bundle on the director
	Tags       map[string]string  `json:"tags"`
	Registry   string             `json:"registry"`
	Nodes      []director.Machine `json:"nodes"` // masters first, by name
}

// VMParams are the parameters of vm.ensure, vm.boot and vm.delete.
type VMParams struct {
	Machine   director.Machine  `json:"machine"`
	Disk      model.Size        `json:"disk"`
	DataDisk  model.Size        `json:"data_disk,omitempty"`
	Persist   []string          `json:"persist,omitempty"`
	Network   model.Network     `json:"network"`
	NetworkID string            `json:"network_id"`
	SSHKeys   []string          `json:"ssh_keys,omitempty"`
	Hosts     []model.HostAlias `json:"hosts,omitempty"`
	ImageName string            `json:"image_name"`
}

// NetworkParams are the parameters of network.ensure and network.delete.
type NetworkParams struct {
	Provider string        `json:"provider"`
	Name     string        `json:"name"`
	UID      string        `json:"uid"`
	Network  model.Network `json:"network"`
}

// ImageParams are the parameters of image.ensure.
type ImageParams struct {
	Provider string      `json:"provider"`
	Name     string      `json:"name"`
	Image    model.Image `json:"image"`
}

// ReleaseParams are the parameters of release.push.
type ReleaseParams struct {
	Name   string `json:"name"`
	Bundle string `json:"bundle"`
	Digest string `json:"digest"`
}

// PlayParams are the parameters of ansible.play. The inventory comes from the plan's facts.
type PlayParams struct {
	Playbook string   `json:"playbook"`
	Limit    []string `json:"limit,omitempty"`
}

// ClusterParams are the parameters of the steps that concern the cluster as a whole.
type ClusterParams struct {
	UID        string            `json:"uid"`
	Name       string            `json:"name"`
	Generation int64             `json:"generation"`
	Document   model.Cluster     `json:"document"`
	Labels     map[string]string `json:"labels,omitempty"`
	Endpoint   string            `json:"endpoint"`
	Nodes      []string          `json:"nodes,omitempty"`
}

// The kinds of steps.
const (
	StepReleasePush   = "release.push"
	StepNetworkEnsure = "network.ensure"
	StepNetworkDelete = "network.delete"
	StepImageEnsure   = "image.ensure"
	StepClusterPKI    = "cluster.pki"
	StepClusterReady  = "cluster.ready"
	StepClusterForget = "cluster.forget"
	StepVMEnsure      = "vm.ensure"
	StepVMBoot        = "vm.boot"
	StepVMDelete      = "vm.delete"
	StepPlay          = "ansible.play"
	StepKubeReady     = "kube.ready"
)

// StepKinds returns every kind that the planner writes; the engine must have a handler for each.
func StepKinds() []string {
	return []string{
		StepReleasePush, StepNetworkEnsure, StepNetworkDelete, StepImageEnsure, StepClusterPKI, StepClusterReady, StepClusterForget,
		StepVMEnsure, StepVMBoot, StepVMDelete, StepPlay, StepKubeReady,
	}
}

// Port is where the Kubernetes API answers.
const Port = 6443

// Create returns the plan that brings the cluster of w from nothing, or from an unfinished creation, to its document. A plan without
// steps means that it is there. Errors: exhausted if the pool has too few addresses, conflict if the cluster was installed from another
// generation of its document.
func Create(w World) (plan.Content, error) {
	c := *w.Cluster.Cluster
	content := plan.Content{Operation: plan.ClusterCreate, Cluster: w.Cluster.Metadata.Name, Playbooks: w.Director.Playbooks, Models: w.refs()}
	if w.Installed != nil {
		if changed := difference(w); changed != "" {
			return plan.Content{}, &director.Error{
				Kind: director.KindConflict, Op: "planner.create", Msg: "cluster " + content.Cluster + " runs, and its document has changed since:\n" + changed,
				Hint: "this director creates and deletes clusters; take the change back with apply, or delete the cluster and create it anew",
			}
		}
		content.Summary = "Cluster " + content.Cluster + " is as its model says; nothing is to be done."
		return content, nil
	}
	if c.Masters.Count > 1 {
		return plan.Content{}, &director.Error{
			Kind: director.KindInvalid, Op: "planner.create", Msg: "this director creates clusters with one master",
			Fields: []director.Field{{Path: "spec.masters.count", Msg: strconv.Itoa(c.Masters.Count) + " masters are not offered yet", Hint: "set it to 1"}},
		}
	}
	machines, err := w.machines()
	if err != nil {
		return plan.Content{}, err
	}
	content.Summary = fmt.Sprintf("Create cluster %s: %s and %s, Kubernetes %s on provider %s.",
		content.Cluster, count(c.Masters.Count, "master"), count(c.WorkerCount(), "worker"), w.Release.Release.Kubernetes, c.Provider)
	for _, m := range machines {
		content.Machines = append(content.Machines, planMachine(m.Machine))
	}
	content.Facts = encode(w.facts(machines))
	b := &builder{op: content.Operation}
	w.create(b, machines)
	content.Steps = w.estimated(b.steps)
	content.Estimate = plan.CriticalPath(content.Steps)
	return content, nil
}

// create writes the steps. VMs boot side by side; a worker is prepared while the control plane comes up.
func (w World) create(b *builder, machines []sized) {
	c := *w.Cluster.Cluster
	name := w.Cluster.Metadata.Name
	endpoint := machines[0].Address + ":" + strconv.Itoa(Port)
	cluster := ClusterParams{UID: w.Cluster.UID, Name: name, Generation: w.Cluster.Generation, Document: c, Labels: w.Cluster.Metadata.Labels, Endpoint: endpoint}

	release := b.add(plan.Step{
		ID: StepReleasePush + "/" + c.Release, Kind: StepReleasePush, Title: "Bring the images of " + c.Release + " into the registry",
		Params:   encode(ReleaseParams{Name: c.Release, Bundle: w.Release.Release.Bundle, Digest: w.Bundle.Digest}),
		Effects:  []plan.Effect{{Verb: "create", Object: "registry", Name: w.Director.Registry, Detail: strconv.Itoa(len(w.Bundle.ImageTags)) + " images, unless they are there"}},
		Attempts: 5, Timeout: 15 * time.Minute, Estimate: 15 * time.Second,
	})
	network := b.add(plan.Step{
		ID: StepNetworkEnsure + "/" + c.Network, Kind: StepNetworkEnsure, Title: "Make network " + c.Network,
		Params:   encode(NetworkParams{Provider: c.Provider, Name: c.Network, UID: w.Network.UID, Network: *w.Network.Network}),
		Effects:  []plan.Effect{{Verb: "create", Object: "network", Name: c.Network, Detail: w.Network.Network.Mode + " " + w.Network.Network.CIDR.String()}},
		Attempts: 5, Timeout: 2 * time.Minute, Estimate: 2 * time.Second,
	})
	image := b.add(plan.Step{
		ID: StepImageEnsure + "/" + c.Image, Kind: StepImageEnsure, Title: "Bring image " + c.Image + " to provider " + c.Provider,
		Params:   encode(ImageParams{Provider: c.Provider, Name: c.Image, Image: *w.Image.Image}),
		Effects:  []plan.Effect{{Verb: "create", Object: "image", Name: c.Image, Detail: "unless it is there"}},
		Attempts: 5, Timeout: 30 * time.Minute, Estimate: 15 * time.Second,
	})
	pki := b.add(plan.Step{
		ID: StepClusterPKI + "/" + name, Kind: StepClusterPKI, Title: "Make the certificate authorities",
		Params:   encode(cluster),
		Effects:  []plan.Effect{{Verb: "create", Object: "secret", Name: name, Detail: "cluster, etcd and front-proxy CA, service account key, encryption key; sealed"}},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
	prepared := map[string]string{}
	for _, m := range machines {
		params := encode(w.vmParams(m))
		ensure := b.add(plan.Step{
			ID: StepVMEnsure + "/" + m.Name, Kind: StepVMEnsure, Node: m.Name, Title: "Make VM " + m.Name, Needs: []string{network, image}, Params: params,
			Effects: vmEffects(m, "create"), Budgets: clones(c.Provider, m.Host),
			Attempts: 5, Timeout: 10 * time.Minute, Estimate: 4 * time.Second,
		})
		boot := b.add(plan.Step{
			ID: StepVMBoot + "/" + m.Name, Kind: StepVMBoot, Node: m.Name, Title: "Wait for " + m.Name + " to boot", Needs: []string{ensure}, Params: params,
			Attempts: 2, Timeout: 10 * time.Minute, Estimate: time.Minute,
		})
		prepared[m.Name] = b.play("prepare", m.Name, "Prepare "+m.Name, []string{boot, release, pki}, []string{m.Name}, 50*time.Second,
			plan.Effect{Verb: "change", Object: "file", Name: m.Name, Detail: "host name, registry trust, container runtime, time"})
	}
	master := machines[0]
	control := b.play("control_plane", master.Name, "Bring up the control plane on "+master.Name, []string{prepared[master.Name], pki}, []string{master.Name}, 3*time.Minute,
		plan.Effect{Verb: "create", Object: "api", Name: endpoint, Detail: "etcd, API server, controller manager, scheduler"})
	network2 := b.play("pod_network", name, "Install the pod network", []string{control}, nil, 25*time.Second,
		plan.Effect{Verb: "create", Object: "api", Name: c.Pods.Plugin, Detail: "pods " + c.Pods.CIDR.String()})
	joined := []string{network2}
	for _, m := range machines[1:] {
		joined = append(joined, b.play("workers", m.Name, "Join worker "+m.Name, []string{control, prepared[m.Name]}, []string{m.Name}, 40*time.Second,
			plan.Effect{Verb: "create", Object: "api", Name: "node/" + m.Name}))
	}
	cluster.Nodes = names(machines)
	ready := b.add(plan.Step{
		ID: StepKubeReady + "/" + name, Kind: StepKubeReady, Title: "Wait until all nodes are ready", Needs: joined, Params: encode(cluster),
		Attempts: 3, Timeout: 15 * time.Minute, Estimate: 45 * time.Second,
	})
	verified := b.play("verify", name, "Check DNS, pod network and registry from inside", []string{ready}, nil, 45*time.Second,
		plan.Effect{Verb: "create", Object: "api", Name: "check pods", Detail: "removed again"})
	b.add(plan.Step{
		ID: StepClusterReady + "/" + name, Kind: StepClusterReady, Title: "Record what was installed", Needs: []string{verified}, Params: encode(cluster),
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
}

// Delete returns the plan that takes the cluster of w away with its VMs, addresses, secrets and document.
func Delete(w World) (plan.Content, error) {
	name, c := w.Cluster.Metadata.Name, *w.Cluster.Cluster
	content := plan.Content{Operation: plan.ClusterDelete, Cluster: name, Playbooks: w.Director.Playbooks, Models: w.refs()}
	b := &builder{op: content.Operation}
	var gone []string
	for _, m := range w.alive() {
		s := sized{Machine: m, VMSize: w.sizeOf(m)}
		content.Machines = append(content.Machines, planMachine(m))
		gone = append(gone, b.add(plan.Step{
			ID: StepVMDelete + "/" + m.Name, Kind: StepVMDelete, Node: m.Name, Title: "Delete VM " + m.Name, Params: encode(w.vmParams(s)),
			Effects:  vmEffects(s, "delete"),
			Attempts: 5, Timeout: 10 * time.Minute, Estimate: 5 * time.Second,
		}))
	}
	if len(w.Sharers) == 0 && len(w.Machines) > 0 { // a cluster that never had a machine never had its network made
		gone = []string{b.add(plan.Step{
			ID: StepNetworkDelete + "/" + c.Network, Kind: StepNetworkDelete, Title: "Delete network " + c.Network, Needs: gone,
			Params:   encode(NetworkParams{Provider: c.Provider, Name: c.Network, UID: w.Network.UID, Network: *w.Network.Network}),
			Effects:  []plan.Effect{{Verb: "delete", Object: "network", Name: c.Network}},
			Attempts: 5, Timeout: 2 * time.Minute, Estimate: 2 * time.Second,
		})}
	}
	b.add(plan.Step{
		ID: StepClusterForget + "/" + name, Kind: StepClusterForget, Title: "Forget the cluster", Needs: gone,
		Params:   encode(ClusterParams{UID: w.Cluster.UID, Name: name, Generation: w.Cluster.Generation, Document: c}),
		Effects:  []plan.Effect{{Verb: "delete", Object: "document", Name: "Cluster/" + name}, {Verb: "delete", Object: "secret", Name: name}},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
	content.Approvals = []string{fmt.Sprintf("it destroys cluster %s with %s and all data on their disks", name, count(len(content.Machines), "VM"))}
	content.Summary = fmt.Sprintf("Delete cluster %s: %s with disks and addresses, its secrets and its document.", name, count(len(content.Machines), "VM"))
	content.Steps = w.estimated(b.steps)
	content.Estimate = plan.CriticalPath(content.Steps)
	return content, nil
}

// estimated puts what steps of the same class have taken of late in the place of the planner's own guesses.
func (w World) estimated(steps []plan.Step) []plan.Step {
	for i := range steps {
		if took, known := w.Times[steps[i].Class()]; known {
			steps[i].Estimate = took.Round(time.Millisecond)
		}
	}
	return steps
}

// clones returns the budgets that a clone takes: an upload or a clone is work for the host's and the provider's storage.
func clones(provider, host string) []string {
	out := []string{BudgetClones + "/" + provider}
	if host != "" {
		out = append(out, BudgetClones+"/"+provider+"/"+host)
	}
	return out
}

// BudgetClones is the first part of the budgets of VMs that are made at once: followed by the provider, or by provider and host.
const BudgetClones = "clones"

// FactsOf returns the facts of a cluster whose machines exist, for an inventory outside a plan.
func FactsOf(w World) Facts {
	var machines []sized
	for _, m := range w.alive() {
		machines = append(machines, sized{Machine: m, VMSize: w.sizeOf(m)})
	}
	return w.facts(machines)
}

// DecodeFacts reads what Create froze into a plan.
func DecodeFacts(c plan.Content) (Facts, error) {
	var f Facts
	if err := json.Unmarshal(c.Facts, &f); err != nil {
		return Facts{}, fmt.Errorf("planner: the plan's facts cannot be read: %w", err)
	}
	return f, nil
}

type sized struct {
	director.Machine
	model.VMSize
	persist []string
}

// machines returns those of the document, masters first: what is in the ledger keeps its row, the others get the next free address.
func (w World) machines() ([]sized, error) {
	c := w.Cluster.Cluster
	existing := map[string]director.Machine{}
	serial := map[string]int{}
	for _, m := range w.Machines {
		serial[m.Name]++
		if m.Deleted.IsZero() {
			existing[m.Name] = m
		}
	}
	var want []sized
	add := func(role director.Role, pool string, n int, size model.VMSize, persist []string) {
		for i := range n {
			name := fmt.Sprintf("%s-%s-%d", w.Cluster.Metadata.Name, pool, i+1)
			m, ok := existing[name]
			if !ok {
				m = director.Machine{
					ID: machineID(w.Cluster.UID, name, serial[name]), ClusterUID: w.Cluster.UID, Cluster: w.Cluster.Metadata.Name, Name: name,
					Role: role, Pool: pool, Provider: c.Provider, Network: c.Network, Image: c.Image, CPUs: size.CPUs, Memory: int64(size.Memory),
					State: director.MachineIntended,
				}
				m.MAC = macOf(m.ID)
			}
			want = append(want, sized{m, size, persist})
		}
	}
	add(director.RoleMaster, "master", c.Masters.Count, c.Masters.VMSize, c.Masters.Persist)
	for _, p := range c.Workers {
		add(director.RoleWorker, p.Name, p.Count, p.VMSize, p.Persist)
	}
	missing := 0
	for _, m := range want {
		if m.Address == "" {
			missing++
		}
	}
	free, err := w.Network.Network.Free(missing, w.Used)
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindExhausted, Op: "planner.addresses", Msg: "Network/" + c.Network + " has too few free addresses: " + err.Error(),
			Hint:   "widen spec.pool of the Network, or delete a cluster that uses it",
			Fields: []director.Field{{Path: "spec.network", Msg: err.Error()}},
		}
	}
	load := map[string]int{}
	for _, host := range w.Provider.Provider.HostNames() {
		load[host] = w.Host[host]
	}
	for i := range want {
		if want[i].Address == "" {
			want[i].Address, free = free[0].String(), free[1:]
			want[i].Host = leastLoaded(load)
		}
	}
	return want, nil
}

// leastLoaded takes the host with the fewest VMs, the first by name among equals, and counts the new one.
func leastLoaded(load map[string]int) string {
	hosts := make([]string, 0, len(load))
	for h := range load {
		hosts = append(hosts, h)
	}
	sort.Strings(hosts)
	best := ""
	for _, h := range hosts {
		if best == "" || load[h] < load[best] {
			best = h
		}
	}
	load[best]++
	return best
}

func (w World) alive() []director.Machine {
	var out []director.Machine
	for _, m := range w.Machines {
		if m.Deleted.IsZero() {
			out = append(out, m)
		}
	}
	sort.SliceStable(out, func(i, j int) bool {
		if out[i].Role != out[j].Role {
			return out[i].Role == director.RoleMaster
		}
		return out[i].Name < out[j].Name
	})
	return out
}

// sizeOf returns the size of the machine's role in the document; a machine of a pool that is gone has only what the ledger knows.
func (w World) sizeOf(m director.Machine) model.VMSize {
	c := w.Cluster.Cluster
	if m.Role == director.RoleMaster {
		return c.Masters.VMSize
	}
	for _, p := range c.Workers {
		if p.Name == m.Pool {
			return p.VMSize
		}
	}
	return model.VMSize{CPUs: m.CPUs, Memory: model.Size(m.Memory)}
}

func (w World) vmParams(m sized) VMParams {
	return VMParams{
		Machine: m.Machine, Disk: m.Disk, DataDisk: m.DataDisk, Persist: m.persist, Network: *w.Network.Network, NetworkID: w.Network.UID,
		SSHKeys: w.Cluster.Cluster.SSHKeys, Hosts: w.Cluster.Cluster.Hosts, ImageName: w.Cluster.Cluster.Image,
	}
}

func (w World) facts(machines []sized) Facts {
	f := Facts{
		Cluster: w.Cluster.Metadata.Name, UID: w.Cluster.UID, Document: *w.Cluster.Cluster, Network: *w.Network.Network,
		Kubernetes: w.Release.Release.Kubernetes, Bundle: w.Release.Release.Bundle, Tags: w.Bundle.ImageTags, Registry: w.Director.Registry,
	}
	for _, m := range machines {
		f.Nodes = append(f.Nodes, m.Machine)
	}
	return f
}

func (w World) refs() []plan.ModelRef {
	var refs []plan.ModelRef
	for _, d := range []model.Stored{w.Provider, w.Image, w.Release, w.Network, w.Cluster} {
		refs = append(refs, plan.ModelRef{Kind: string(d.Kind), Name: d.Metadata.Name, Generation: d.Generation})
	}
	return refs
}

// difference returns what of the document is not as it was installed.
func difference(w World) string {
	if w.Installed.Generation == w.Cluster.Generation {
		return ""
	}
	render := func(c model.Cluster) string {
		b, err := model.Encode(model.Document{Kind: model.KindCluster, Metadata: w.Cluster.Metadata, Cluster: &c})
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	return model.Diff(render(w.Installed.Cluster), render(*w.Cluster.Cluster))
}

type builder struct {
	op    plan.Operation
	steps []plan.Step
}

func (b *builder) add(s plan.Step) string {
	s.Safety = safetyOf(b.op, s)
	b.steps = append(b.steps, s)
	return s.ID
}

func (b *builder) play(playbook, subject, title string, needs, limit []string, estimate time.Duration, effects ...plan.Effect) string {
	s := plan.Step{
		ID: playbook + "/" + subject, Kind: StepPlay, Title: title, Needs: needs, Effects: effects,
		Params:   encode(PlayParams{Playbook: "install/" + playbook + ".yml", Limit: limit}),
		Attempts: 3, Timeout: 30 * time.Minute, Estimate: estimate,
	}
	if len(limit) == 1 {
		s.Node = limit[0]
	}
	return b.add(s)
}

func vmEffects(m sized, verb string) []plan.Effect {
	effects := []plan.Effect{
		{Verb: verb, Object: "vm", Name: m.Name, Detail: fmt.Sprintf("%d vCPU, %s, disk %s, on %s", m.VMSize.CPUs, m.VMSize.Memory, m.Disk, m.Host)},
		{Verb: verb, Object: "address", Name: m.Address},
	}
	if m.DataDisk > 0 {
		effects = append(effects, plan.Effect{Verb: verb, Object: "volume", Name: m.Name + " data", Detail: m.DataDisk.String()})
	}
	return effects
}

func planMachine(m director.Machine) plan.Machine {
	return plan.Machine{ID: m.ID, Name: m.Name, Role: string(m.Role), Pool: m.Pool, Address: m.Address, MAC: m.MAC, Host: m.Host}
}

// count renders a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func names(machines []sized) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m.Name)
	}
	return out
}

// machineID is the same for the same incarnation of a node, so that a plan made twice is the same plan.
func machineID(clusterUID, name string, serial int) string {
	sum := sha256.Sum256([]byte(clusterUID + "/" + name + "/" + strconv.Itoa(serial)))
	return "m" + hex.EncodeToString(sum[:8])
}

// macOf derives a locally administered address in QEMU's range from the machine's id.
func macOf(id string) string {
	sum := sha256.Sum256([]byte("mac/" + id))
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("planner: " + err.Error()) // plain structs of our own
	}
	return b
}
