package steps

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
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
	// certificate is that of the host key, if the VM shows one, and away why it does not answer who asks for it
	certificate string
	away        error
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

func (k knowing) TakeHostKey(ctx context.Context, m director.Machine, hostKey, _ string) error {
	_, err := k.CloudInit(ctx, m, hostKey)
	return err
}

func (k knowing) HostCertificate(context.Context, director.Machine) (string, error) {
	return k.certificate, k.away
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

// fromAfter is a VM that a director finds which was restored from a bundle.
type fromAfter struct {
	given    bool // the bundle knows the key that the VM was given
	met      bool // the bundle knows the key that the VM has made itself
	adopted  bool // others have made the VM
	restored time.Time
	cluster  members
	signed   bool   // the cluster has the host key of the VM, with the signature of the former director
	shown    bool   // the VM itself shows that signature
	shows    string // or this certificate
	away     error  // it does not answer
	remade   bool
	kind     director.Kind
	says     string
	asks     string
}

// madeAt is when the plan was made that makes the VM.
func madeAt() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// A director that was restored from a bundle finds VMs that the former one has made or booted after the bundle. It
// makes them again, if they are no nodes.
func TestVMFromAfterTheBundleIsMadeAgain(t *testing.T) {
	t.Parallel()
	made := madeAt()
	for name, tt := range map[string]fromAfter{
		"made after it":   {restored: made.Add(time.Hour), remade: true},
		"booted after it": {given: true, restored: made.Add(time.Hour), remade: true},
		"a plan of later": {given: true, restored: made.Add(-time.Hour), kind: director.KindConflict, says: "host key"},
		"never restored":  {given: true, kind: director.KindConflict, says: "host key"},
		"another host":    {met: true, restored: made.Add(time.Hour), kind: director.KindConflict, says: "host key"},
		"made by others": {
			adopted: true, restored: made.Add(time.Hour), kind: director.KindConflict, says: "host key",
		},
		"a cluster that does not say": {
			restored: made.Add(time.Hour),
			cluster:  members{err: director.Errorf(director.KindUnavailable, "test", "away")},
			kind:     director.KindConflict, says: "does not say whether",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.boot(t)
		})
	}
}

// A VM that has become a node after the bundle stays as it is, if the cluster has its host key with the signature of
// the former director. Otherwise a person is asked, with the commands that take the node out.
func TestNodeFromAfterTheBundleIsAdopted(t *testing.T) {
	t.Parallel()
	const out = "kubectl --kubeconfig kubeconfig delete node demo-w-1; then: directorctl retry p1"
	restored := madeAt().Add(time.Hour)
	node := func(address, hostKey string) members {
		return members{nodes: []kube.Node{{Name: "demo-w-1", InternalIP: address, HostKey: hostKey}}}
	}
	for name, tt := range map[string]fromAfter{
		"made after it":   {restored: restored, cluster: node("10.88.0.20", ""), signed: true},
		"booted after it": {given: true, restored: restored, cluster: node("10.88.0.20", ""), signed: true},
		"without a record": {
			restored: restored, cluster: node("10.88.0.20", ""), kind: director.KindConflict, says: "has no record",
			asks: out,
		},
		"at another address": {
			restored: restored, cluster: node("10.88.0.21", ""), signed: true, kind: director.KindConflict,
			says: `the node has the address "10.88.0.21"`, asks: out,
		},
		"signed by others": {
			restored: restored, cluster: node("10.88.0.20", othersRecord(t, "m1")), kind: director.KindConflict,
			says: "was signed by another authority", asks: out,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.boot(t)
		})
	}
}

// A VM from after the bundle stays as it is, node or not, if it shows that one of its cluster's authorities has signed
// its host key: also between its registration in the cluster and the record there, and when there is no API yet.
func TestVMThatShowsItsCertificateIsKept(t *testing.T) {
	t.Parallel()
	restored := madeAt().Add(time.Hour)
	away := director.Errorf(director.KindUnavailable, "test", "no route to host")
	registered := members{nodes: []kube.Node{{Name: "demo-w-1", InternalIP: "10.88.0.20"}}}
	for name, tt := range map[string]fromAfter{
		"no node":                      {restored: restored, shown: true},
		"with a key of before":         {given: true, restored: restored, shown: true},
		"registered, without a record": {restored: restored, shown: true, cluster: registered},
		"the first one of its cluster": {restored: restored, shown: true, cluster: members{err: away}},
		"another host that has one": {
			met: true, restored: restored, shown: true, kind: director.KindConflict, says: "host key",
		},
		"never restored":   {given: true, shown: true, kind: director.KindConflict, says: "host key"},
		"signed by others": {restored: restored, shows: othersRecord(t, "m1"), remade: true},
		"a registered one, signed by others": {
			restored: restored, shows: othersRecord(t, "m1"), cluster: registered, kind: director.KindConflict,
			says: "has no record", asks: "directorctl retry p1",
		},
		"a registered one that does not answer": {
			restored: restored, away: away, cluster: registered, kind: director.KindUnavailable,
			says: "does not answer",
		},
		"no node, and it does not answer": {restored: restored, away: away, remade: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.boot(t)
		})
	}
}

// boot runs the step that waits for the VM, and wants what is said of it.
func (tt fromAfter) boot(t *testing.T) {
	t.Helper()
	w := newRestoredWorld(t, tt.cluster, madeAt())
	w.env.Restored = tt.restored
	if tt.signed {
		tt.cluster.nodes[0].HostKey = w.signed(t)
	}
	nodes := knowing{lost: w.lost, certificate: tt.shows, away: tt.away}
	if tt.shown {
		nodes.certificate = w.signed(t)
	}
	w.env.Nodes = nodes
	former := w.formerVM(t)
	keys := keyring(w.env.Keys)
	if tt.given || tt.met {
		if _, err := keys.ensure(t.Context(), "m1", SecretHostKey); err != nil {
			t.Fatal(err)
		}
	}
	if tt.met {
		if err := keys.set(t.Context(), "m1", SecretHostKey, cloudinit.HostKey{Public: otherKey(t)}); err != nil {
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
	err := w.env.vms().vmBoot(ctx, w.run, w.params)
	if director.KindOf(err) != tt.kind && err != nil || !strings.Contains(message(err), tt.says) ||
		(err == nil) != (tt.kind == "") || !strings.Contains(plan.OutcomeOf(err).Text, tt.asks) {
		t.Errorf("it says %v, want %q, and asks %q, want %q", err, tt.says, plan.OutcomeOf(err).Text, tt.asks)
	}
	vms, lerr := w.back.List(t.Context(), hypervisor.Filter{Director: "d1"})
	if lerr != nil || len(vms) != 1 || (vms[0].ID != former) != tt.remade {
		t.Errorf("the VMs are %+v, was %s: %v", vms, former, lerr)
	}
	if err == nil { // again, as after a kill
		if err := w.env.vms().vmBoot(t.Context(), w.run, w.params); err != nil {
			t.Error(err)
		}
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
		Installation: Installation{Director: "d1", Now: time.Now},
		Machines: Machines{
			Backends: oneBackend{w.back}, Ledger: places{id: map[string]string{}}, Nodes: knowing{lost: w.lost},
		},
		Clusters: Clusters{
			Keys:    Keys{Secrets: vault{{"c1", SecretPKI}: sealed}, Sealer: box},
			Connect: func([]byte) (API, error) { return cluster, nil },
		},
	}
	w.params.Machine = plan.MachineSpec{
		ID: "m1", ClusterUID: "c1", Cluster: "demo", Name: "demo-w-1", Provider: "lab", Address: "10.88.0.20",
		MAC: "52:54:00:00:00:01", Network: "demo", CPUs: 1, Memory: 1 << 30,
	}
	w.params.ImageName, w.params.Disk = "node", 10*model.GiB
	w.params.Network.CIDR = prefix
	return w
}

// signed is the record of the host key of the former director's VM, as that director writes it.
func (w restoredWorld) signed(t *testing.T) string {
	t.Helper()
	former := w.env // the authority is in the bundle
	err := keyring(former.Keys).set(
		t.Context(), "m1", SecretHostKey, cloudinit.HostKey{Public: *w.lost},
	)
	if err != nil {
		t.Fatal(err)
	}
	record, err := former.keys().signedHostKey(t.Context(), "c1", "m1")
	if err == nil {
		err = former.Secrets.SetSecret(t.Context(), "m1", SecretHostKey, nil) // and the key is not
	}
	if err != nil || record == "" {
		t.Fatalf("the record is %q: %v", record, err)
	}
	return record
}

// othersRecord is a record for the machine that an authority of others has signed.
func othersRecord(t *testing.T, machine string) string {
	t.Helper()
	authority, err := pki.NewSSHAuthority()
	if err != nil {
		t.Fatal(err)
	}
	record, err := authority.VouchForHost(machine, authority.Public)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// formerVM is one that the former director has made.
func (w restoredWorld) formerVM(t *testing.T) hypervisor.ID {
	t.Helper()
	former := w.env
	former.Secrets = vault{}
	spec, err := former.vms().vmSpec(t.Context(), "c1", w.params)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := w.back.Ensure(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return vm.ID
}

// joining is a cluster whose node registers at the second look. It keeps the record of the host key.
type joining struct {
	API
	looks  *int
	record *string
}

func (j joining) RecordHostKey(_ context.Context, _, signed string) error {
	if *j.looks++; *j.looks == 1 {
		return director.Errorf(director.KindNotFound, "test", "no such node")
	}
	*j.record = signed
	return nil
}

func (j joining) NodesReady(_ context.Context, names []string, _ string) ([]kube.Absence, error) {
	if *j.looks == 1 {
		return []kube.Absence{{Name: names[0], Why: "has not joined"}}, nil
	}
	return nil, nil
}

func (joining) NotCarrying(context.Context, string) (string, error) { return "", nil }
func (joining) Close()                                              {}

// joined notes which machines became nodes.
type joined struct {
	Records
	machines *[]string
}

func (j joined) SetNode(_ context.Context, p step.NodeParams) error {
	*j.machines = append(*j.machines, p.Machine)
	return nil
}

// The cluster gets the host key of each node that the director has met, for a director that is restored from a bundle
// of before.
func TestClusterGetsTheHostKeysOfItsNodes(t *testing.T) {
	t.Parallel()
	w := newRestoredWorld(t, members{}, madeAt())
	keys := keyring(w.env.Keys)
	hostKey := otherKey(t)
	if err := keys.set(t.Context(), "m1", SecretHostKey, cloudinit.HostKey{Public: hostKey}); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.ensure(t.Context(), "m2", SecretHostKey); err != nil { // and it has not made one itself
		t.Fatal(err)
	}
	for machine, known := range map[string]bool{"m1": true, "m2": false, "m3": false} {
		looks, record, machines := 0, "", []string(nil)
		if !known {
			looks = 2
		}
		env := w.env
		env.Records = joined{machines: &machines}
		env.Connect = func([]byte) (API, error) { return joining{looks: &looks, record: &record}, nil }
		err := env.kube().nodeReady(t.Context(), quietRun(), step.NodeParams{
			UID: "c1", Cluster: "demo", Endpoint: "10.88.0.10:6443", Node: "demo-w-1", Machine: machine,
		})
		if err != nil || !slices.Equal(machines, []string{machine}) || (record != "") != known {
			t.Errorf("%s: the record is %q, and %v became nodes: %v", machine, record, machines, err)
		}
		if !known {
			continue
		}
		restored := w.env
		restored.Secrets = vault{
			{"c1", SecretSSHAuthority}: w.env.Secrets.(vault)[[2]string{"c1", SecretSSHAuthority}],
		}
		m := director.Machine{ID: machine, Address: "10.88.0.20"}
		for range 2 {
			err := restored.LearnHostKey(t.Context(), "c1", m, kube.Node{InternalIP: m.Address, HostKey: record})
			if got, kerr := restored.KnownHostKey(t.Context(), machine); err != nil || kerr != nil ||
				got.Public != strings.TrimSpace(hostKey) || got.Private != "" {
				t.Errorf("a restored director learns %+v: %v, %v", got, err, kerr)
			}
		}
	}
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
	for restored, pushes := range map[time.Time]bool{
		{}: false, made.Add(-time.Hour): false,
		made.Add(time.Hour): true,
	} {
		err := Env{Installation: Installation{Restored: restored}}.plays().play(t.Context(), run, step.PlayParams{})
		if seen := err != nil &&
			strings.Contains(err.Error(), "is not the one that the plan was made for"); seen != pushes {
			t.Errorf("restored at %s: it looks at the release: %t, want %t: %v", restored, seen, pushes, err)
		}
	}
}
