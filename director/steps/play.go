package steps

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/inventory"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// SecretToken is the bootstrap token that a cluster's nodes join with.
const SecretToken = "bootstrap-token"

// playSteps run playbooks, and render what they read.
type playSteps struct {
	releaseSteps
	Clusters
	Playbooks
	Suppliers
	facts *factsCache
}

func (e playSteps) play(ctx context.Context, r plan.Run, p step.PlayParams) error {
	if err := e.pushAgain(ctx, r); err != nil {
		return err
	}
	run, digest, err := e.preparePlay(ctx, r, p)
	if err != nil {
		return err
	}
	watch := &playWatch{note: func(text string) { r.Note(ctx, text) }}
	run.OnEvent, run.OnFailure = watch.event, watch.failure
	if _, err = e.Player.Play(ctx, run); err != nil {
		return playOutcome(err)
	}
	return e.noteKeys(ctx, step.ClusterUID(r.Plan.Content), p, digest)
}

// preparePlay renders what the run needs, with the digest of the token keys in it. It waits for its turn where others
// are rendered: rendering takes a core, and a request of a person would wait behind as many renderings as there are
// plans.
func (e playSteps) preparePlay(ctx context.Context, r plan.Run, p step.PlayParams) (ansible.Play, string, error) {
	facts, err := e.factsOf(r.Plan, p)
	if err != nil {
		return ansible.Play{}, "", plan.Abort(err)
	}
	tree, err := e.Trees(r.Plan.Playbooks)
	if err != nil {
		return ansible.Play{}, "", err
	}
	templates, err := inventory.TemplatesOf(tree)
	if err != nil {
		return ansible.Play{}, "", err
	}
	if facts.Bundle, err = e.checked(ctx, facts); err != nil {
		return ansible.Play{}, "", err
	}
	if e.rendering != nil {
		select {
		case e.rendering <- struct{}{}:
			defer func() { <-e.rendering }()
		case <-ctx.Done():
			return ansible.Play{}, "", ctx.Err()
		}
	}
	only := nodesOf(facts, p.Limit)
	if e.Keys, err = e.ofNodes(ctx, facts.Nodes); err != nil {
		return ansible.Play{}, "", err
	}
	files, err := e.inventory(facts, func(in inventory.Input) (inventory.Files, error) {
		in.Only = only
		return templates.Render(in)
	}, func(machine string) (string, error) {
		key, _, err := e.nodeKey(ctx, machine)
		return key, err
	})
	if err != nil {
		return ansible.Play{}, "", err
	}
	secrets, digest, err := e.secretVars(ctx, facts.UID, facts.Registries, p.Vars)
	if err != nil {
		return ansible.Play{}, "", err
	}
	login, err := SSHAccess{e.Installation, e.Keys}.Play(ctx, facts.UID, r.Plan.ID+"/"+r.Step.ID, facts.Nodes)
	if err != nil {
		return ansible.Play{}, "", err
	}
	return ansible.Play{
		ID: r.Plan.ID + "/" + r.Step.ID, Tree: tree, Playbook: p.Playbook, Inventory: files, ExtraVars: secrets,
		SSHKey: []byte(login.Private.Reveal()), SSHCertificate: []byte(login.Certificate),
		OldSSHKey: []byte(login.Old.Reveal()), KnownHosts: files["known_hosts"], Limit: p.Limit, Diff: false,
		LogPath: e.LogPath(r.Plan.ID, r.Step.ID, r.Attempt),
	}, digest, nil
}

// factsOf returns what the run knows of its cluster.
func (e playSteps) factsOf(of *plan.Plan, p step.PlayParams) (step.Facts, error) {
	facts, err := e.facts.of(of)
	if err == nil && p.Kubernetes != "" {
		facts, err = facts.At(p.Kubernetes)
	}
	if err != nil {
		return step.Facts{}, err
	}
	facts = facts.Moved(p.Moved) // also a copy of the list of nodes
	facts.Nodes = slices.DeleteFunc(facts.Nodes, func(m plan.MachineSpec) bool {
		return slices.Contains(p.Without, m.Name)
	})
	return facts, nil
}

// nodesOf returns whose variables a run with that limit reads: those of the nodes that it acts on and of the masters.
// It returns nil, for all, if the limit is none or names something else than nodes.
func nodesOf(f step.Facts, limit []string) []string {
	if len(limit) == 0 {
		return nil
	}
	only := slices.Clone(limit)
	known := map[string]bool{}
	for _, m := range f.Nodes {
		known[m.Name] = true
		if m.Role == director.RoleMaster {
			only = append(only, m.Name)
		}
	}
	if slices.ContainsFunc(limit, func(name string) bool { return !known[name] }) {
		return nil
	}
	return only
}

// playPatience is how long a play may be too early in a row before a person is asked. Kubelets renew each token of a
// pod within a day.
const playPatience = 26 * time.Hour

// stillRunning is how long a step may wait for the end of its former run, which was told to end.
const stillRunning = 10 * time.Minute

// playOutcome says what a failed run asks for. Hosts that could not be reached come back, and so does what fails for a
// cause that is known to pass by itself. What a person can mend from outside parks; all else is final at once, because
// trying it again would only hide it for minutes.
func playOutcome(err error) error {
	if errors.Is(err, ansible.ErrRunning) {
		return plan.AfterWithin(stillRunning, 2*time.Second, "waits for the end of its former run")
	}
	pe, ok := errors.AsType[*ansible.PlayError](err)
	if err == nil || !ok {
		return err
	}
	if question, ask := ansible.Question(err); ask {
		return plan.Park(err, question)
	}
	if why, later := ansible.Later(err); later {
		return plan.AfterWithin(playPatience, 5*time.Minute, why)
	}
	switch pe.Class {
	case ansible.ClassInterrupted:
		return plan.Interrupt(err)
	case ansible.ClassUnreachable:
		return plan.ParkLast(
			retry(err), "bring the machine back, or see why the director does not reach it, and retry the step",
		)
	case ansible.ClassCancelled, ansible.ClassTimeout:
		return retry(err)
	case ansible.ClassFailed:
		if cause := pe.Cause(); cause != nil && cause.Class == ansible.Transient {
			return retry(err)
		}
	}
	return plan.Abort(err)
}

// retry marks an error as one that another try may mend, whatever its kind.
func retry(err error) error {
	e, ok := errors.AsType[*director.Error](err)
	if !ok {
		return err
	}
	again := *e
	again.Kind = director.KindUnavailable
	return &again
}

// Inventory renders the inventory of the cluster as runs of this director's playbooks get it. It holds no secret. Host
// keys that do not exist yet are made.
func (e Env) Inventory(ctx context.Context, f step.Facts) (inventory.Files, error) {
	return e.plays().inventory(f, inventory.Render, func(machine string) (string, error) {
		key, _, err := e.nodeKey(ctx, machine)
		return key, err
	})
}

// ShowInventory renders the inventory as Inventory does, and makes nothing: host keys that do not exist yet are left
// out.
func (e Env) ShowInventory(ctx context.Context, f step.Facts) (inventory.Files, error) {
	return e.plays().inventory(f, inventory.Render, func(machine string) (string, error) {
		if adopted, err := e.adoptedKey(ctx, machine); err != nil || adopted != "" {
			return adopted, err
		}
		key, err := e.KnownHostKey(ctx, machine)
		return key.Public, err
	})
}

// CheckInventory returns what would stop the cluster's inventory from being rendered. It makes nothing.
func (e Env) CheckInventory(f step.Facts) error {
	_, err := e.plays().inventory(f, inventory.Render, func(string) (string, error) { return "", nil })
	return err
}

// placeOf returns the directory of the bundle: for plays a checked copy, which they have put into f, and for who
// exports an inventory the bundle itself.
func (e playSteps) placeOf(f step.Facts) string {
	if f.Bundle == "" && f.Digest != "" && e.ImportedRelease != nil {
		return e.ImportedRelease(f.Digest)
	}
	return f.Bundle
}

func (e playSteps) inventory(
	f step.Facts, render func(inventory.Input) (inventory.Files, error), hostKey func(machine string) (string, error),
) (inventory.Files, error) {
	c := f.Document
	in := inventory.Input{
		Name: f.Cluster, UID: f.UID, Kubernetes: f.Kubernetes, APIPort: model.APIPort, APINames: c.API.Names,
		PodNetwork: c.Pods.Plugin, PodCIDR: c.Pods.CIDR.String(), PodMTU: c.Pods.MTU,
		ServiceCIDR: c.Services.CIDR.String(), Domain: c.Services.Domain,
		Registry: RegistryName, RegistryEndpoint: f.Registry, RegistryCA: e.registryCA(), ImageTags: f.Tags,
		Bundle: e.placeOf(f), NTP: f.Network.NTP,
		BinariesURL: "https://" + f.Registry + e.ArtifactsPath + f.Digest + "/bin", Binaries: f.Programs,
		EtcdHeartbeat: time.Duration(c.Etcd.HeartbeatInterval), EtcdElection: time.Duration(c.Etcd.ElectionTimeout),
		Vars: c.Vars, Registries: registriesOf(f),
	}
	in.DirectorAddresses = e.directorAddresses(f)
	if c.API.VIP.IsValid() {
		in.APIVIP = c.API.VIP.String()
	}
	if f.Forward != nil {
		in.ConsulDomain, in.ConsulServers = f.Forward.Domain, f.Forward.Servers
	}
	if f.Agents != nil {
		text, err := json.Marshal(f.Agents)
		if err != nil {
			return nil, err
		}
		in.ConsulAgents = string(text)
	}
	for _, a := range f.Network.DNS {
		in.DNS = append(in.DNS, a.String())
	}
	in.Networks = networksOf(f)
	for _, a := range c.Hosts {
		in.Aliases = append(in.Aliases, inventory.Alias{Address: a.Address.String(), Names: a.Names})
	}
	for _, m := range f.Nodes {
		key, err := hostKey(m.ID)
		if err != nil {
			return nil, err
		}
		n := inventory.Node{Name: m.Name, Role: m.Role, Address: m.Address, HostKey: key}
		for _, p := range c.Workers {
			if m.Role == director.RoleWorker && p.Name == m.Pool {
				n.Labels, n.Taints = p.Labels, p.Taints
				own(&n, c, p.VMModel)
			}
		}
		if m.Role == director.RoleMaster {
			own(&n, c, c.Masters.VMModel)
		}
		n.Services = inventoryServices(f.Services(m))
		if n.Interfaces, err = interfacesOf(f, m); err != nil {
			return nil, err
		}
		in.Nodes = append(in.Nodes, n)
	}
	return render(in)
}

func inventoryServices(list []step.Service) []inventory.Service {
	var out []inventory.Service
	for _, s := range list {
		out = append(out, inventory.Service{
			ID: s.ID, Name: s.Name, Address: s.Address, Port: s.Port, Tags: s.Tags,
			Check: inventory.ServiceCheck(s.Check),
		})
	}
	return out
}

// directorAddresses returns the addresses from which the director reaches the nodes, sorted.
func (e playSteps) directorAddresses(f step.Facts) []string {
	if e.LocalAddress == nil {
		return nil
	}
	var own []string
	for _, m := range f.Nodes {
		node, err := netip.ParseAddr(m.Address)
		if err != nil {
			continue
		}
		if local, ok := e.LocalAddress(node); ok {
			own = append(own, local.String())
		}
	}
	slices.Sort(own)
	return slices.Compact(own)
}

// own gives the node what its pool has instead of what all nodes have.
func own(n *inventory.Node, c model.Cluster, vm model.VMModel) {
	n.NTP = vm.NTP
	n.KubeReserved, n.SystemReserved = vm.Reserved.Kubelet.Quantities(), vm.Reserved.System.Quantities()
	if len(vm.HostAliases) == 0 {
		return
	}
	for _, a := range slices.Concat(c.Hosts, vm.HostAliases) {
		n.Aliases = append(n.Aliases, inventory.Alias{Address: a.Address.String(), Names: a.Names})
	}
}

// networksOf lists the networks of the cluster's nodes if they are on more than one.
func networksOf(f step.Facts) []inventory.Network {
	if len(f.Networks) == 0 {
		return nil
	}
	entry := func(role, name string, n model.Network) inventory.Network {
		e := inventory.Network{Role: role, Name: name, CIDR: n.CIDR.String()}
		if n.Gateway.IsValid() {
			e.Gateway = n.Gateway.String()
		}
		return e
	}
	out := []inventory.Network{entry(model.NICInternal, f.Document.Network, f.Network)}
	seen := map[inventory.Network]bool{}
	for _, m := range f.Nodes {
		for _, n := range m.NICs {
			if network, known := f.Networks[n.Network]; known {
				if e := entry(n.Role, n.Network, network); !seen[e] {
					seen[e] = true
					out = append(out, e)
				}
			}
		}
	}
	slices.SortStableFunc(out[1:], func(a, b inventory.Network) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// interfacesOf lists the adapters of a node that has more than one, as cloud-init names them.
func interfacesOf(f step.Facts, m plan.MachineSpec) ([]inventory.Interface, error) {
	if len(m.NICs) == 0 {
		return nil, nil
	}
	first, err := prefixOf(m.Address, f.Network.CIDR)
	if err != nil {
		return nil, err
	}
	out := []inventory.Interface{
		{Role: model.NICInternal, Device: "eth0", Network: m.Network, Address: first.String(), MAC: m.MAC},
	}
	for _, n := range m.NICs {
		network, known := f.Networks[n.Network]
		if !known {
			continue
		}
		address, err := prefixOf(n.Address, network.CIDR)
		if err != nil {
			return nil, err
		}
		out = append(out, inventory.Interface{
			Role: n.Role, Device: fmt.Sprintf("eth%d", len(out)), Network: n.Network, Address: address.String(),
			MAC: n.MAC,
		})
	}
	return out, nil
}

// SecretVars renders the file of secret variables of the cluster with those facts; the uid is enough where no outer
// registry is pulled from.
func (e Env) SecretVars(ctx context.Context, f step.Facts) ([]byte, error) {
	vars, _, err := e.plays().secretVars(ctx, f.UID, f.Registries, nil)
	return vars, err
}

// secretVars is SecretVars with the variables of one run added: a run has one file of extra variables. The digest
// is of the token keys among them.
func (e playSteps) secretVars(
	ctx context.Context, uid string, outer []step.Registry, run map[string]any,
) ([]byte, string, error) {
	authorities, err := e.ClusterPKI(ctx, uid)
	if err != nil {
		return nil, "", err
	}
	token, err := e.bootstrapToken(ctx, uid)
	if err != nil {
		return nil, "", err
	}
	vars := authorities.Vars()
	signing, err := e.signingKeys(ctx, uid, authorities)
	if err != nil {
		return nil, "", err
	}
	maps.Copy(vars, signing.Vars())
	vars["bootstrap_token"] = token.Reveal()
	keys, err := e.ClusterEncryptionKeys(ctx, uid)
	if err != nil {
		return nil, "", err
	}
	if vars["encryption_keys"], err = keys.Var(); err != nil {
		return nil, "", err
	}
	if err := e.registryVars(ctx, uid, outer, vars); err != nil {
		return nil, "", err
	}
	ssh, err := e.sshAuthorities(ctx, uid)
	if err != nil {
		return nil, "", err
	}
	vars["ssh_authorities"] = ssh.public()
	sync, _, err := e.ConsulToken(ctx, uid)
	if err != nil {
		return nil, "", err
	}
	vars["consul_token"] = sync.Secret.Reveal()
	if err := e.agentVars(ctx, uid, vars); err != nil {
		return nil, "", err
	}
	digest, err := e.issuerVars(ctx, uid, vars)
	if err != nil {
		return nil, "", err
	}
	secrets, err := inventory.Secrets(vars)
	if err != nil || len(run) == 0 {
		return secrets, digest, err
	}
	all := map[string]any{}
	if err := json.Unmarshal(secrets, &all); err != nil {
		return nil, "", err
	}
	maps.Copy(all, run)
	secrets, err = json.Marshal(all)
	return secrets, digest, err
}

func (e playSteps) bootstrapToken(ctx context.Context, uid string) (director.Secret, error) {
	sealed, err := e.Secrets.Secret(ctx, uid, SecretToken)
	if err != nil {
		return "", err
	}
	if sealed == nil {
		fresh, err := pki.NewBootstrapToken()
		if err != nil {
			return "", err
		}
		if sealed, err = e.Sealer.Seal(uid, SecretToken, []byte(fresh.Reveal())); err != nil {
			return "", err
		}
		if sealed, err = e.Secrets.AddSecret(ctx, uid, SecretToken, sealed); err != nil {
			return "", err
		}
	}
	plain, err := e.Sealer.Unseal(uid, SecretToken, sealed)
	return director.Secret(plain), err
}
