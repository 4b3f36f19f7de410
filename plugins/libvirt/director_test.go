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

// The VM of a director is made, loses its seed when the director is ready, and goes without its data disk.
func TestDirectorOnLibvirt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	b := f.open(t)
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	r := &registry{secrets: map[string][]byte{}, kept: map[string]director.KeptDisk{}}
	id := hypervisortest.RandomID("m")
	env := steps.Env{
		Director: hypervisortest.RandomID("d"), Ledger: r, Disks: r, Secrets: r, Sealer: box, Directors: r,
		Backends: servicetest.Backend{B: b}, Nodes: servicetest.Nowhere{}, Now: time.Now,
		Steady: steady.Wait{For: time.Millisecond, Every: time.Millisecond},
		Ring:   func(context.Context, director.Machine, string, string) error { return nil },
	}
	doc := model.Director{DataDisk: 64 * model.MiB}
	machine := plan.MachineSpec{
		ID: id, ClusterUID: "u1", Cluster: "outer", Name: hypervisortest.RandomID("outer-"), Provider: "lab",
		Address: "10.77.0.20", MAC: "52:54:00:00:00:01", Network: f.network, CPUs: 1, Memory: 64 << 20,
	}
	vm := step.VMParams{
		Machine: machine, ImageName: f.image, Disk: 128 * model.MiB, DataDisk: doc.DataDisk, Appliance: &doc,
		Network: model.Network{CIDR: netip.MustParsePrefix("10.77.0.0/24"), Gateway: netip.MustParseAddr("10.77.0.1")},
	}
	own := step.DirectorParams{UID: "u1", Name: "outer", Document: doc, Machine: machine}
	run := func(kind string, params any) {
		t.Helper()
		text, err := json.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		at := plan.Run{
			Plan: &plan.Plan{ID: "p1"}, Step: plan.Step{Params: text}, Note: func(context.Context, string) {},
		}
		handler := steps.Handlers(env)[kind]
		for err = handler.Run(t.Context(), at); plan.OutcomeOf(err).Kind == plan.NotReady; {
			err = handler.Run(t.Context(), at)
		}
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
	list := func() []hypervisor.VM {
		t.Helper()
		vms, err := b.List(t.Context(), hypervisor.Filter{Director: env.Director})
		if err != nil {
			t.Fatal(err)
		}
		return vms
	}
	seeded := func() bool {
		t.Helper()
		dom, err := f.keep.LookupDomainByName(machine.Name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := dom.GetXMLDesc(virt.DOMAIN_XML_INACTIVE)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(text, "seed")
	}
	for range 2 {
		run(step.VMEnsure, vm)
	}
	if vms := list(); len(vms) != 1 || !seeded() || r.state != director.MachinePresent {
		t.Errorf("VMs %+v, a seed: %t, the ledger says %q", vms, seeded(), r.state)
	}
	for range 2 {
		run(step.DirectorReady, own)
	}
	run(step.DirectorRecord, own)
	if seeded() {
		t.Error("the VM has its seed still")
	}
	for range 2 {
		run(step.VMDelete, vm)
	}
	run(step.DirectorForget, own)
	if len(list()) > 0 || len(r.kept) != 1 || !r.forgot {
		t.Errorf("VMs %v, kept disks %v, forgotten: %t", list(), r.kept, r.forgot)
	}
	owner := director.Stamp{Director: env.Director, Machine: id}
	if err := b.DeleteVolume(t.Context(), owner, director.DataDiskSerial); err != nil {
		t.Error(err)
	}
}
