package disks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/disks"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/vms"
)

// lab is the kept disks of a director in a lab, and its ledger of VMs.
type lab struct {
	*servicetest.Lab
	*disks.Service
	ledger *vms.Service
}

func openLab(t *testing.T, clusters, workers int) *lab {
	t.Helper()
	l := servicetest.Open(t, clusters, workers)
	kept := disks.New(l.Store, l.Env.Backends, l.Director.ID, time.Now)
	return &lab{l, kept, vms.New(vms.Config{
		Store: l.Store, Backends: l.Env.Backends, Clusters: l.Env, Director: l.Director.ID, Now: time.Now, Disks: kept,
	})}
}

// found audits, and returns the kinds and names of what was found.
func (l *lab) found(t *testing.T) []string {
	t.Helper()
	r, err := l.ledger.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range r.Findings {
		out = append(out, string(f.Kind)+" "+f.Name)
	}
	return out
}

// withDisk runs or undoes the handler of the kind for a machine with a data disk.
func (l *lab) withDisk(t *testing.T, kind string, m director.Machine, undo bool, change func(*step.VMParams)) error {
	t.Helper()
	var p step.VMParams
	if err := json.Unmarshal(servicetest.Params(m), &p); err != nil {
		t.Fatal(err)
	}
	p.DataDisk = model.GiB
	if change != nil {
		change(&p)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	r := plan.Run{
		Plan: &plan.Plan{ID: "p-" + kind}, Step: plan.Step{Kind: kind, Params: text},
		Note: func(context.Context, string) {},
	}
	h := steps.Handlers(l.Env)[kind]
	if undo {
		return h.(plan.Undoable).TakeBack(t.Context(), r)
	}
	return h.Run(t.Context(), r)
}

// killed runs act with a kill at each place of each of the verbs, and once more to its end.
func (l *lab) killed(t *testing.T, act func() error, verbs ...sim.Verb) {
	t.Helper()
	for _, verb := range verbs {
		for _, when := range []sim.When{sim.Before, sim.Midway, sim.After} {
			l.World.Inject(sim.Fault{Verb: verb, When: when})
			_ = act() // what it returns is heard by nobody
			l.World.ClearFaults()
		}
	}
	if err := act(); err != nil {
		t.Fatal(err)
	}
}

// listed renders the disks as state, node and size, without foreign names.
func (l *lab) listed(t *testing.T) []string {
	t.Helper()
	v, err := l.List(t.Context(), disks.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, d := range v.Items {
		out = append(
			out,
			fmt.Sprintf(
				"%s %s %s/%s/%s %d", d.State, strings.Replace(d.ID, director.ForeignDiskID("lab", "pv-1"), "pv-1", 1),
				d.Cluster, d.Pool, d.Node, d.Size,
			),
		)
	}
	slices.Sort(out)
	return out
}

func (l *lab) wantDisks(t *testing.T, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), l.listed(t)); diff != "" {
		t.Errorf("%s: disks (-want +got):\n%s", when, diff)
	}
}

// A node's data disk and what others have attached outlive its VM, whatever is killed meanwhile; another node takes the
// disk over, and leaves it behind in turn. None is lost and none is there twice, and only a person's word for it
// destroys it.
func TestDisksOutliveTheirNodes(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 2)
	ctx := t.Context()
	first, second := l.Made["c000-w-1"], l.Made["c000-w-2"]
	if err := l.withDisk(t, step.VMEnsure, first, false, nil); err != nil {
		t.Fatal(err)
	}
	l.World.AttachForeign(l.VM(t, first).ID, "pv-1", 5)
	l.wantDisks(t, "while the node lives")

	l.killed(
		t, func() error { return l.withDisk(t, step.VMDelete, first, false, nil) }, sim.VerbList,
		sim.VerbListVolumes, sim.VerbDelete,
	)
	id := director.DiskID(first.ID, director.DataDiskSerial)
	kept, pv := "kept "+id+" c000/w/c000-w-1 1073741824", "foreign pv-1 c000/w/c000-w-1 5"
	l.wantDisks(t, "after the deletion", pv, kept)
	if v, err := l.List(ctx, disks.Filter{Plan: "p-" + step.VMDelete}); err != nil || len(v.Items) != 2 {
		t.Errorf("of the plan: %+v, %v", v, err)
	}
	r, err := l.ledger.Audit(ctx)
	if err != nil || len(r.Findings) > 0 || len(r.Disks) != 2 || r.Disks[0].Kept.IsZero() {
		t.Errorf("audit: %+v, %v", r, err)
	}

	take := func(p *step.VMParams) { p.TakeDisk = id }
	l.killed(
		t, func() error { return l.withDisk(t, step.VMEnsure, second, false, take) }, sim.VerbList,
		sim.VerbEnsure,
	)
	l.wantDisks(t, "taken over", pv, strings.Replace(kept, "kept", "taken", 1))
	_, err = l.Delete(ctx, "admin", "lab", id)
	servicetest.WantKind(t, err, director.KindConflict)
	// its VM is made again, with the disk
	if err := l.withDisk(t, step.VMRemove, second, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.withDisk(t, step.VMEnsure, second, false, nil); err != nil {
		t.Fatal(err)
	}
	l.wantDisks(t, "after a replacement", pv, strings.Replace(kept, "kept", "taken", 1))
	volumes, _ := hypervisor.Capability[hypervisor.Volumes](sim.Open(l.World))
	if all, err := volumes.ListVolumes(ctx, l.Director.ID); err != nil || len(all) != 1 || all[0].VM != second.Name {
		t.Errorf("volumes: %+v, %v; want the one, in %s", all, err, second.Name)
	}

	l.killed(
		t, func() error { return l.withDisk(t, step.VMDelete, second, false, nil) }, sim.VerbListVolumes,
		sim.VerbDelete,
	)
	l.wantDisks(t, "left behind again", pv, strings.Replace(kept, "c000-w-1", "c000-w-2", 1))

	l.World.Inject(sim.Fault{Verb: sim.VerbDeleteVolume})
	if _, err := l.Delete(ctx, "admin", "lab", id); err == nil {
		t.Fatal("the fault did not strike")
	}
	if got := l.found(t); !slices.Equal(got, []string{"ghost-disk " + id}) {
		t.Errorf("audit of a deletion that was cut off: %v", got)
	}
	servicetest.WantKind(t, l.Store.TakeDisk(ctx, id, "m3"), director.KindConflict)
	for _, disk := range []string{id, director.ForeignDiskID("lab", "pv-1")} {
		if _, err := l.Delete(ctx, "admin", "lab", disk); err != nil {
			t.Fatal(err)
		}
		_, err = l.Delete(ctx, "admin", "lab", disk)
		servicetest.WantKind(t, err, director.KindNotFound)
	}
	l.wantDisks(t, "at the end")
	if all, err := volumes.ListVolumes(ctx, l.Director.ID); err != nil || len(all) > 0 || !l.World.HasForeign("pv-1") {
		t.Errorf("volumes: %+v, %v; the foreign disk exists: %t", all, err, l.World.HasForeign("pv-1"))
	}
}

// A plan destroys the disks that it names, and no others.
func TestOnlyNamedDisksAreDestroyed(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 2)
	for _, m := range l.Made {
		if err := l.withDisk(t, step.VMEnsure, m, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	first, second := l.Made["c000-w-1"], l.Made["c000-w-2"]
	named := func(p *step.VMParams) { p.DeleteData = []string{director.DiskID(first.ID, director.DataDiskSerial)} }
	for _, m := range []director.Machine{first, second} {
		l.killed(
			t, func() error { return l.withDisk(t, step.VMDelete, m, false, named) }, sim.VerbListVolumes,
			sim.VerbDelete, sim.VerbDeleteVolume,
		)
	}
	l.wantDisks(
		t, "after the deletions",
		"kept "+director.DiskID(second.ID, director.DataDiskSerial)+" c000/w/c000-w-2 1073741824",
	)
}

// Undoing a creation takes the data disk along only if the machine was never a node.
func TestUndoKeepsTheDisksOfNodes(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 2)
	for _, m := range l.Made {
		if err := l.withDisk(t, step.VMEnsure, m, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	never, node := l.Made["c000-w-1"], l.Made["c000-w-2"]
	if err := l.Store.SetMembership(t.Context(), node.ID, store.Membership{
		State: director.MachinePresent, Kubernetes: "v1.37.1",
	}); err != nil {
		t.Fatal(err)
	}
	for _, m := range []director.Machine{never, node} {
		l.killed(t, func() error { return l.withDisk(t, step.VMEnsure, m, true, nil) }, sim.VerbListVolumes)
	}
	l.wantDisks(
		t, "after the undo", "kept "+director.DiskID(node.ID, director.DataDiskSerial)+" c000/w/c000-w-2 1073741824",
	)
}

// A disk that the ledger has lost is found, with the node that its label names, and deleted by a person.
func TestOrphanDisks(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 1)
	m := l.Made["c000-w-1"]
	for _, kind := range []string{step.VMEnsure, step.VMDelete} {
		if err := l.withDisk(t, kind, m, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	id := director.DiskID(m.ID, director.DataDiskSerial)
	if err := l.Store.ForgetDisk(t.Context(), id); err != nil { // as the restore of an older backup does
		t.Fatal(err)
	}
	l.wantDisks(t, "of a ledger that lost it", "orphan "+id+" c000/w/c000-w-1 1073741824")
	if got := l.found(t); !slices.Equal(got, []string{string(ledger.OrphanDisk) + " " + id}) {
		t.Errorf("audit: %v", got)
	}
	if _, err := l.Delete(t.Context(), "admin", "lab", id); err != nil {
		t.Fatal(err)
	}
	l.wantDisks(t, "at the end")
}

// A copy of a data disk is written down before it is made. It is the plan's until that has ended, whatever is killed
// meanwhile, and no node's; then the audit names it, and a person deletes it.
func TestCopiesOfDisks(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 1)
	ctx, m := t.Context(), l.Made["c000-w-1"]
	if err := l.AddPlan(ctx, "p-copy", true, m); err != nil {
		t.Fatal(err)
	}
	if err := l.withDisk(t, step.VMEnsure, m, false, nil); err != nil {
		t.Fatal(err)
	}
	owner := director.Stamp{Director: l.Director.ID, Machine: m.ID}
	to := director.Stamp{Director: l.Director.ID, Machine: "copy-of-it"}
	id := director.DiskID(to.Machine, director.DataDiskSerial)
	b, err := l.Env.Backends.Backend(ctx, m.Provider)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.SetPower(ctx, l.VM(t, m).ID, hypervisor.PowerOff); err != nil {
		t.Fatal(err)
	}
	copier, _ := hypervisor.Capability[hypervisor.DiskCopier](b)
	l.killed(t, func() error {
		if err := l.Store.KeepDisks(ctx, []director.KeptDisk{{
			ID: id, Provider: m.Provider, Machine: to.Machine, Serial: director.DataDiskSerial, Cluster: m.Cluster,
			Pool: m.Pool, Node: m.Name, Plan: "p-copy", CopyOf: director.DiskID(m.ID, director.DataDiskSerial),
		}}); err != nil {
			return err
		}
		return copier.CopyDisk(ctx, owner, director.DataDiskSerial, to)
	}, sim.VerbCopyDisk)
	l.wantDisks(t, "with a copy", "copy "+id+" c000/w/c000-w-1 1073741824")
	if got := l.found(t); len(got) > 0 {
		t.Errorf("audit while the plan runs: %v", got)
	}
	if err := l.Store.TakeDisk(ctx, id, m.ID); director.KindOf(err) != director.KindConflict {
		t.Errorf("a node takes the copy over: %v", err)
	}
	if _, err := l.Delete(ctx, "admin", m.Provider, id); director.KindOf(err) != director.KindConflict {
		t.Errorf("the copy of a plan that runs is deleted: %v", err)
	}
	if err := b.SetPower(ctx, l.VM(t, m).ID, hypervisor.PowerOn); err != nil {
		t.Fatal(err)
	}
	if err := l.EndPlan(ctx, "p-copy", plan.PlanDone); err != nil {
		t.Fatal(err)
	}
	if got := l.found(t); !slices.Equal(got, []string{string(ledger.OrphanDisk) + " " + id}) {
		t.Errorf("audit after the plan: %v", got)
	}
	l.killed(t, func() error {
		_, err := l.Delete(ctx, "admin", m.Provider, id)
		if director.KindOf(err) == director.KindNotFound {
			return nil
		}
		return err
	}, sim.VerbDeleteVolume)
	l.wantDisks(t, "at the end")
}
