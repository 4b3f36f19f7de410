package documents

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/usage"
)

const formerDocuments = `apiVersion: kaas/v1
kind: Image
metadata: {name: former}
spec: {sha256: "1111111111111111111111111111111111111111111111111111111111111111", kubernetes: v1.36.4}
---
apiVersion: kaas/v1
kind: Release
metadata: {name: former}
spec: {bundle: /former, kubernetes: v1.36.4}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: beside}
spec: {provider: lab, cidr: 10.91.0.0/24, pool: {ranges: [10.91.0.10-10.91.0.20]}}
`

// openFormer returns a lab with documents that no cluster names, and a plan that needs all of them for its way back
// alone.
func openFormer(t *testing.T) (*lab, plan.Plan) {
	t.Helper()
	l := openLab(t, 1, 1)
	if _, err := l.Apply(t.Context(), "admin", []byte(formerDocuments), "", false); err != nil {
		t.Fatal(err)
	}
	doc, err := l.Store.Document(t.Context(), model.Ref{Kind: model.KindImage, Name: "former"})
	if err != nil {
		t.Fatal(err)
	}
	text := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	m := l.Made["c000-w-1"]
	m.NICs = []director.NIC{{Role: model.NICStorage, Network: "beside", Address: "10.91.0.10"}}
	back := step.VMParams{Machine: plan.SpecOf(m), ImageName: doc.Image.NameOnProviders("former")}
	p := plan.Plan{ID: "p1", CreatedAt: time.Unix(1, 0), Content: plan.Content{
		Operation: plan.ClusterUpgrade, Cluster: "c000",
		Facts: text(step.Facts{
			UID: l.Docs["c000"].UID, Digest: "own",
			Former: map[string]step.ReleaseFacts{"v1.36.4": {Bundle: "/former", Digest: "before"}},
		}),
		Steps: []plan.Step{
			{ID: "upgrade/c000-w-1", Kind: step.Play, Params: text(step.PlayParams{Playbook: "upgrade"})},
			{
				ID: "undo/vm.ensure/c000-w-1", Kind: step.VMEnsure, Params: text(back),
				Undoes: []string{"upgrade/c000-w-1"},
			},
			{ID: "image.ensure/former", Kind: step.ImageEnsure, Params: text(step.ImageParams{
				Provider: "lab", Name: back.ImageName, Document: "former", Image: *doc.Image,
			})},
		},
	}}
	p.Hash = plan.HashOf(p.Content)
	return l, p
}

// stays returns the documents that cannot be deleted, with why. What can be deleted is stored again.
func (l *lab) stays(t *testing.T, refs ...model.Ref) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, ref := range refs {
		switch err := l.DeleteDocument(t.Context(), "admin", ref); {
		case director.KindOf(err) == director.KindConflict:
			if director.HintOf(err) == "" {
				t.Errorf("%s stays without a hint", ref)
			}
			out[ref.String()] = err.Error()
		case err != nil:
			t.Fatal(err)
		}
	}
	if _, err := l.Apply(t.Context(), "admin", []byte(formerDocuments), "", false); err != nil {
		t.Fatal(err)
	}
	return out
}

var formerRefs = []model.Ref{
	{Kind: model.KindImage, Name: "former"},
	{Kind: model.KindRelease, Name: "former"},
	{Kind: model.KindNetwork, Name: "beside"},
}

// What a plan needs for its way back stays as long as the plan can continue; one that was not started, or is over for
// good, needs nothing.
func TestTheWayBackOfAPlanStays(t *testing.T) {
	t.Parallel()
	l, p := openFormer(t)
	state := plan.NewState(&p)
	happens := func(kinds ...plan.EventKind) {
		t.Helper()
		for _, k := range kinds {
			err := l.Store.Update(t.Context(), func(tx *store.Tx) error {
				return tx.Append(&state, plan.Event{Plan: p.ID, Kind: k, At: time.Unix(2, 0)})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.AddPlan(p) }); err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		events []plan.EventKind
		status plan.Status
		needs  bool
	}{
		{nil, plan.StatusPlanned, false},
		{[]plan.EventKind{plan.PlanStarted}, plan.StatusRunning, true},
		{[]plan.EventKind{plan.PlanFailed}, plan.StatusFailed, true},
		{[]plan.EventKind{plan.PlanUndo}, plan.StatusUndoing, true},
		{[]plan.EventKind{plan.PlanFailed, plan.PlanDiscarded}, plan.StatusDiscarded, false},
	} {
		happens(at.events...)
		if state.Status != at.status {
			t.Fatalf("the plan is %s, want %s", state.Status, at.status)
		}
		got := l.stays(t, formerRefs...)
		if want := len(formerRefs); at.needs && len(got) != want || !at.needs && len(got) != 0 {
			t.Errorf("%s: %v stay", at.status, slices.Sorted(maps.Keys(got)))
		}
		for ref, why := range got {
			if !strings.Contains(why, "plan p1 is not finished") {
				t.Errorf("%s: %s stays: %s", at.status, ref, why)
			}
		}
	}
}

// The transaction of a deletion sees a plan that was started after the look at what is used.
func TestADeletionMeetsAStart(t *testing.T) {
	t.Parallel()
	l, p := openFormer(t)
	ref := formerRefs[0]
	docs, err := l.Store.Documents(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	u, err := usage.Of(t.Context(), l.Store, docs)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.MayGo(ref); err != nil {
		t.Fatal(err)
	}
	err = l.Store.Update(t.Context(), func(tx *store.Tx) error {
		s := plan.NewState(&p)
		return errors.Join(
			tx.AddPlan(p), tx.Append(&s, plan.Event{Plan: p.ID, Kind: plan.PlanStarted, At: time.Unix(2, 0)}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	err = l.Store.Update(t.Context(), func(tx *store.Tx) error {
		docs, err := tx.Documents()
		if err != nil {
			return err
		}
		return usage.Unused(tx, ref, docs)
	})
	servicetest.WantKind(t, err, director.KindConflict, "plan p1 is not finished", "discard p1")
}

// Prunes keep what the way back needs: the image on its provider, its imported file, and the programs of the former
// release.
func TestPrunesKeepTheWayBack(t *testing.T) {
	t.Parallel()
	l, p := openFormer(t)
	err := l.Store.Update(t.Context(), func(tx *store.Tx) error {
		s := plan.NewState(&p)
		return errors.Join(tx.AddPlan(
			p,
		), tx.Append(&s, plan.Event{Plan: p.ID, Kind: plan.PlanStarted, At: time.Unix(2, 0)}),
			tx.DeleteDocument(formerRefs[0])) // as an older director did
	})
	if err != nil {
		t.Fatal(err)
	}
	plans, err := l.Store.OpenPlans(t.Context(), usage.Resumable()...)
	if err != nil {
		t.Fatal(err)
	}
	u := usage.New()
	if err := u.AddPlans(nil, plans); err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, names := range []map[string]usage.Reason{u.Images, u.Files} {
		got = append(got, slices.Sorted(maps.Keys(names))...)
	}
	got = append(got, slices.Sorted(maps.Keys(u.Programs))...)
	if diff := cmp.Diff([]string{"former-111111111111", strings.Repeat("1", 64), "before", "own"}, got); diff != "" {
		t.Errorf("what the plan needs (-want +got):\n%s", diff)
	}
	if err := l.Store.NoteImage(t.Context(), director.ProviderImage{
		Provider: "lab", Name: "former-111111111111", Image: "former",
	}); err != nil {
		t.Fatal(err)
	}
	left, err := l.images.Prune(t.Context(), "admin", time.Now(), false)
	if err != nil || len(left) != 0 {
		t.Errorf("pruned %+v, %v", left, err)
	}
}

// Documents stay for machines too, whatever clusters name by now.
func TestMachinesKeepDocuments(t *testing.T) {
	t.Parallel()
	l := openLab(t, 0, 0)
	image, lab := model.Ref{Kind: model.KindImage, Name: "node"}, model.Ref{Kind: model.KindProvider, Name: "lab"}
	m := director.Machine{
		ID: "m1", Cluster: "c", ClusterUID: "u", Name: "c-w-1", Provider: "lab", Network: "net", Address: "10.64.1.1",
		Image: "node",
	}
	if err := l.AddPlan(t.Context(), "p1", true, m); err != nil {
		t.Fatal(err)
	}
	if err := l.EndPlan(t.Context(), "p1", plan.PlanDone); err != nil {
		t.Fatal(err)
	}
	got := l.stays(t, image, lab)
	if !strings.Contains(got[image.String()], "the VM of c-w-1 was made from it") || got[lab.String()] == "" {
		t.Errorf("what stays: %v", got)
	}
}

// A deletion whose provider fails has deleted the document, so that no plan takes the image up; the prune takes the
// rest off.
func TestADeletedImageIsTakenOffLater(t *testing.T) {
	t.Parallel()
	l := openLab(t, 0, 0)
	l.World.Inject(sim.Fault{Verb: sim.VerbDeleteImage})
	err := l.DeleteDocument(t.Context(), "admin", model.Ref{Kind: model.KindImage, Name: "node"})
	servicetest.WantKind(t, err, director.KindUnavailable, "Image/node is deleted", "directorctl image prune")
	if _, err := l.Store.Document(t.Context(), model.Ref{
		Kind: model.KindImage, Name: "node",
	}); director.KindOf(err) != director.KindNotFound {
		t.Errorf("the document: %v", err)
	}
	left, err := l.images.Prune(t.Context(), "admin", time.Now(), false)
	if err != nil || len(left) != 1 || left[0].Kept != "" {
		t.Errorf("pruned %+v, %v", left, err)
	}
	if left, err = l.images.Prune(t.Context(), "admin", time.Now(), false); err != nil || len(left) != 0 {
		t.Errorf("pruned again %+v, %v", left, err)
	}
}

// A network's document stays as long as machines are on it, whatever clusters say by now.
func TestANetworkWithMachinesStays(t *testing.T) {
	t.Parallel()
	l := openLab(t, 0, 0)
	ctx := t.Context()
	const doc = "apiVersion: kaas/v1\nkind: Network\nmetadata: {name: nfs}\nspec: {provider: lab, cidr: " +
		"10.90.0.0/24, pool: {ranges: [10.90.0.10-10.90.0.20]}}\n"
	if _, err := l.Apply(ctx, "admin", []byte(doc), "", false); err != nil {
		t.Fatal(err)
	}
	m := director.Machine{
		ID: "m1", Cluster: "c", ClusterUID: "u", Name: "c-w-1", Provider: "lab", Network: "net", Address: "10.64.1.1",
		NICs: []director.NIC{{Role: model.NICStorage, Network: "nfs", Address: "10.90.0.10"}},
	}
	if err := l.AddPlan(ctx, "p1", true, m); err != nil {
		t.Fatal(err)
	}
	ref := model.Ref{Kind: model.KindNetwork, Name: "nfs"}
	if err := l.DeleteDocument(
		ctx, "admin", ref,
	); director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "cluster c") {
		t.Errorf("got %v, want conflict", err)
	}
	if err := errors.Join(l.Store.BuryMachine(ctx, "m1", time.Now()), l.EndPlan(ctx, "p1", plan.PlanDone)); err != nil {
		t.Fatal(err)
	}
	if err := l.DeleteDocument(ctx, "admin", ref); err != nil {
		t.Error(err)
	}
}
