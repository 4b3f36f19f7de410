package steps

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/step"
)

// members is a cluster that says which nodes it has, or nothing.
type members struct {
	API
	nodes []kube.Node
	err   error
}

func (m members) Nodes(context.Context) ([]kube.Node, error) { return m.nodes, m.err }
func (members) Close()                                       {}

// knowing are machines that show the host key of a former director's VM, as long as that is there, and then the one
// that they are asked for.
type knowing struct {
	lost *string // the host key of a former director's VM; empty when it is gone
}

func (knowing) Answers(context.Context, director.Machine) (bool, error) { return false, nil }

func (k knowing) CloudInit(_ context.Context, m director.Machine, hostKey string) (string, error) {
	if *k.lost != "" && *k.lost != hostKey {
		return "", hostKeyError(m, errHostKey)
	}
	return `{"v1": {}}`, nil
}

func (k knowing) NextHostKey(ctx context.Context, m director.Machine, hostKey string) (string, error) {
	_, err := k.CloudInit(ctx, m, hostKey)
	return hostKey, err
}

func (k knowing) TakeHostKey(ctx context.Context, m director.Machine, hostKey string) error {
	_, err := k.CloudInit(ctx, m, hostKey)
	return err
}

func (knowing) FirstBoot(context.Context, director.Machine, string, bool) (cloudinit.Report, error) {
	return cloudinit.Report{}, nil
}

func (knowing) Script(context.Context, director.Machine, string, string) error { return nil }

// gone is a hypervisor that tells when a VM was deleted.
type gone struct {
	hypervisor.Backend
	lost *string
}

func (g gone) Delete(ctx context.Context, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	*g.lost = ""
	return g.Backend.Delete(ctx, id, o)
}

// A director that was restored from a bundle finds VMs that the former one has made or booted after the bundle. It
// makes them again, if they are no nodes.
func TestVMFromAfterTheBundleIsMadeAgain(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		given    bool // the bundle knows the key that the VM was given
		met      bool // the bundle knows the key that the VM has made itself
		adopted  bool // others have made the VM
		restored time.Time
		cluster  members
		remade   bool
		kind     director.Kind
		says     string
	}{
		"made after it":   {restored: made.Add(time.Hour), remade: true},
		"booted after it": {given: true, restored: made.Add(time.Hour), remade: true},
		"a plan of later": {given: true, restored: made.Add(-time.Hour), kind: director.KindConflict, says: "host key"},
		"never restored":  {given: true, kind: director.KindConflict, says: "host key"},
		"another host":    {met: true, restored: made.Add(time.Hour), kind: director.KindConflict, says: "host key"},
		"made by others": {
			adopted: true, restored: made.Add(time.Hour), kind: director.KindConflict, says: "host key",
		},
		"a node since": {
			restored: made.Add(time.Hour), cluster: members{nodes: []kube.Node{{Name: "demo-w-1"}}},
			kind: director.KindConflict, says: "has become a node",
		},
		"a cluster that does not say": {
			restored: made.Add(time.Hour),
			cluster:  members{err: director.Errorf(director.KindUnavailable, "test", "away")},
			kind:     director.KindConflict, says: "does not say whether",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRestoredWorld(t, tt.cluster, made)
			w.env.Restored = tt.restored
			former := w.formerVM(t)
			keys := keyring{w.env.Secrets, w.env.Sealer}
			if tt.given || tt.met {
				if _, err := keys.ensure(t.Context(), "m1", SecretHostKey); err != nil {
					t.Fatal(err)
				}
			}
			if tt.met {
				if err := keys.set(
					t.Context(), "m1", SecretHostKey, cloudinit.HostKey{Public: otherKey(t)},
				); err != nil {
					t.Fatal(err)
				}
			}
			if tt.adopted {
				if err := keys.write(t.Context(), "m1", SecretAdopted, []byte(otherKey(t))); err != nil {
					t.Fatal(err)
				}
			}
			ctx := t.Context()
			if tt.cluster.err != nil { // it is asked until the step has to end
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			err := (vmSteps{w.env}).vmBoot(ctx, w.run, w.params)
			if director.KindOf(err) != tt.kind && err != nil || !strings.Contains(message(err), tt.says) ||
				(err == nil) != (tt.kind == "") {
				t.Errorf("it says %v, want %q", err, tt.says)
			}
			vms, lerr := w.back.List(t.Context(), hypervisor.Filter{Director: "d1"})
			if lerr != nil || len(vms) != 1 || (vms[0].ID != former) != tt.remade {
				t.Errorf("the VMs are %+v, was %s: %v", vms, former, lerr)
			}
			if tt.remade { // again, as after a kill
				if err := (vmSteps{w.env}).vmBoot(t.Context(), w.run, w.params); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// restoredWorld is a plan that makes one VM, and a hypervisor.
type restoredWorld struct {
	env    Env
	back   hypervisor.Backend
	run    plan.Run
	params step.VMParams
	lost   *string
}

func newRestoredWorld(t *testing.T, cluster members, made time.Time) restoredWorld {
	t.Helper()
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	authorities, err := pki.NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := authorities.Seal(box, "c1", SecretPKI)
	if err != nil {
		t.Fatal(err)
	}
	params, err := json.Marshal(step.NodeParams{Machine: "m1", Endpoint: "10.88.0.10:6443"})
	if err != nil {
		t.Fatal(err)
	}
	lost := otherKey(t)
	w := restoredWorld{lost: &lost, run: plan.Run{
		Note: func(context.Context, string) {},
		Plan: &plan.Plan{ID: "p1", CreatedAt: made, Content: plan.Content{
			Steps: []plan.Step{{Kind: step.NodeReady, Params: params}},
		}},
	}}
	back := sim.Open(sim.NewWorld(sim.Host{Name: "h1", CPUs: 8, Memory: 1 << 36, Disk: 1 << 40}))
	furnish(t, back)
	w.back = gone{back, w.lost}
	w.env = Env{
		Director: "d1", Backends: oneBackend{w.back}, Ledger: places{id: map[string]string{}},
		Secrets: vault{{"c1", SecretPKI}: sealed}, Sealer: box, Now: time.Now,
		Nodes: knowing{lost: w.lost}, Connect: func([]byte) (API, error) { return cluster, nil },
	}
	w.params.Machine = plan.MachineSpec{
		ID: "m1", ClusterUID: "c1", Cluster: "demo", Name: "demo-w-1", Provider: "lab", Address: "10.88.0.20",
		MAC: "52:54:00:00:00:01", Network: "demo", CPUs: 1, Memory: 1 << 30,
	}
	w.params.ImageName, w.params.Disk = "node", 10*model.GiB
	w.params.Network.CIDR = prefix
	return w
}

// formerVM is one that the former director has made.
func (w restoredWorld) formerVM(t *testing.T) hypervisor.ID {
	t.Helper()
	former := w.env
	former.Secrets = vault{}
	spec, err := vmSteps{former}.vmSpec(t.Context(), "c1", w.params)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := w.back.Ensure(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return vm.ID
}

// The registry of a restored director is empty. A plan that has pushed its release pushes it again before it plays.
func TestReleaseIsPushedAgainAfterARestore(t *testing.T) {
	t.Parallel()
	b := release(t, "kind: DaemonSet\n")
	params, err := json.Marshal(step.ReleaseParams{Bundle: b.Dir(), Digest: "that of another one"})
	if err != nil {
		t.Fatal(err)
	}
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	run := quietRun()
	run.Plan = &plan.Plan{CreatedAt: made, Content: plan.Content{Steps: []plan.Step{
		{Kind: step.VMEnsure}, {ID: "release.push/r", Kind: step.ReleasePush, Params: params},
	}}}
	for restored, pushes := range map[time.Time]bool{{}: false, made.Add(-time.Hour): false, made.Add(time.Hour): true} {
		err := Env{Restored: restored}.play(t.Context(), run, step.PlayParams{})
		if seen := err != nil && strings.Contains(err.Error(), "is not the one that the plan was made for"); seen != pushes {
			t.Errorf("restored at %s: it looks at the release: %t, want %t: %v", restored, seen, pushes, err)
		}
	}
}
