// Package releases looks after release bundles: those that were imported into the director, and those that documents of
// the kind Release name. It imports archives, lists and verifies what there is, and removes what nothing needs.
package releases

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/jobs"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/provenance"
	"github.com/director-kaas/kaas/director/releasestore"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/usage"
)

// Uploads holds archives that have arrived. *imagestore.Store implements it.
type Uploads interface {
	Upload(id string) (director.ImageUpload, error)
	Take(id string) (path string, drop func() error, release func(), err error)
}

// Files keeps imported bundles by their digests. *releasestore.Store implements it.
type Files interface {
	Import(ctx context.Context, a releasestore.Archive) (releasestore.Job, error)
	Job(id string) (releasestore.Job, error)
	Files() ([]director.ReleaseFile, error)
	File(digest string) (director.ReleaseFile, error)
	Delete(digest string) error
}

// Gate decides which bundles are used: those with a signature of a trusted key, and those with a reason in words. A nil
// *provenance.Gate takes all.
type Gate interface {
	Archive(r bundle.Release, text, signature []byte, words string) (provenance.Reason, error)
	Release(b *bundle.Bundle, words string) (provenance.Reason, error)
}

// Places finds the bundle of a release. snapshot.Bundles implements it.
type Places interface {
	Dir(r model.Release) (string, error)
}

// Config is what New needs.
type Config struct {
	Store   *store.Store
	Uploads Uploads
	Files   Files
	Gate    Gate
	Places  Places
	Now     func() time.Time
}

// Service looks after releases. It is safe for concurrent use.
type Service struct{ c Config }

// New returns the service.
func New(c Config) *Service { return &Service{c} }

// View is a document of a release with what is known of its bundle, or an imported bundle that no document names.
type View struct {
	Name       string // of the document; empty for a bundle that none names
	Digest     string // of the bundle; empty if it cannot be read
	Kubernetes string
	Directory  string // of a bundle that was not imported
	Components map[string]string
	File       *director.ReleaseFile // of an imported one
	Clusters   []string
	SignedBy   string // id of the key
	Unsigned   string // why it is used without a signature
	Refused    string // why it is not used
}

// List lists the documents of releases by name, and then the imported bundles that none names, the newest first.
func (s *Service) List(ctx context.Context) ([]View, error) {
	docs, err := s.c.Store.Documents(ctx, "")
	if err != nil {
		return nil, err
	}
	list, err := s.c.Files.Files()
	if err != nil {
		return nil, err
	}
	loose := map[string]*director.ReleaseFile{}
	for i := range list {
		loose[list[i].Digest] = &list[i]
	}
	files, users := maps.Clone(loose), map[string][]string{}
	for _, d := range docs {
		if d.Cluster != nil {
			users[d.Cluster.Release] = append(users[d.Cluster.Release], d.Metadata.Name)
		}
	}
	out := []View{}
	for _, d := range docs {
		if d.Release == nil {
			continue
		}
		v := View{
			Name: d.Metadata.Name, Digest: d.Release.Digest, Kubernetes: d.Release.Kubernetes,
			Directory: d.Release.Bundle, Clusters: users[d.Metadata.Name],
		}
		if d.Release.Bundle == "" {
			v.File = files[d.Release.Digest]
			delete(loose, d.Release.Digest)
		}
		s.look(&v, *d.Release)
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b View) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range list {
		if loose[f.Digest] == nil {
			continue
		}
		v := View{Digest: f.Digest, Kubernetes: f.Kubernetes, File: &f}
		s.look(&v, model.Release{Digest: f.Digest, Kubernetes: f.Kubernetes, Unsigned: f.Unsigned})
		out = append(out, v)
	}
	return out, nil
}

// look adds what the bundle says, and why it is used or not.
func (s *Service) look(v *View, r model.Release) {
	b, err := s.open(r)
	if err != nil {
		v.Refused = director.MessageOf(err)
		return
	}
	v.Digest, v.Components = b.Digest(), b.Release().Components
	reason, err := s.c.Gate.Release(b, r.Unsigned)
	v.SignedBy, v.Unsigned = reason.Key, reason.Words
	if err != nil {
		v.Refused = director.MessageOf(err)
	}
}

func (s *Service) open(r model.Release) (*bundle.Bundle, error) {
	dir, err := s.c.Places.Dir(r)
	if err != nil {
		return nil, err
	}
	return bundle.Open(dir)
}

const opImport = "releases.import"

// Import begins to import an uploaded archive, or returns the job that does. Errors: not_found without the upload,
// conflict while it arrives, invalid if it is not an archive of a release.
func (s *Service) Import(ctx context.Context, r director.ReleaseImport) (releasestore.Job, error) {
	u, err := s.c.Uploads.Upload(r.Upload)
	if director.KindOf(err) == director.KindNotFound {
		return s.imported(r, err)
	}
	if err != nil {
		return releasestore.Job{}, err
	}
	if !u.Release {
		return releasestore.Job{}, director.Errorf(
			director.KindInvalid, opImport, "upload %.12s is an image, and no archive of a release bundle", r.Upload,
		).
			WithHint("import it as that: directorctl image import FILE")
	}
	var path string
	var drop func() error
	j, err := s.c.Files.Import(ctx, releasestore.Archive{
		ID: r.Upload, Size: u.Size, By: r.By, Unsigned: r.Unsigned,
		Trust: func(b bundle.Release, text, signature []byte) error {
			_, err := s.c.Gate.Archive(b, text, signature, r.Unsigned)
			return err
		},
		Take: func() (release func(), err error) {
			path, drop, release, err = s.c.Uploads.Take(r.Upload)
			return release, err
		},
		Open: func() (io.ReadCloser, error) { return os.Open(path) },
		Drop: func() error { return drop() },
	})
	if err != nil {
		return j, err
	}
	verb := "import"
	if r.Unsigned != "" {
		verb = "import unsigned: " + r.Unsigned
	}
	return j, s.audit(ctx, r.By, verb, r.Upload)
}

// imported answers an import whose upload is gone: it has ended, or there is a bundle that came in that archive.
func (s *Service) imported(r director.ReleaseImport, none error) (releasestore.Job, error) {
	id := "import-" + r.Upload
	if j, err := s.c.Files.Job(id); err == nil {
		return j, nil
	}
	files, err := s.c.Files.Files()
	if err != nil {
		return releasestore.Job{}, err
	}
	for _, f := range files {
		if f.Upload == r.Upload {
			return releasestore.Job{ID: id, Stage: jobs.Done, Result: &f}, nil
		}
	}
	return releasestore.Job{}, none
}

// Job returns the job, or not_found.
func (s *Service) Job(_ context.Context, id string) (releasestore.Job, error) {
	return s.c.Files.Job(id)
}

// Verify reads everything in a bundle, which is named by its document or the digest of an imported one, and compares it
// with its release.yaml. It changes nothing. Errors: not_found, invalid with every wrong place.
func (s *Service) Verify(ctx context.Context, name string) (View, error) {
	views, err := s.List(ctx)
	if err != nil {
		return View{}, err
	}
	i := slices.IndexFunc(views, func(v View) bool { return v.Name == name || v.Name == "" && v.Digest == name })
	if i < 0 {
		return View{}, director.Errorf(director.KindNotFound, "releases.verify", "there is no release %.64q", name).
			WithHint("see what there is: directorctl release list")
	}
	b, err := s.open(model.Release{Bundle: views[i].Directory, Digest: views[i].Digest})
	if err != nil {
		return View{}, err
	}
	return views[i], b.Verify(ctx)
}

// Delete removes an imported bundle; conflict while something needs it. No error if it is gone.
func (s *Service) Delete(ctx context.Context, actor, digest string) error {
	needed, err := s.needed(ctx)
	if err != nil {
		return err
	}
	if r, used := needed[digest]; used {
		return director.Errorf(director.KindConflict, "releases.delete", "the release stays: %s", r.Why).
			WithHint("%s", r.Hint)
	}
	if err := s.c.Files.Delete(digest); err != nil {
		return err
	}
	return s.audit(ctx, actor, "delete", digest)
}

// needed returns the digests of imported bundles that documents and plans that can continue name.
func (s *Service) needed(ctx context.Context) (map[string]usage.Reason, error) {
	docs, err := s.c.Store.Documents(ctx, "")
	if err != nil {
		return nil, err
	}
	u, err := usage.Of(ctx, s.c.Store, docs)
	return u.Bundles, err
}

// Prune removes the imported bundles that nothing needs and that were imported before the time. A dry run changes
// nothing.
func (s *Service) Prune(
	ctx context.Context, actor string, before time.Time, dryRun bool,
) ([]director.ReleaseLeft, error) {
	needed, err := s.needed(ctx)
	if err != nil {
		return nil, err
	}
	files, err := s.c.Files.Files()
	if err != nil {
		return nil, err
	}
	out := []director.ReleaseLeft{}
	for _, f := range files {
		if _, used := needed[f.Digest]; used || f.At.After(before) {
			continue
		}
		if !dryRun {
			if err := s.c.Files.Delete(f.Digest); err != nil {
				return nil, err
			}
		}
		out = append(out, director.ReleaseLeft{Digest: f.Digest, Name: f.Name, Size: f.Size})
	}
	if dryRun || len(out) == 0 {
		return out, nil
	}
	return out, s.c.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.c.Now(), actor, "prune", "Release")
	})
}

func (s *Service) audit(ctx context.Context, actor, verb, sum string) error {
	return s.c.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.c.Now(), actor, verb, fmt.Sprintf("ReleaseFile/%.64s", sum))
	})
}
