package daemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/wire"
)

// A VM that others have destroyed and recreated under the node's name is taken over by an unlock that knows its host
// key, on a person's word.
func TestUnlockTakesAVMThatSomebodyElseHasMade(t *testing.T) {
	t.Parallel()
	const node, key = takenNode, takenKey
	c := simulating(t, threeHosts)
	c.Approval = "any"
	_, api := created(t, c)
	if _, err := api.AskPhase(
		t.Context(), "early", unlockWith(map[string]string{node: key}),
	); director.KindOf(err) != director.KindConflict ||
		!strings.Contains(err.Error(), "a host key for "+node+", which is not out of its cluster") {
		t.Errorf("a key for a node that was not locked: %v", err)
	}
	wantDone(t, phase(t, api, "lock", director.PhaseRequest{Phase: director.PhasePreNodeLock, Node: node}))

	// Somebody else, at the hypervisor itself.
	world := openWorld(t, c)
	backend := sim.Open(world)
	named := func() []hypervisor.VM {
		t.Helper()
		all, err := backend.List(t.Context(), hypervisor.Filter{Strangers: true})
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(all, func(vm hypervisor.VM) bool { return vm.Name != node })
	}
	ours := named()
	if len(ours) != 1 || ours[0].Stamp == (director.Stamp{}) {
		t.Fatalf("after the lock there is %+v", ours)
	}
	if err := backend.Delete(t.Context(), ours[0].ID, hypervisor.DeleteOptions{Owner: ours[0].Stamp}); err != nil {
		t.Fatal(err)
	}
	theirs := world.AddStranger(node)

	wantBadKeysRefused(t, api)

	task, err := api.AskPhase(t.Context(), "unlock", unlockWith(map[string]string{node: key + " root@new"}))
	if err != nil || task.State != "waiting" || len(task.Clusters) != 1 || len(task.Clusters[0].Plans) != 1 ||
		!strings.Contains(task.Message, "it takes the VM named "+node+" made by others") ||
		!strings.Contains(task.Message, "SHA256:") {
		t.Fatalf("before a person has agreed: %+v, %v", task, err)
	}
	if vms := named(); len(vms) != 1 || vms[0].Stamp != (director.Stamp{}) {
		t.Errorf("it was taken before a person has agreed: %+v", vms)
	}
	p, err := api.Plan(t.Context(), task.Clusters[0].Plans[0].ID)
	if err == nil {
		_, err = api.ApprovePlan(t.Context(), p.ID, p.Hash)
	}
	if err != nil {
		t.Fatal(err)
	}
	task = phase(t, api, "unlock", unlockWith(map[string]string{node: key + " root@new"}))
	wantDone(t, task)
	if got := operationsOf(task); !slices.Equal(got, []string{"node.rejoin"}) {
		t.Errorf("it made plans of %v", got)
	}
	if vms := named(); len(vms) != 1 || vms[0].ID != theirs || vms[0].Stamp != ours[0].Stamp {
		t.Errorf("there is %+v, want the VM %s with the stamp %v", vms, theirs, ours[0].Stamp)
	}
	wantKnownByItsKey(t, api, task)
}

const (
	takenNode = "demo-w-2"
	takenKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMBe3Lkx1Wd8XFJdJ5dEhvmEEHsLQYmoLY4n0UfLZkYi"
)

// unlockWith unlocks the node with these host keys.
func unlockWith(keys map[string]string) director.PhaseRequest {
	r := director.PhaseRequest{Phase: director.PhasePostNodeUnlock, Node: takenNode}
	r.SetHostKeys(keys)
	return r
}

// openWorld opens the pretended hypervisors of a director.
func openWorld(t *testing.T, c Config) *sim.World {
	t.Helper()
	world, err := sim.OpenWorld(simulate.WorldFile(filepath.Join(c.StateDir, "simulation"), "lab"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.Close(); err != nil {
			t.Error(err)
		}
	})
	return world
}

func wantBadKeysRefused(t *testing.T, api *client.Client) {
	t.Helper()
	const node, key = takenNode, takenKey
	for name, tt := range map[string]struct {
		keys map[string]string
		kind director.Kind
		says string
	}{
		"no key": {map[string]string{node: "my key"}, director.KindInvalid, "host_keys." + node},
		"a key of an unknown type": {
			map[string]string{node: "ssh-dss AAAAB3NzaC1kc3MAAACBAA=="}, director.KindInvalid, "host_keys." + node,
		},
		"of a node that was not out": {
			map[string]string{node: key, "demo-w-1": key}, director.KindConflict, "demo-w-1",
		},
	} {
		if _, err := api.AskPhase(
			t.Context(), "bad", unlockWith(tt.keys),
		); director.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprintf("%v %+v", err, err), tt.says) {
			t.Errorf("%s: %v, want %s with %q", name, err, tt.kind, tt.says)
		}
	}
	if _, err := api.Phase(t.Context(), "bad"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("a task that was refused was kept: %v", err)
	}
}

// wantKnownByItsKey checks the cluster after the unlock, and that the task cannot be asked for in another form.
func wantKnownByItsKey(t *testing.T, api *client.Client, task wire.PhaseTask) {
	t.Helper()
	const node, key = takenNode, takenKey
	if diff := cmp.Diff([]string{}, out(t, api)); diff != "" {
		t.Errorf("out of the cluster: %s", diff)
	}
	files, err := api.Inventory(t.Context(), "demo")
	if err != nil || strings.Count(files["known_hosts"], key) != 1 {
		t.Errorf("playbooks would not know the VM by its key: %v, %q", err, files["known_hosts"])
	}
	again, err := api.AskPhase(t.Context(), "unlock", unlockWith(map[string]string{node: key + " root@new"}))
	if diff := cmp.Diff(task, again); diff != "" || err != nil {
		t.Errorf("the same task again: %v\n%s", err, diff)
	}
	if _, err := api.AskPhase(t.Context(), "unlock", director.PhaseRequest{
		Phase: director.PhasePostNodeUnlock, Node: node,
	}); director.KindOf(err) != director.KindConflict {
		t.Errorf("the same id without the key: %v", err)
	}
}
