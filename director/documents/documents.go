// Package documents keeps what people write down: it applies documents, compares them with the stored ones, and deletes
// those that nothing needs.
package documents

import (
	"context"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// Images is what documents have on providers.
type Images interface {
	// Places returns where the contents of the image's document may be.
	Places(ctx context.Context, doc model.Stored, docs []model.Stored) ([]director.ProviderImage, error)
	// Remove takes the contents of a document that is gone off the places. What stays goes with the next prune.
	Remove(ctx context.Context, doc model.Stored, places []director.ProviderImage) error
}

// Config is what the service works with.
type Config struct {
	Store  *store.Store
	Images Images
	Now    func() time.Time
	// ProviderTypes are the types of providers that this director takes; any if nil.
	ProviderTypes []string
	Confine       confine.Rules // what documents may name
	// CheckSchedule returns what is wrong with a schedule beyond what the model can tell; nil for a director without
	// schedules.
	CheckSchedule func(model.Schedule) []director.Field
	// CheckIdentity is CheckSchedule for an identity provider.
	CheckIdentity func(model.IdentityProvider) []director.Field
	// CheckAuthority is CheckSchedule for a certificate authority.
	CheckAuthority func(model.CertificateAuthority) []director.Field
	// TryAuthority returns what using the authority of the name shows to be wrong; nil where none is used.
	TryAuthority func(ctx context.Context, name string, a model.CertificateAuthority) []director.Field
	// Applied is called after documents have changed; nil for none.
	Applied func()
	// Answer is what a repeated request for an apply is answered with; nil for the changes themselves.
	Answer func([]model.Change) any
}

// Service applies and deletes documents. It is safe for concurrent use.
type Service struct{ c Config }

// New returns the service.
func New(c Config) *Service { return &Service{c} }

// Apply stores the documents in text, all or none, and tells what changed. Every problem of every document is reported
// at once.
func (s *Service) Apply(
	ctx context.Context, actor string, text []byte, source string, dryRun bool,
) ([]model.Change, error) {
	return s.ApplyIf(ctx, Author{Name: actor}, text, source, dryRun, Condition{})
}

// Author is who applies documents.
type Author struct {
	Name string
	// May returns why the author may not replace was with is; was is nil for a new document. A nil May allows
	// everything.
	May func(was, is *model.Document) error
}

// ApplyIf is Apply of what the author may store. With a condition it is for a single document that fulfils it when it
// is stored, and stale otherwise.
func (s *Service) ApplyIf(
	ctx context.Context, by Author, text []byte, source string, dryRun bool, c Condition,
) ([]model.Change, error) {
	docs, err := model.Parse(text, source)
	if err != nil {
		return nil, err
	}
	if err := s.validate(docs); err != nil {
		return nil, err
	}
	if !dryRun {
		if err := s.try(ctx, by, docs); err != nil {
			return nil, err
		}
	}
	if c.Any() && len(docs) != 1 {
		return nil, director.Errorf(
			director.KindInvalid, "documents.apply", "a condition is for one document, and these are %d", len(docs),
		).
			WithHint("apply it by itself, or leave If-Match and If-None-Match out")
	}
	changes, err := s.store(ctx, by, docs, dryRun, c)
	if err == nil && s.c.Applied != nil {
		s.c.Applied()
	}
	return changes, err
}

// validate checks each document by itself, and that none is there twice.
func (s *Service) validate(docs []model.Document) error {
	var problems []director.Field
	seen := map[model.Ref]bool{}
	for i := range docs {
		problems = append(problems, s.alone(&docs[i])...)
		if ref := docs[i].Ref(); seen[ref] {
			problems = append(problems, director.Field{
				Path: ref.String(), Msg: "appears twice in what you apply", Hint: "keep one",
			})
		} else {
			seen[ref] = true
		}
	}
	return director.Invalid("documents.apply", "nothing was applied: the documents have problems", problems)
}

// CheckAlone returns everything that is wrong with the document by itself, as an apply does.
func (s *Service) CheckAlone(d *model.Document) error {
	return director.Invalid("documents.check", "the document has problems", s.alone(d))
}

func (s *Service) alone(d *model.Document) []director.Field {
	_, err := model.Validate(d)
	problems := director.FieldsOf(err)
	var further []director.Field
	if d.Schedule != nil && s.c.CheckSchedule != nil {
		further = s.c.CheckSchedule(*d.Schedule)
	}
	if d.IdentityProvider != nil && s.c.CheckIdentity != nil {
		further = s.c.CheckIdentity(*d.IdentityProvider)
	}
	if d.CertificateAuthority != nil && s.c.CheckAuthority != nil && err == nil {
		further = s.c.CheckAuthority(*d.CertificateAuthority)
	}
	for _, f := range further {
		f.Path = d.Ref().String() + ": " + f.Path
		problems = append(problems, f)
	}
	problems = append(problems, s.checkType(d)...)
	return append(problems, s.checkConfined(d)...)
}

// try refuses certificate authorities that turn out to be of no use. What the author may not store is not used.
func (s *Service) try(ctx context.Context, by Author, docs []model.Document) error {
	var problems []director.Field
	for i := range docs {
		d := &docs[i]
		if d.CertificateAuthority == nil || s.c.TryAuthority == nil || by.May != nil && by.May(nil, d) != nil {
			continue
		}
		for _, f := range s.c.TryAuthority(ctx, d.Metadata.Name, *d.CertificateAuthority) {
			f.Path = d.Ref().String() + ": " + f.Path
			problems = append(problems, f)
		}
	}
	return director.Invalid("documents.apply", "nothing was applied: the documents have problems", problems)
}

// checkType refuses a provider that only pretends, unless all of this director does: its clusters must not pass for
// real ones.
func (s *Service) checkType(d *model.Document) []director.Field {
	if d.Provider == nil || d.Provider.Type != model.ProviderSim || s.c.ProviderTypes == nil ||
		slices.Contains(s.c.ProviderTypes, model.ProviderSim) {
		return nil
	}
	return []director.Field{{
		Path: d.Ref().String() + ": spec.type", Msg: "sim is only for simulations, and this director does not simulate",
		Hint: "name a real hypervisor, or simulate with: director simulate",
	}}
}

// merge compares the documents with the stored ones, and checks the set that would result.
func merge(docs []model.Document, stored []model.Stored) ([]model.Change, error) {
	before := map[model.Ref]model.Stored{}
	all := model.Set{}
	for i, s := range stored {
		before[s.Ref()] = s
		all[s.Ref()] = &stored[i].Document
	}
	maps.Copy(all, model.SetOf(docs))
	var problems []director.Field
	changes := make([]model.Change, len(docs))
	for i := range docs {
		d := &docs[i]
		problems = append(problems, director.FieldsOf(model.Check(d, all))...)
		old, had := before[d.Ref()]
		c := model.Change{Ref: d.Ref(), Action: "created"}
		if had {
			var err error
			if c.Action, c.Diff, err = compare(old.Document, *d); err != nil {
				return nil, err
			}
		}
		changes[i] = c
	}
	// A document that did not change itself may no longer fit those that did.
	applied := model.SetOf(docs)
	for ref, d := range all {
		if applied[ref] == nil {
			problems = append(problems, director.FieldsOf(model.Check(d, all))...)
		}
	}
	sort.SliceStable(problems, func(i, j int) bool { return problems[i].Path < problems[j].Path })
	return changes, director.Invalid(
		"documents.apply", "nothing was applied: the documents do not fit together", problems,
	)
}

// Document returns one document, or not_found.
func (s *Service) Document(ctx context.Context, ref model.Ref) (model.Stored, error) {
	return s.c.Store.Document(ctx, ref)
}

// DeleteDocument removes a document that nothing uses. An Image is taken off its providers first.
func (s *Service) DeleteDocument(ctx context.Context, actor string, ref model.Ref) error {
	return s.DeleteDocumentIf(ctx, actor, ref, Condition{})
}
