package libvirt

import (
	"context"
	"encoding/json"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/steady"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
)

// registry is what the steps for a director's VM write down.
type registry struct {
	steps.Ledger
	steps.Disks
	secrets map[string][]byte
	kept    map[string]director.KeptDisk
	state   director.MachineState
	forgot  bool
}

func (r *registry) Secret(_ context.Context, owner, name string) ([]byte, error) {
	return r.secrets[owner+name], nil
}

func (r *registry) SecretsOf(_ context.Context, owners, names []string) (map[[2]string][]byte, error) {
	all := map[[2]string][]byte{}
	for _, owner := range owners {
		for _, name := range names {
			if sealed := r.secrets[owner+name]; sealed != nil {
				all[[2]string{owner, name}] = sealed
			}
		}
	}
	return all, nil
}

func (r *registry) AddSecret(ctx context.Context, owner, name string, sealed []byte) ([]byte, error) {
	if r.secrets[owner+name] == nil {
		r.secrets[owner+name] = sealed
	}
	return r.Secret(ctx, owner, name)
}

func (r *registry) SetSecret(_ context.Context, owner, name string, sealed []byte) error {
	r.secrets[owner+name] = sealed
	return nil
}

func (*registry) IntendAgain(context.Context, director.Machine, time.Time) error { return nil }

func (r *registry) SetMachine(_ context.Context, _ string, s director.MachineState, _, _ string) error {
	r.state = s
	return nil
}

func (r *registry) BuryMachine(context.Context, string, time.Time) error {
	r.state = ""
	return nil
}

func (*registry) DisksOf(context.Context, string) ([]director.KeptDisk, error) { return nil, nil }

func (r *registry) KeepDisks(_ context.Context, disks []director.KeptDisk) error {
	for _, d := range disks {
		r.kept[d.ID] = d
	}
	return nil
}

func (*registry) FirstBoot(context.Context, string, model.Director) (steps.FirstBoot, error) {
	return steps.FirstBoot{PasswordHash: "$argon2id$hash"}, nil
}

func (*registry) DirectorInstalled(context.Context, step.DirectorParams, time.Time) error { return nil }

func (r *registry) ForgetDirector(context.Context, step.DirectorParams, string, time.Time) error {
	r.forgot = true
	return nil
}

func (*registry) RemoveVM(context.Context, string) error { return nil }

func (r *registry) ForgetDisk(_ context.Context, id string) error {
	delete(r.kept, id)
	return nil
}

// outerDirector is a director that makes the VM of another one on libvirt's test driver.
type outerDirector struct {
	*fixture
	*registry
	hypervisor.Backend
	env steps.Env
	vm  step.VMParams
	own step.DirectorParams
}

func newOuterDirector(t *testing.T) outerDirector {
	t.Helper()
	f := newFixture(t, "test:///default", "default-pool")
	b := f.open(t)
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	r := &registry{secrets: map[string][]byte{}, kept: map[string]director.KeptDisk{}}
	doc := model.Director{DataDisk: 64 * model.MiB}
	machine := plan.MachineSpec{
		ID: hypervisortest.RandomID("m"), ClusterUID: "u1", Cluster: "outer", Name: hypervisortest.RandomID("outer-"),
		Provider: "lab", Address: "10.77.0.20", MAC: "52:54:00:00:00:01", Network: f.network, CPUs: 1,
		Memory: 64 << 20,
	}
	return outerDirector{
		fixture: f, registry: r, Backend: b, env: steps.Env{
			Installation: steps.Installation{Director: hypervisortest.RandomID("d"), Now: time.Now},
			Machines: steps.Machines{
				Ledger: r, Disks: r, Backends: servicetest.Backend{B: b}, Nodes: servicetest.Nowhere{},
			},
			Clusters: steps.Clusters{Keys: steps.Keys{Secrets: r, Sealer: box}},
			Appliances: steps.Appliances{
				Directors: r, Steady: steady.Wait{For: time.Millisecond, Every: time.Millisecond},
				Ring: func(context.Context, director.Machine, string, string) error { return nil },
			},
		},
		vm: step.VMParams{
			Machine: machine, ImageName: f.image, Disk: 128 * model.MiB, DataDisk: doc.DataDisk, Appliance: &doc,
			Network: model.Network{
				CIDR: netip.MustParsePrefix("10.77.0.0/24"), Gateway: netip.MustParseAddr("10.77.0.1"),
			},
		},
		own: step.DirectorParams{UID: "u1", Name: "outer", Document: doc, Machine: machine},
	}
}

// run runs a step twice, as after a kill between its end and the note of it.
func (o outerDirector) run(t *testing.T, kind string, params any) {
	t.Helper()
	text, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	at := plan.Run{
		Plan: &plan.Plan{ID: "p1"}, Step: plan.Step{Params: text}, Note: func(context.Context, string) {},
	}
	handler := steps.Handlers(o.env)[kind]
	for range 2 {
		for err = handler.Run(t.Context(), at); plan.OutcomeOf(err).Kind == plan.NotReady; {
			err = handler.Run(t.Context(), at)
		}
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
}

func (o outerDirector) vms(t *testing.T) []hypervisor.VM {
	t.Helper()
	vms, err := o.List(t.Context(), hypervisor.Filter{Director: o.env.Director})
	if err != nil {
		t.Fatal(err)
	}
	return vms
}

// dataDisks is how many data disks there are, with copies.
func (o outerDirector) dataDisks(t *testing.T) int {
	t.Helper()
	volumes, _ := hypervisor.Capability[hypervisor.Volumes](o.Backend)
	list, err := volumes.ListVolumes(t.Context(), o.env.Director)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func (o outerDirector) seeded(t *testing.T) bool {
	t.Helper()
	dom, err := o.keep.LookupDomainByName(o.vm.Machine.Name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := dom.GetXMLDesc(virt.DOMAIN_XML_INACTIVE)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(text, "seed")
}

// end takes the VM and its data disk away.
func (o outerDirector) end(t *testing.T) {
	t.Helper()
	o.run(t, step.VMDelete, o.vm)
	o.run(t, step.DirectorForget, o.own)
	if len(o.vms(t)) > 0 || len(o.kept) != 1 || !o.forgot {
		t.Errorf("VMs %v, kept disks %v, forgotten: %t", o.vms(t), o.kept, o.forgot)
	}
	volumes, _ := hypervisor.Capability[hypervisor.Volumes](o.Backend)
	owner := director.Stamp{Director: o.env.Director, Machine: o.vm.Machine.ID}
	if err := volumes.DeleteVolume(t.Context(), owner, director.DataDiskSerial); err != nil {
		t.Error(err)
	}
}

// The VM of a director is made, loses its seed when the director is ready, and goes without its data disk.
func TestDirectorOnLibvirt(t *testing.T) {
	t.Parallel()
	o := newOuterDirector(t)
	o.run(t, step.VMEnsure, o.vm)
	if vms := o.vms(t); len(vms) != 1 || !o.seeded(t) || o.state != director.MachinePresent {
		t.Errorf("VMs %+v, a seed: %t, the ledger says %q", vms, o.seeded(t), o.state)
	}
	o.run(t, step.DirectorReady, o.own)
	o.run(t, step.DirectorRecord, o.own)
	if o.seeded(t) {
		t.Error("the VM has its seed still")
	}
	o.end(t)
}

// The VM of a director is made again in front of the same data disk, and goes back to what it was. No copy is left.
func TestDirectorIsUpgradedOnLibvirt(t *testing.T) {
	t.Parallel()
	o := newOuterDirector(t)
	o.run(t, step.VMEnsure, o.vm)
	o.run(t, step.DirectorReady, o.own)
	copied := step.CopyParams{Machine: o.vm.Machine, Size: o.vm.DataDisk}
	larger := o.vm
	larger.Machine.CPUs = 2
	is := func(when string, vm step.VMParams, disks int) {
		t.Helper()
		vms := o.vms(t)
		if len(vms) != 1 || vms[0].CPUs != vm.Machine.CPUs || vms[0].Power != hypervisor.PowerOn || o.seeded(t) {
			t.Errorf("%s: %+v, with a seed: %t", when, vms, o.seeded(t))
		}
		if n := o.dataDisks(t); n != disks || len(o.kept) != disks-1 {
			t.Errorf("%s: %d data disks, and the ledger has %v", when, n, o.kept)
		}
	}
	o.run(t, step.DirectorCheck, o.own)
	o.run(t, step.VMRemove, larger)
	o.run(t, step.CopyMake, copied)
	o.run(t, step.VMEnsure, larger)
	o.run(t, step.DirectorReady, o.own)
	is("upgraded", larger, 2)
	o.run(t, step.VMRemove, larger)
	o.run(t, step.CopyRestore, copied)
	o.run(t, step.VMEnsure, o.vm)
	o.run(t, step.DirectorReady, o.own)
	is("back", o.vm, 2)
	o.run(t, step.CopyDelete, copied)
	is("at the end", o.vm, 1)
	o.end(t)
}
