package steps

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/step"
)

// vault keeps blobs by owner and name.
type vault map[[2]string][]byte

func (v vault) Secret(_ context.Context, owner, name string) ([]byte, error) {
	return v[[2]string{owner, name}], nil
}

func (v vault) SecretsOf(_ context.Context, owners, names []string) (map[[2]string][]byte, error) {
	all := map[[2]string][]byte{}
	for k, sealed := range v {
		if slices.Contains(owners, k[0]) && slices.Contains(names, k[1]) {
			all[k] = sealed
		}
	}
	return all, nil
}

func (v vault) AddSecret(_ context.Context, owner, name string, sealed []byte) ([]byte, error) {
	k := [2]string{owner, name}
	if v[k] == nil {
		v[k] = sealed
	}
	return v[k], nil
}

func (v vault) SetSecret(_ context.Context, owner, name string, sealed []byte) error {
	if k := [2]string{owner, name}; sealed != nil {
		v[k] = sealed
	} else {
		delete(v, k)
	}
	return nil
}

// places is a ledger that remembers where machines were seen last.
type places struct {
	Ledger
	id map[string]string
}

func (places) IntendAgain(context.Context, director.Machine, time.Time) error { return nil }

func (p places) SetMachine(_ context.Context, id string, _ director.MachineState, _, vmID string) error {
	p.id[id] = vmID
	return nil
}

func (p places) RemoveVM(_ context.Context, id string) error {
	delete(p.id, id)
	return nil
}

// booting are machines that answer to whoever knows their host key.
type booting struct {
	key    string
	script *string
}

func (booting) Answers(context.Context, director.Machine) (bool, error) { return false, nil }

func (b booting) CloudInit(_ context.Context, m director.Machine, hostKey string) (string, error) {
	if hostKey != b.key {
		return "", hostKeyError(m, errHostKey)
	}
	return `{"v1": {}}`, nil
}

func (b booting) NextHostKey(_ context.Context, m director.Machine, hostKey string) (string, error) {
	if hostKey != b.key {
		return "", hostKeyError(m, errHostKey)
	}
	return hostKey, nil
}

func (b booting) TakeHostKey(ctx context.Context, m director.Machine, hostKey, _ string) error {
	_, err := b.NextHostKey(ctx, m, hostKey)
	return err
}

func (booting) HostCertificate(context.Context, director.Machine) (string, error) { return "", nil }

func (booting) FirstBoot(context.Context, director.Machine, string, bool) (cloudinit.Report, error) {
	return cloudinit.Report{}, nil
}

func (b booting) Script(_ context.Context, _ director.Machine, _, script string) error {
	*b.script = script
	return nil
}

// A VM made by others is taken over with its host key, gets its persisted directories back, and is the director's from
// then on; the one that follows it has the director's own key again.
func TestAdoptedVM(t *testing.T) {
	t.Parallel()
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMBe3Lkx1Wd8XFJdJ5dEhvmEEHsLQYmoLY4n0UfLZkYi"
	world := sim.NewWorld(sim.Host{Name: "h1", CPUs: 8, Memory: 1 << 36, Disk: 1 << 40})
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	back, ledger, script := sim.Open(world), places{id: map[string]string{}}, ""
	env := Env{
		Installation: Installation{Director: "d1", Now: time.Now},
		Machines:     Machines{Backends: oneBackend{back}, Ledger: ledger, Nodes: booting{key, &script}},
		Clusters:     Clusters{Keys: Keys{Secrets: vault{}, Sealer: box}},
	}
	r := plan.Run{Note: func(context.Context, string) {}}
	p := step.VMParams{
		Machine: plan.MachineSpec{
			ID: "m1", ClusterUID: "c1", Name: "demo-w-1", Provider: "lab", Address: "10.88.0.20",
			MAC: "52:54:00:00:00:01",
		}, DataDisk: model.GiB, Persist: []string{"/var/lib/etcd"},
	}
	adopt := func() error { return env.vms().vmAdopt(t.Context(), r, step.AdoptParams{VMParams: p, HostKey: key}) }

	if o := plan.OutcomeOf(
		adopt(),
	); o.Kind != plan.NotReady || !strings.Contains(o.Text, "waits until others have made VM demo-w-1") {
		t.Fatalf("before there is one: %+v", o)
	}
	id := world.AddStranger("demo-w-1")
	for range 2 {
		if err := adopt(); err != nil {
			t.Fatal(err)
		}
	}
	if err := env.vms().vmBoot(
		t.Context(), r, p,
	); err != nil || !strings.Contains(script, "persist /var/lib/etcd") || ledger.id["m1"] != string(id) {
		t.Fatalf("the VM %v was prepared with %q: %v", ledger.id, script, err)
	}
	if got, adopted, err := env.nodeKey(t.Context(), "m1"); got != key || !adopted || err != nil {
		t.Errorf("the key is %q, %t, %v", got, adopted, err)
	}
	if err := back.SetPower(t.Context(), id, hypervisor.PowerOff); err != nil {
		t.Fatal(err)
	}
	p.Network.CIDR, p.Machine.CPUs, p.Machine.Memory = prefix, 2, 1<<32
	if err := env.vms().vmEnsure(t.Context(), r, p); err != nil {
		t.Fatal(err)
	}
	vm, err := back.Get(t.Context(), id)
	if want := (director.Stamp{
		Director: "d1", Machine: "m1",
	}); err != nil || vm.Power != hypervisor.PowerOn || !cmp.Equal(vm.Stamp, want) {
		t.Errorf("it is not switched on as it is: %+v, %v", vm, err)
	}
	if err := env.vms().vmRemove(t.Context(), r, p); err != nil {
		t.Fatal(err)
	}
	if got, adopted, err := env.nodeKey(t.Context(), "m1"); got == key || got == "" || adopted || err != nil {
		t.Errorf("the next VM would have the key %q, %t, %v", got, adopted, err)
	}
	if err := env.vms().vmBoot(
		t.Context(), r, p,
	); director.KindOf(err) != director.KindConflict || !strings.Contains(director.HintOf(err), "--host-key") {
		t.Errorf("another host key than the known one: %v", err)
	}
}
