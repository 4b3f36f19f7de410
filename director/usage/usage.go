// Package usage computes what documents, machines, kept disks and unfinished plans still need. All deletions and prunes
// use it.
package usage

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// Reason is why something stays, and what to do if it should go.
type Reason struct{ Why, Hint string }

// Usage is what is needed, with the first reason of each.
type Usage struct {
	Documents map[model.Ref]Reason
	Images    map[string]Reason // by the name on providers
	Files     map[string]Reason // imported images, by checksum
	Bundles   map[string]Reason // imported release bundles, by digest
	Programs  map[string]bool   // bundles whose programs nodes may fetch, by digest

	imageOf map[string]string // documents of images, by the name on providers
}

// New returns the usage of nothing.
func New() Usage {
	return Usage{
		Documents: map[model.Ref]Reason{}, Images: map[string]Reason{}, Files: map[string]Reason{},
		Bundles: map[string]Reason{}, Programs: map[string]bool{}, imageOf: map[string]string{},
	}
}

// Resumable lists the statuses of plans that were started and are not over for good. One that was not started needs
// nothing yet: its start finds what is missing.
func Resumable() []plan.Status {
	return append(plan.ActiveStatuses(), plan.StatusFailed, plan.StatusCancelled)
}

// Unfinished lists the statuses of plans that are not over for good, also of those that were not started: a start does
// not bring everything again that nodes which it rolls back need.
func Unfinished() []plan.Status {
	return slices.DeleteFunc(plan.Statuses(), func(p plan.Status) bool {
		return p == plan.StatusDone || p == plan.StatusUndone || p == plan.StatusDiscarded
	})
}

// Of checks everything that may need something: docs, which are all documents, and the rows of the store. It reads the
// plans last: what a new plan needs is named by a document before.
func Of(ctx context.Context, s *store.Store, docs []model.Stored) (Usage, error) {
	u := New()
	u.addDocuments(docs)
	brought, err := s.ProviderImages(ctx)
	if err != nil {
		return u, err
	}
	for _, b := range brought {
		u.imageOf[b.Name] = b.Image
	}
	machines, err := s.Machines(ctx, store.MachineFilter{})
	if err != nil {
		return u, err
	}
	u.addMachines(machines)
	disks, err := s.KeptDisks(ctx, store.DiskFilter{})
	if err != nil {
		return u, err
	}
	u.addDisks(disks)
	plans, err := s.OpenPlans(ctx, Resumable()...)
	if err != nil {
		return u, err
	}
	return u, u.AddPlans(docs, plans)
}

// put keeps the first reason of each.
func put[K comparable](into map[K]Reason, key K, r Reason) {
	if _, there := into[key]; !there {
		into[key] = r
	}
}

func (u Usage) addDocuments(docs []model.Stored) {
	for _, d := range docs {
		for _, ref := range d.References() {
			put(u.Documents, ref, Reason{
				ref.String() + " is used by " + d.Ref().String(), "delete " + d.Ref().String() + " first",
			})
		}
		if r := d.Release; r != nil && r.Bundle == "" {
			put(u.Bundles, r.Digest, Reason{d.Ref().String() + " names it", "delete " + d.Ref().String() + " first"})
		}
		if d.Director != nil {
			im := d.Director.Image.AsImage()
			named := Reason{d.Ref().String() + " names it", "delete what needs it first"}
			put(u.Images, im.NameOnProviders(model.ApplianceImage), named)
			if im.Source == "" {
				put(u.Files, im.SHA256, named)
			}
		}
		if d.Image == nil {
			continue
		}
		// The first is how an image was called before its checksum was part of the name.
		u.imageOf[d.Metadata.Name], u.imageOf[d.Image.NameOnProviders(d.Metadata.Name)] = d.Metadata.Name,
			d.Metadata.Name
		named := Reason{d.Ref().String() + " names it", "delete what needs it first"}
		put(u.Images, d.Image.NameOnProviders(d.Metadata.Name), named)
		if d.Image.Source == "" {
			put(u.Files, d.Image.SHA256, named)
		}
	}
}

func (u Usage) addMachines(machines []director.Machine) {
	for _, m := range machines {
		put(u.Images, m.Image, Reason{"the VM of " + m.Name + " was made from it", "delete what needs it first"})
		needed := Reason{
			"machines of cluster " + m.Cluster + " are on it",
			"replace those machines, or delete the cluster: directorctl delete cluster " + m.Cluster,
		}
		if m.Role == director.RoleDirector {
			needed = Reason{
				"the VM of director " + m.Cluster + " is on it",
				"delete the director: directorctl director delete " + m.Cluster,
			}
		}
		put(u.Documents, model.Ref{Kind: model.KindProvider, Name: m.Provider}, needed)
		put(u.Documents, model.Ref{Kind: model.KindNetwork, Name: m.Network}, needed)
		for _, n := range m.NICs {
			put(u.Documents, model.Ref{Kind: model.KindNetwork, Name: n.Network}, needed)
		}
		if doc := u.imageOf[m.Image]; doc != "" {
			put(u.Documents, model.Ref{
				Kind: model.KindImage, Name: doc,
			}, Reason{"the VM of " + m.Name + " was made from it", needed.Hint})
		}
	}
}

func (u Usage) addDisks(disks []director.KeptDisk) {
	for _, d := range disks {
		if d.Holder == "" {
			put(u.Documents, model.Ref{Kind: model.KindProvider, Name: d.Provider},
				Reason{
					"kept disks are on it, such as that of node " + d.Node + " of cluster " + d.Cluster,
					"give them to nodes, or delete them: directorctl disks list",
				})
		}
	}
}

// AddPlans adds what the plans need to run and to be undone. It fails for a plan that cannot be read, because its needs
// are unknown.
func (u Usage) AddPlans(docs []model.Stored, plans []plan.Plan) error {
	for _, p := range plans {
		n, err := step.NeedsOf(p.Content)
		if err != nil {
			return &director.Error{
				Kind: director.KindInternal, Op: "usage.plans", Msg: "what plan " + p.ID + " needs cannot be read",
				Hint: "give it up: directorctl discard " + p.ID, Err: err,
			}
		}
		r := Reason{
			"plan " + p.ID + " is not finished, and needs it",
			"continue it (directorctl retry " + p.ID + "), or give it up: directorctl discard " + p.ID,
		}
		for ref := range n.Documents {
			put(u.Documents, ref, r)
		}
		for name := range n.Images {
			put(u.Images, name, r)
			if doc := u.imageOf[name]; doc != "" {
				put(u.Documents, model.Ref{Kind: model.KindImage, Name: doc}, r)
			}
		}
		for sum := range n.Files {
			put(u.Files, sum, r)
		}
		for digest := range n.Digests {
			u.Programs[digest] = true
			put(u.Bundles, digest, r)
		}
		for _, d := range docs {
			if d.Release != nil && (n.Bundles[d.Release.Bundle] || n.Digests[d.Release.Digest]) {
				put(u.Documents, d.Ref(), r)
			}
		}
	}
	return nil
}

// AddInstalled adds the releases that clusters still run when their documents name others.
func (u Usage) AddInstalled(ctx context.Context, s *store.Store, docs []model.Stored) error {
	for _, d := range docs {
		if d.Cluster == nil {
			continue
		}
		inst, ok, err := s.Installed(ctx, d.Metadata.Name)
		if err != nil {
			return err
		}
		if ok {
			put(u.Documents, model.Ref{Kind: model.KindRelease, Name: inst.Document.Cluster.Release},
				Reason{
					d.Ref().String() + " runs it",
					"bring the cluster to its new release first: directorctl plan " + d.Metadata.Name,
				})
		}
	}
	return nil
}

// MayGo returns a conflict if something needs the document.
func (u Usage) MayGo(ref model.Ref) error {
	r, used := u.Documents[ref]
	if !used {
		return nil
	}
	return director.Errorf(director.KindConflict, "usage.delete", "%s stays: %s", ref, r.Why).
		WithHint("%s", r.Hint)
}

// Unused is MayGo within the transaction, for what may have come since the look outside: documents, and plans that were
// started.
func Unused(tx *store.Tx, ref model.Ref, docs []model.Stored) error {
	u := New()
	u.addDocuments(docs)
	if Needed(ref.Kind) {
		plans, err := tx.OpenPlans(Resumable()...)
		if err == nil {
			err = u.AddPlans(docs, plans)
		}
		if err != nil {
			return err
		}
	}
	return u.MayGo(ref)
}

// Needed reports whether something else can need documents of the kind.
func Needed(k model.Kind) bool {
	return slices.Contains([]model.Kind{
		model.KindProvider, model.KindNetwork, model.KindImage, model.KindRelease, model.KindHook,
	}, k)
}
