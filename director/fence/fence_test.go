package fence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/store"
)

// ward is a ledger and a hypervisor with three hosts, on which a VM was given up with h1 and another one runs on.
type ward struct {
	t     *testing.T
	db    *store.Store
	world *sim.World
	given hypervisor.VM
	other hypervisor.VM
}

func (w ward) Backend(ctx context.Context, provider string) (hypervisor.Backend, error) {
	lost, err := w.db.LostHosts(ctx, provider)
	var names []string
	for _, h := range lost {
		names = append(names, h.Host)
	}
	return sim.Open(w.world).Without(names...), err
}

func openWard(t *testing.T) ward {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	host := func(name string) sim.Host { return sim.Host{Name: name, CPUs: 8, Memory: 1 << 36, Disk: 1 << 40} }
	w := ward{t: t, db: db, world: sim.NewWorld(host("h1"), host("h2"), host("h3"))}
	b := sim.Open(w.world)
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, []byte("image"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("image"))
	if err := b.EnsureImage(
		t.Context(), hypervisor.ImageSpec{Name: "i", Path: path, SHA256: hex.EncodeToString(sum[:]), Format: "qcow2"},
		nil,
	); err != nil {
		t.Fatal(err)
	}
	err = b.EnsureNetwork(t.Context(), hypervisor.NetworkSpec{
		Owner: director.Stamp{Director: db.DirectorID(), Machine: "net"}, Name: "net", Mode: "nat",
		CIDR: netip.MustParsePrefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	make := func(id, host, mac string) hypervisor.VM {
		vm, err := b.Ensure(t.Context(), hypervisor.Spec{
			Key: director.Stamp{Director: db.DirectorID(), Machine: id}, Name: "demo-" + id, Host: host, CPUs: 1,
			Memory: 1 << 30, Image: "i", RootDisk: 1 << 30,
			NICs: []hypervisor.NIC{{Network: "net", MAC: mac}}, Seed: hypervisor.Seed{MetaData: []byte("x")},
		})
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(t.Context(), func(tx *store.Tx) error {
			return tx.IntendMachine(director.Machine{
				ID: id, Cluster: "demo", ClusterUID: "u", Name: "demo-" + id, Provider: "lab", Host: host,
				Network: "net", Address: "10.1.0." + id[1:], MAC: mac,
			}, time.Now())
		})
		if err != nil {
			t.Fatal(err)
		}
		return vm
	}
	w.given, w.other = make("m2", "h1", "52:54:00:00:00:02"), make("m3", "h1", "52:54:00:00:00:03")
	next := director.Machine{
		ID: "m4", Cluster: "demo", ClusterUID: "u", Name: "demo-m2", Provider: "lab", Host: "h2", Network: "net",
		Address: "10.1.0.4", MAC: "52:54:00:00:00:04",
	}
	for range 2 { // it can be repeated
		if err := db.MoveMachine(t.Context(), "m2", true, next, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	err = db.KeepDisks(t.Context(), []director.KeptDisk{
		{
			ID: "m2.data", Provider: "lab", Host: "h1", Machine: "m2", Serial: "data", Node: "demo-m2", Holder: "m2",
			Kept: time.Now(),
		},
	})
	if err == nil {
		err = db.Update(t.Context(), func(tx *store.Tx) error {
			return tx.LoseHost(director.LostHost{Provider: "lab", Host: "h1", By: "ann", Plan: "p", At: time.Now()})
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.world.SetReachable("h1", false)
	return w
}

func (w ward) sweep() error {
	return New(w.db, w, w.db.DirectorID(), time.Now, slog.New(slog.DiscardHandler)).Sweep(w.t.Context())
}

// state tells which hosts are lost, which machines are given up, and how the two VMs on h1 are.
func (w ward) state() string {
	w.t.Helper()
	hosts, err := w.db.LostHosts(w.t.Context(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	machines, err := w.db.LostMachines(w.t.Context(), "lab")
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, h := range hosts {
		out = append(out, "lost "+h.Host+" by "+h.By)
	}
	for _, m := range machines {
		out = append(out, "given up "+m.ID+" "+m.Address)
	}
	b := sim.Open(w.world.Clone().Reach())
	for _, vm := range []hypervisor.VM{w.given, w.other} {
		now, err := b.Get(w.t.Context(), vm.ID)
		if director.KindOf(err) == director.KindNotFound && err != nil {
			out = append(out, vm.Name+" gone")
			continue
		}
		out = append(out, vm.Name+" "+string(now.Power))
	}
	return strings.Join(out, ", ")
}

func (w ward) want(state string) {
	w.t.Helper()
	if got := w.state(); got != state {
		w.t.Errorf("got %q, want %q", got, state)
	}
}

// What was given up is off before the host is no longer lost, at whichever call the sweep is cut off; what else runs
// there is left alone.
func TestSweep(t *testing.T) {
	t.Parallel()
	const silent, back = "lost h1 by ann, given up m2 10.1.0.2, demo-m2 on, demo-m3 on", "given up m2 10.1.0.2, " +
		"demo-m2 off, demo-m3 on"
	w := openWard(t)
	if err := w.sweep(); err != nil {
		t.Fatal(err)
	}
	w.want(silent)
	w.world.SetReachable("h1", true)
	for _, verb := range []sim.Verb{sim.VerbHostStates, sim.VerbList, sim.VerbFence} {
		w.world.Inject(sim.Fault{Verb: verb, When: sim.Before})
		if err := w.sweep(); director.KindOf(err) != director.KindUnavailable {
			t.Errorf("cut off at %s: %v", verb, err)
		}
		w.want(silent)
	}
	w.world.Inject(sim.Fault{Verb: sim.VerbFence, When: sim.After})
	if err := w.sweep(); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("cut off behind the act: %v", err)
	}
	for range 2 {
		if err := w.sweep(); err != nil {
			t.Fatal(err)
		}
		w.want(back)
	}
	b := sim.Open(w.world)
	if err := b.SetPower(t.Context(), w.given.ID, hypervisor.PowerOn); err != nil { // by hand
		t.Fatal(err)
	}
	if err := w.sweep(); err != nil {
		t.Fatal(err)
	}
	w.want(back)
	w.world.SetReachable("h3", false)
	if err := b.Delete(t.Context(), w.given.ID, hypervisor.DeleteOptions{
		Owner: w.given.Stamp,
	}); director.KindOf(err) != director.KindUnavailable && err != nil {
		t.Fatal(err)
	}
	if err := w.sweep(); err != nil {
		t.Fatal(err)
	}
	w.want("given up m2 10.1.0.2, demo-m2 gone, demo-m3 on") // it may be on h3, for all that anybody knows
	w.world.SetReachable("h3", true)
	if err := w.sweep(); err != nil {
		t.Fatal(err)
	}
	w.want("demo-m2 gone, demo-m3 on")
	if disks, err := w.db.KeptDisks(
		t.Context(), store.DiskFilter{},
	); err != nil || len(disks) != 1 || !disks[0].Free() {
		t.Errorf("the disks are %+v, %v", disks, err)
	}
}

// A host that an administrator takes off its provider never comes back, and neither does what was given up there.
func TestSweepWithoutTheHost(t *testing.T) {
	t.Parallel()
	w := openWard(t)
	w.world = sim.NewWorld(sim.Host{Name: "h2"}, sim.Host{Name: "h3"})
	if err := w.sweep(); err != nil {
		t.Fatal(err)
	}
	w.want("demo-m2 gone, demo-m3 gone")
}
