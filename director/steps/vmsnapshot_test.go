package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// keeping is a director with one VM on a host whose disk has room for as much.
type keeping struct {
	vmSteps
	back *sim.Backend
	id   hypervisor.ID
	p    step.SnapshotParams
}

func newKeeping(t *testing.T, room int64) keeping {
	t.Helper()
	world := sim.NewWorld(sim.Host{Name: "h1", CPUs: 8, Memory: 1 << 36, Disk: room})
	k := keeping{back: sim.Open(world)}
	k.vmSteps = Env{
		Installation: Installation{Director: "d1", Now: time.Now},
		Machines:     Machines{Backends: oneBackend{k.back}},
	}.vms()
	k.p.Machine = plan.MachineSpec{ID: "m1", Name: "demo-w-1", Provider: "lab", Cluster: "demo"}
	furnish(t, k.back)
	vm, err := k.back.Ensure(t.Context(), hypervisor.Spec{
		Image: "node", NICs: []hypervisor.NIC{{Network: "demo", MAC: "52:54:00:00:00:01"}},
		Key: director.Stamp{Director: "d1", Machine: "m1"}, Name: "demo-w-1", CPUs: 1, Memory: 1 << 30,
		RootDisk: 10 << 30, Seed: hypervisor.Seed{UserData: []byte("#cloud-config\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	k.id = vm.ID
	return k
}

// furnish brings an image and a network to the back end, with the names node and demo.
func furnish(t *testing.T, back *sim.Backend) {
	t.Helper()
	image := hypervisor.ImageSpec{Name: "node", Path: filepath.Join(t.TempDir(), "node.img"), Format: "qcow2"}
	text := []byte("a node image")
	sum := sha256.Sum256(text)
	image.SHA256 = hex.EncodeToString(sum[:])
	network := hypervisor.NetworkSpec{
		Owner: director.Stamp{Director: "d1", Machine: "n1"}, Name: "demo", Mode: "isolated",
		CIDR: prefix, Gateway: prefix.Addr().Next(),
	}
	if err := errors.Join(
		os.WriteFile(image.Path, text, 0o600), back.EnsureImage(t.Context(), image, nil),
		back.EnsureNetwork(t.Context(), network),
	); err != nil {
		t.Fatal(err)
	}
}

func (k keeping) run(id string) plan.Run {
	return plan.Run{Plan: &plan.Plan{ID: id}, Note: func(context.Context, string) {}}
}

func (k keeping) names(t *testing.T) (names []string) {
	t.Helper()
	list, err := k.back.ListSnapshots(t.Context(), k.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

func TestAPlanTakesOneSnapshotAndDeletesWhatAFormerOneLeft(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, 1<<40)
	owner := director.Stamp{Director: "d1", Machine: "m1"}
	if _, err := k.back.TakeSnapshot(
		t.Context(), k.id, owner, "by-hand", hypervisor.DefaultSnapshotGuard(),
	); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"p1", "p1", "p2", "p2"} { // each step may run twice
		if err := k.snapshotTake(t.Context(), k.run(id), k.p); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"by-hand", "before-upgrade-p2"}, k.names(t)); diff != "" {
		t.Error(diff)
	}
	for range 2 {
		if err := k.snapshotRevert(t.Context(), k.run("p2"), k.p); err != nil {
			t.Fatal(err)
		}
	}
	if vm, err := k.back.Get(t.Context(), k.id); err != nil || vm.Power != hypervisor.PowerOn {
		t.Errorf("the VM is %+v after the revert: %v", vm, err)
	}
	for range 2 {
		if err := k.snapshotDelete(t.Context(), k.run("p2"), k.p); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"by-hand"}, k.names(t)); diff != "" {
		t.Error(diff)
	}
	if err := k.snapshotRevert(t.Context(), k.run("p2"), k.p); director.KindOf(err) != director.KindNotFound {
		t.Errorf("a revert without a snapshot: %v", err)
	}
}

// A storage without room says what to do instead, and nothing is left.
func TestASnapshotWithoutRoomIsRefused(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, 15<<30)
	err := k.snapshotTake(t.Context(), k.run("p1"), k.p)
	if director.KindOf(err) != director.KindExhausted ||
		!strings.Contains(director.HintOf(err), "spec.maintenance.rollback of Cluster/demo to recreate") {
		t.Errorf("%v (%s)", err, director.HintOf(err))
	}
	if names := k.names(t); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}

// A VM that is gone has no snapshot to delete, and none to go back to.
func TestSnapshotsOfAVMThatIsGone(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, 1<<40)
	owner := director.Stamp{Director: "d1", Machine: "m1"}
	if err := k.back.Delete(t.Context(), k.id, hypervisor.DeleteOptions{Owner: owner}); err != nil {
		t.Fatal(err)
	}
	if err := k.snapshotDelete(t.Context(), k.run("p1"), k.p); err != nil {
		t.Error(err)
	}
	if err := k.snapshotTake(t.Context(), k.run("p1"), k.p); director.KindOf(err) != director.KindNotFound ||
		director.HintOf(err) == "" {
		t.Error(err)
	}
}
