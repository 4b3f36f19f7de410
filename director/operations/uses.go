package operations

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// reason is why something stays, and what to do if it should go.
type reason struct{ why, hint string }

// uses is what documents, machines, kept disks and plans that can go on still need. Deletions and prunes ask it alone.
type uses struct {
	documents map[model.Ref]reason
	images    map[string]reason // by the name on providers
	files     map[string]reason // imported images, by checksum
	programs  map[string]bool   // bundles whose programs nodes may fetch, by digest
	imageOf   map[string]string // documents of images, by the name on providers
}

func newUses() uses {
	return uses{
		documents: map[model.Ref]reason{}, images: map[string]reason{}, files: map[string]reason{},
		programs: map[string]bool{}, imageOf: map[string]string{},
	}
}

// canGoOn are the phases of plans that were started and are not over for good. One that was not started needs nothing
// yet: its start finds what is missing.
func canGoOn() []plan.Phase {
	return append(plan.ActivePhases(), plan.PhaseFailed, plan.PhaseCancelled)
}

// uses looks at everything that may need something. The plans are looked at last: what a plan takes up meanwhile is
// named by a document before.
func (o *Operations) uses(ctx context.Context, docs []model.Stored) (uses, error) {
	u := newUses()
	u.addDocuments(docs)
	brought, err := o.Store.ProviderImages(ctx)
	if err != nil {
		return u, err
	}
	for _, b := range brought {
		u.imageOf[b.Name] = b.Image
	}
	machines, err := o.Store.Machines(ctx, store.MachineFilter{})
	if err != nil {
		return u, err
	}
	u.addMachines(machines)
	disks, err := o.Store.KeptDisks(ctx, store.DiskFilter{})
	if err != nil {
		return u, err
	}
	u.addDisks(disks)
	plans, err := o.Store.OpenPlans(ctx, canGoOn()...)
	if err != nil {
		return u, err
	}
	return u, u.addPlans(docs, plans)
}

// put keeps the first reason of each.
func put[K comparable](into map[K]reason, key K, r reason) {
	if _, there := into[key]; !there {
		into[key] = r
	}
}

func (u uses) addDocuments(docs []model.Stored) {
	for _, d := range docs {
		for _, ref := range d.References() {
			put(u.documents, ref, reason{
				ref.String() + " is used by " + d.Ref().String(), "delete " + d.Ref().String() + " first",
			})
		}
		if d.Image == nil {
			continue
		}
		// The first is how an image was called before its checksum was part of the name.
		u.imageOf[d.Metadata.Name], u.imageOf[d.Image.NameOnProviders(d.Metadata.Name)] = d.Metadata.Name,
			d.Metadata.Name
		named := reason{d.Ref().String() + " names it", "delete what needs it first"}
		put(u.images, d.Image.NameOnProviders(d.Metadata.Name), named)
		if d.Image.Source == "" {
			put(u.files, d.Image.SHA256, named)
		}
	}
}

func (u uses) addMachines(machines []director.Machine) {
	for _, m := range machines {
		put(u.images, m.Image, reason{"the VM of " + m.Name + " was made from it", "delete what needs it first"})
		needed := reason{
			"machines of cluster " + m.Cluster + " are on it",
			"replace those machines, or delete the cluster: directorctl delete cluster " + m.Cluster,
		}
		put(u.documents, model.Ref{Kind: model.KindProvider, Name: m.Provider}, needed)
		put(u.documents, model.Ref{Kind: model.KindNetwork, Name: m.Network}, needed)
		for _, n := range m.NICs {
			put(u.documents, model.Ref{Kind: model.KindNetwork, Name: n.Network}, needed)
		}
		if doc := u.imageOf[m.Image]; doc != "" {
			put(u.documents, model.Ref{
				Kind: model.KindImage, Name: doc,
			}, reason{"the VM of " + m.Name + " was made from it", needed.hint})
		}
	}
}

func (u uses) addDisks(disks []director.KeptDisk) {
	for _, d := range disks {
		if d.Holder == "" {
			put(u.documents, model.Ref{Kind: model.KindProvider, Name: d.Provider},
				reason{
					"kept disks are on it, such as that of node " + d.Node + " of cluster " + d.Cluster,
					"give them to nodes, or delete them: directorctl disks list",
				})
		}
	}
}

// addPlans adds what the plans need on their way and back. It fails for a plan that cannot be read: nobody knows what
// it needs.
func (u uses) addPlans(docs []model.Stored, plans []plan.Plan) error {
	for _, p := range plans {
		n, err := planner.NeedsOf(p.Content)
		if err != nil {
			return &director.Error{
				Kind: director.KindInternal, Op: "operations.uses", Msg: "what plan " + p.ID + " needs cannot be read",
				Hint: "give it up: directorctl discard " + p.ID, Err: err,
			}
		}
		r := reason{
			"plan " + p.ID + " can go on, and needs it",
			"let it go on (directorctl retry " + p.ID + "), or give it up: directorctl discard " + p.ID,
		}
		for ref := range n.Documents {
			put(u.documents, ref, r)
		}
		for name := range n.Images {
			put(u.images, name, r)
			if doc := u.imageOf[name]; doc != "" {
				put(u.documents, model.Ref{Kind: model.KindImage, Name: doc}, r)
			}
		}
		for sum := range n.Files {
			put(u.files, sum, r)
		}
		for digest := range n.Digests {
			u.programs[digest] = true
		}
		for _, d := range docs {
			if d.Release != nil && n.Bundles[d.Release.Bundle] {
				put(u.documents, d.Ref(), r)
			}
		}
	}
	return nil
}

// addInstalled adds the releases that clusters still run when their documents name others.
func (o *Operations) addInstalled(ctx context.Context, u uses, docs []model.Stored) error {
	for _, d := range docs {
		if d.Cluster == nil {
			continue
		}
		inst, ok, err := o.Store.Installed(ctx, d.Metadata.Name)
		if err != nil {
			return err
		}
		if ok {
			put(u.documents, model.Ref{Kind: model.KindRelease, Name: inst.Document.Cluster.Release},
				reason{
					d.Ref().String() + " runs it",
					"bring the cluster to its new release first: directorctl plan " + d.Metadata.Name,
				})
		}
	}
	return nil
}

// mayGo is a conflict if something needs the document.
func (u uses) mayGo(ref model.Ref) error {
	r, used := u.documents[ref]
	if !used {
		return nil
	}
	return director.Errorf(director.KindConflict, "operations.delete", "%s stays: %s", ref, r.why).
		WithHint("%s", r.hint)
}

// unused is mayGo within the transaction, for what may have come since the look outside: documents, and plans that were
// started.
func unused(tx *store.Tx, ref model.Ref, docs []model.Stored) error {
	u := newUses()
	u.addDocuments(docs)
	if needed(ref.Kind) {
		plans, err := tx.OpenPlans(canGoOn()...)
		if err == nil {
			err = u.addPlans(docs, plans)
		}
		if err != nil {
			return err
		}
	}
	return u.mayGo(ref)
}
