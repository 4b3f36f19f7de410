package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// DataDiskMount is where the data disk is mounted on a node.
const DataDiskMount = "/var/lib/kaas-data"

// vmSteps make, change and delete VMs, and look at how they start.
type vmSteps struct {
	Installation
	Clusters
	Machines
	Appliances
	facts *factsCache
}

func (e vmSteps) vmEnsure(ctx context.Context, r plan.Run, p step.VMParams) error {
	b, err := e.backend(ctx, p.Machine.Provider)
	if err != nil {
		return err
	}
	uid, err := clusterUID(r, p.Machine)
	if err != nil {
		return err
	}
	if err := e.onLostHost(ctx, p.Machine); err != nil {
		return err
	}
	if err := e.Ledger.IntendAgain(ctx, p.Machine.Row(), e.Now()); err != nil {
		return err
	}
	have, err := b.List(ctx, hypervisor.Filter{Director: e.Director, Machine: p.Machine.ID})
	if err != nil {
		return err
	}
	if unknown, err := e.unknown(ctx, r, p.Machine.ID); err != nil {
		return err
	} else if unknown && len(have) > 0 && p.Appliance == nil {
		return e.remake(ctx, r, p, hostKeyError(p.Machine.Row(), errHostKey))
	}
	if len(have) == 0 {
		if err := e.disk().takeDisk(ctx, p); err != nil {
			return err
		}
		if err := errors.Join(e.disown(ctx, p.Machine.ID), e.addressFree(ctx, p.Machine.Row())); err != nil {
			return err
		}
		if err := e.mayCreate(ctx, r, p.Machine); err != nil {
			return err
		}
		if p.Appliance == nil { // no one logs in to the VM of a director
			if err := e.trusted(ctx, p.Machine.ID, trust{Cluster: uid}); err != nil {
				return err
			}
		}
	}
	files, err := agentFiles(e.facts, r, p.Machine)
	if err != nil {
		return err
	}
	spec, err := e.vmSpec(ctx, uid, p, files...) // with the disks that it has taken
	if err != nil {
		return err
	}
	vm, err := e.present(ctx, b, spec, have)
	if err != nil {
		return err
	}
	if err := e.Ledger.SetMachine(ctx, p.Machine.ID, director.MachinePresent, vm.Host, string(vm.ID)); err != nil {
		return err
	}
	if !vm.Ready {
		return plan.After(2*time.Second, "the hypervisor is making "+p.Machine.Name)
	}
	return nil
}

// present makes the VM, or switches on one that was adopted: that is as its maker wanted it.
func (e vmSteps) present(
	ctx context.Context, b hypervisor.Backend, s hypervisor.Spec, have []hypervisor.VM,
) (hypervisor.VM, error) {
	adopted, err := e.adoptedKey(ctx, s.Key.Machine)
	if err != nil {
		return hypervisor.VM{}, err
	}
	if adopted == "" || len(have) != 1 {
		return b.Ensure(ctx, s)
	}
	if err := b.SetPower(ctx, have[0].ID, hypervisor.PowerOn); err != nil {
		return hypervisor.VM{}, err
	}
	return b.Get(ctx, have[0].ID)
}

// longestWait is how long a step waits before it looks at the creation budget again: it may have been raised.
const longestWait = 5 * time.Minute

// creationPatience is how long a step may wait for its turn: a large plan takes days under a small budget, which is
// what the budget is for.
const creationPatience = 30 * 24 * time.Hour

// mayCreate takes one of the creation budgets, or has the step wait for it. A step takes one once, however often it is
// tried.
func (e vmSteps) mayCreate(ctx context.Context, r plan.Run, m plan.MachineSpec) error {
	if e.Allowances == nil {
		return nil
	}
	limits, err := e.Allowances(ctx, m.Provider)
	if err != nil {
		return err
	}
	c := director.Creation{Step: r.Step.ID, Provider: m.Provider, Machine: m.ID}
	if r.Plan != nil {
		c.Plan = r.Plan.ID
	}
	now := e.Now()
	usedUp, until, err := e.Ledger.TakeCreation(ctx, c, limits, now)
	if err != nil || usedUp == nil {
		return err
	}
	wait := min(max(until.Sub(now), time.Second), longestWait)
	return plan.AfterWithin(creationPatience, wait, "the creation budget is used up: "+usedUp.String()+
		"; there is room again at "+until.UTC().Format("2006-01-02 15:04:05")+
		" UTC. If so many VMs are meant, raise it; if not, cancel the plan")
}

// lastAnswers is how long a VM may still answer that was deleted a moment ago, before its address counts as taken.
const lastAnswers = 20 * time.Second

// addressFree refuses addresses of the machine at which a host answers already. A host that drops packets stays unseen.
func (e vmSteps) addressFree(ctx context.Context, m director.Machine) error {
	for _, n := range append([]director.NIC{{Network: m.Network, Address: m.Address}}, m.NICs...) {
		of := m
		of.Network, of.Address = n.Network, n.Address
		taken, err := e.stillAnswers(ctx, of)
		if taken {
			return &director.Error{
				Kind: director.KindConflict, Op: "steps.address",
				Msg: "a host that the director did not make answers at " + n.Address, Err: err,
				Hint: "add the address to spec.pool.exclude of Network/" + n.Network +
					", discard this plan and plan again",
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stillAnswers asks once a second, for lastAnswers, as long as there is an answer.
func (e vmSteps) stillAnswers(ctx context.Context, m director.Machine) (bool, error) {
	last, tick := time.NewTimer(lastAnswers), time.NewTicker(time.Second)
	defer last.Stop()
	defer tick.Stop()
	for {
		taken, err := e.Nodes.Answers(ctx, m)
		if !taken || err != nil {
			return taken, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-last.C:
			return true, nil
		case <-tick.C:
		}
	}
}

// vmSpec is the VM with what its guest is told at its first boot, and with the files that a node finds then.
func (e vmSteps) vmSpec(
	ctx context.Context, uid string, p step.VMParams, files ...cloudinit.File,
) (hypervisor.Spec, error) {
	spec, err := e.bareSpec(ctx, p)
	if err != nil {
		return spec, err
	}
	if p.Appliance != nil {
		spec.Seed, err = e.applianceSeed(ctx, p, spec.NICs[0])
	} else {
		spec.Seed, err = e.nodeSeed(ctx, uid, p, spec, files)
	}
	return spec, err
}

// bareSpec is the VM without that.
func (e vmSteps) bareSpec(ctx context.Context, p step.VMParams) (hypervisor.Spec, error) {
	m := p.Machine
	addr, err := prefixOf(m.Address, p.Network.CIDR)
	if err != nil {
		return hypervisor.Spec{}, err
	}
	spec := hypervisor.Spec{
		Key: e.stamp(m.ID), Name: m.Name, Group: m.Cluster, Apart: m.Role == director.RoleMaster, Host: m.Host,
		CPUs: m.CPUs, Memory: m.Memory, Image: p.ImageName, RootDisk: int64(p.Disk),
		NICs: []hypervisor.NIC{{
			Network: m.Network, PortGroup: p.Network.PortGroup, MAC: m.MAC, Addresses: []netip.Prefix{addr},
			Gateway: p.Network.Gateway, DNS: p.Network.DNS,
			Routes: append(routesOf(p.Network.Routes), routesOf(p.Routes)...),
		}},
	}
	for _, n := range p.NICs {
		nic, err := furtherNIC(m, n)
		if err != nil {
			return hypervisor.Spec{}, err
		}
		if n.DefaultRoute {
			spec.NICs[0].Gateway = netip.Addr{}
		}
		spec.NICs = append(spec.NICs, nic)
	}
	spec.DataDisks, err = e.disk().dataDisks(ctx, p)
	return spec, err
}

// nodeSeed is what a node reads at its first boot; nothing once it has booted.
func (e vmSteps) nodeSeed(
	ctx context.Context, uid string, p step.VMParams, spec hypervisor.Spec, files []cloudinit.File,
) (hypervisor.Seed, error) {
	m := p.Machine
	key, err := e.HostKey(ctx, m.ID)
	if err != nil || key.Private == "" { // it has booted, and its seed is not wanted any more
		return hypervisor.Seed{}, err
	}
	ca, err := e.Guest(ctx, uid, m.ID)
	if err != nil {
		return hypervisor.Seed{}, err
	}
	guest := cloudinit.Guest{
		InstanceID: m.ID, Hostname: m.Name, AuthorizedKeys: slices.Clone(p.SSHKeys), UserCA: &ca, HostKey: key,
		NICs: spec.NICs, NTP: p.Network.NTP,
		CleanUp: cloudinit.CleanUp{What: p.CleanUp.What, Paths: p.CleanUp.Paths}, Files: files,
	}
	for _, a := range p.Hosts {
		guest.HostAliases = append(guest.HostAliases, cloudinit.HostAlias{Address: a.Address, Names: a.Names})
	}
	describe(&guest, p)
	guest.DataDisk = e.disk().guestDisk(p, spec.DataDisks)
	return cloudinit.Render(guest)
}

// furtherNIC returns an further adapter, with its own address.
func furtherNIC(m plan.MachineSpec, p step.NICParams) (hypervisor.NIC, error) {
	for _, n := range m.NICs {
		if n.Role != p.Role {
			continue
		}
		addr, err := prefixOf(n.Address, p.Network.CIDR)
		if err != nil {
			return hypervisor.NIC{}, err
		}
		nic := hypervisor.NIC{
			Network: n.Network, PortGroup: p.Network.PortGroup, MAC: n.MAC, Addresses: []netip.Prefix{addr},
			DNS: p.Network.DNS, Routes: routesOf(p.Network.Routes),
		}
		if p.DefaultRoute {
			nic.Gateway = p.Network.Gateway
		}
		return nic, nil
	}
	return hypervisor.NIC{}, director.Errorf(
		director.KindInternal, "steps.nic", "machine %s has no adapter for %s", m.Name, p.Role,
	).
		WithHint("the plan was made by another version: discard it and plan again")
}

func routesOf(routes []model.Route) []hypervisor.Route {
	var out []hypervisor.Route
	for _, r := range routes {
		out = append(out, hypervisor.Route(r))
	}
	return out
}

// HostKey returns the SSH host key of the machine, and makes it at the first call. A machine that has made its own has
// told the public part alone. It is safe to call concurrently.
func (e Keys) HostKey(ctx context.Context, machine string) (cloudinit.HostKey, error) {
	return keyring(e).ensure(ctx, machine, SecretHostKey)
}

// KnownHostKey returns the machine's SSH host key if there is one, and an empty one before HostKey has made it.
func (e Keys) KnownHostKey(ctx context.Context, machine string) (cloudinit.HostKey, error) {
	return keyring(e).known(ctx, machine, SecretHostKey)
}

// vmBoot waits until the node answers over SSH with its own host key and cloud-init has ended. A VM made by others is
// told nothing about its data disk at boot, so that is mounted then.
func (e vmSteps) vmBoot(ctx context.Context, r plan.Run, p step.VMParams) error {
	if err := e.wasMade(ctx, r, p.Machine); err != nil {
		return err
	}
	if e.outlived(r) { // remake may have been cut off
		if err := e.vmEnsure(ctx, r, p); err != nil {
			return err
		}
	}
	r.Note(ctx, "waiting for SSH at "+p.Machine.Address)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last error
	remade := false
	for {
		out, key, adopted, err := e.contact(ctx, p.Machine.Row())
		switch {
		case errors.Is(err, errHostKey) && !remade:
			if err := e.remake(ctx, r, p, err); err != nil {
				return err
			}
			remade = true
		case err != nil && director.KindOf(err) == director.KindConflict:
			return err
		case err == nil && strings.TrimSpace(out) != "":
			if err := cloudInitResult(p.Machine.Name, out); err != nil {
				return err
			}
			if !adopted {
				if err := e.forgetSeed(ctx, r, p, key); err != nil {
					return err
				}
			}
			if adopted {
				if err := e.disk().mountDisk(ctx, r, p, key); err != nil {
					return err
				}
			}
			return e.firstBoot(ctx, r, p, key, adopted)
		case err == nil:
			r.Note(ctx, "SSH answers, cloud-init runs")
		}
		last = err
		select {
		case <-ctx.Done():
			return e.bootTimeout(ctx, p, last)
		case <-tick.C:
		}
	}
}

// bootTimeout explains a VM that did not come up by what it printed last.
func (e vmSteps) bootTimeout(ctx context.Context, p step.VMParams, last error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	err := director.Errorf(
		director.KindUnavailable, "vm.boot", "%s did not come up at %s: %w", p.Machine.Name, p.Machine.Address,
		errors.Join(last, ctx.Err()),
	).
		WithHint("look at the VM's console; check that the network lets the director reach its range")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	b, berr := e.backend(ctx, p.Machine.Provider)
	if berr != nil {
		return err
	}
	vms, lerr := b.List(ctx, hypervisor.Filter{Director: e.Director, Machine: p.Machine.ID})
	if lerr != nil || len(vms) != 1 || p.Machine.ID == "" {
		return err
	}
	if d, ok := hypervisor.Capability[hypervisor.Diagnoser](b); ok {
		diagnosed(ctx, err, d, vms[0].ID)
	}
	if console, ok := hypervisor.Capability[hypervisor.Console](b); ok {
		if tail, terr := console.ConsoleTail(ctx, vms[0].ID, 2000); terr == nil && len(tail) > 0 {
			err.Msg += "; its console ends with:\n" + printable(tail)
		}
	}
	return err
}

// diagnosed adds what the hypervisor sees of the guest. What to do about the first of it comes before all else.
func diagnosed(ctx context.Context, err *director.Error, d hypervisor.Diagnoser, id hypervisor.ID) {
	probes, derr := d.Diagnose(ctx, id)
	if derr != nil {
		return
	}
	first := true
	for _, p := range probes {
		if p.Err == nil {
			continue
		}
		wrong, ok := errors.AsType[*director.Error](p.Err)
		if !ok {
			continue
		}
		err.Msg += "; " + wrong.Msg
		if first && wrong.Hint != "" {
			err.Hint, first = wrong.Hint+"; "+err.Hint, false
		}
	}
}

// printable takes the control sequences of a terminal out of what a console printed.
func printable(console []byte) string {
	text := escapes.ReplaceAll(console, nil)
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, string(text)))
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// cloudInitResult reads cloud-init's own verdict.
func cloudInitResult(name, text string) error {
	var result struct {
		V1 struct {
			Errors []string `json:"errors"`
		} `json:"v1"`
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		return director.Errorf(
			director.KindUnavailable, "vm.boot", "the result of cloud-init on %s cannot be read: %w", name, err,
		)
	}
	if len(result.V1.Errors) > 0 {
		return director.Errorf(
			director.KindInternal, "vm.boot", "cloud-init on %s failed: %s", name, strings.Join(result.V1.Errors, "; "),
		).
			WithHint("read /var/log/cloud-init-output.log on the node")
	}
	return nil
}

// vmDelete takes the VM away for good. Its disks are kept but those that the plan names.
func (e vmSteps) vmDelete(ctx context.Context, r plan.Run, p step.VMParams) error {
	if lost, err := e.hostLost(ctx, p.Machine); err != nil {
		return err
	} else if lost {
		return e.giveUp(ctx, r, p, func() error { return e.Moves.LoseMachine(ctx, p.Machine.ID, e.Now()) })
	}
	if err := e.unmakeVM(ctx, r, p, true); err != nil {
		return err
	}
	return e.Ledger.BuryMachine(ctx, p.Machine.ID, e.Now())
}

// vmUndo undoes what vm.ensure did. The data disk of a machine that was never a node holds no data, and goes too.
func (e vmSteps) vmUndo(ctx context.Context, r plan.Run, p step.VMParams) error {
	p.DeleteData = nil
	member, err := e.disk().member(ctx, p.Machine.ID)
	if err != nil {
		return err
	}
	if !member {
		p.DeleteData = []string{director.DiskID(p.Machine.ID, director.DataDiskSerial)}
	}
	return e.vmDelete(ctx, r, p)
}

// vmRemove takes the VM away and keeps its row and its data disk for the one that follows.
func (e vmSteps) vmRemove(ctx context.Context, r plan.Run, p step.VMParams) error {
	if err := e.onLostHost(ctx, p.Machine); err != nil {
		return err
	}
	if err := e.unmakeVM(ctx, r, p, false); err != nil {
		return err
	}
	return e.Ledger.RemoveVM(ctx, p.Machine.ID)
}

// directorStops is how long the VM of a director may take to shut down, before it is switched off. The director in it
// stops between two acts of the steps that it runs, for which its service gives it 45 seconds.
const directorStops = 3 * time.Minute

// unmakeVM deletes the VM. If it goes for good, the disks that outlive it are written down before, and those that the
// plan names are deleted after.
func (e vmSteps) unmakeVM(ctx context.Context, r plan.Run, p step.VMParams, forGood bool) error {
	b, err := e.backend(ctx, p.Machine.Provider)
	if err != nil {
		return err
	}
	if err := e.Ledger.SetMachine(ctx, p.Machine.ID, director.MachineDeleting, "", ""); err != nil {
		return err
	}
	// Found by the stamp and not by the ledger's id: a creation may have died before the id was written down.
	vms, err := b.List(ctx, hypervisor.Filter{Director: e.Director, Machine: p.Machine.ID})
	if err != nil {
		return err
	}
	left, err := e.disk().outliving(ctx, r, b, vms, p, forGood)
	if err != nil {
		return err
	}
	if e.Disks != nil {
		if err := e.Disks.KeepDisks(ctx, left); err != nil {
			return err
		}
	}
	o := hypervisor.DeleteOptions{Owner: e.stamp(p.Machine.ID)}
	if p.Appliance != nil {
		o.Grace = directorStops
	}
	if forGood {
		o.Label = hypervisor.DiskLabel{Cluster: p.Machine.Cluster, Pool: p.Machine.Pool, Node: p.Machine.Name}
	}
	for _, vm := range vms {
		r.Note(ctx, "deleting VM "+vm.Name+" on "+vm.Host)
		if err := b.Delete(ctx, vm.ID, o); err != nil {
			return err
		}
	}
	if err := e.disown(ctx, p.Machine.ID); err != nil || !forGood {
		return err
	}
	return e.disk().dropDisks(ctx, r, b, p, left)
}

// BundleDigest returns the SHA-256 of the bundle's release.yaml, which pins everything in it.
func BundleDigest(dir string) (string, error) {
	text, err := confine.Read(filepath.Join(dir, bundle.DocumentName), bundle.MostDocument)
	if err != nil {
		return "", director.Errorf(
			director.KindNotFound, "steps.bundle", "there is no release bundle in %s: %w", dir, err,
		).
			WithHint("unpack the bundle on the director and name its directory in spec.bundle")
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
