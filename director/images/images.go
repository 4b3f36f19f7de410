// Package images looks after node images: the files that were imported into the director, and the contents of Image
// documents on providers. It takes uploads, imports and converts them, lists what there is, and removes what nothing
// needs.
package images

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/jobs"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/provenance"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/usage"
)

// Files keeps imported image files by their checksums. *imagestore.Store implements it.
type Files interface {
	Begin(ctx context.Context, r director.ImageRequest) (director.ImageUpload, error)
	Upload(id string) (director.ImageUpload, error)
	Write(ctx context.Context, id string, offset int64, r io.Reader) (director.ImageUpload, error)
	Abort(ctx context.Context, id string) error
	Import(ctx context.Context, r director.ImageImport) (jobs.Job[director.ImageFile], error)
	ConvertFile(ctx context.Context, sum, compat, by string) (jobs.Job[director.ImageFile], error)
	Job(id string) (jobs.Job[director.ImageFile], error)
	Files() ([]director.ImageFile, error)
	Delete(sum string) error
	Path(sum string) string // where the file is, or would be
}

// Backends gives the back end of a provider.
type Backends interface {
	Backend(ctx context.Context, provider string) (hypervisor.Backend, error)
}

// Gate decides which images are used: those with a signature of a trusted key, and those with a reason in words. A nil
// *provenance.Gate takes all.
type Gate interface {
	Image(im model.Image, path string) (provenance.Reason, error)
	Upload(r director.ImageImport) (director.ImageImport, error)
}

// Config is what New needs.
type Config struct {
	Store    *store.Store
	Files    Files
	Backends Backends
	Gate     Gate
	Dirs     confine.Dirs // where the files are that documents may name
	Now      func() time.Time
}

// Service looks after images. It is safe for concurrent use.
type Service struct {
	store    *store.Store
	files    Files
	backends Backends
	gate     Gate
	dirs     confine.Dirs
	now      func() time.Time
}

// New returns the service.
func New(c Config) *Service {
	return &Service{store: c.Store, files: c.Files, backends: c.Backends, gate: c.Gate, dirs: c.Dirs, now: c.Now}
}

// View is a document of an image with what is known of its file, or a file that no document names.
type View struct {
	Name, SHA256, Kubernetes, Source string
	File                             *director.ImageFile
	Clusters, Providers              []string
	Old                              int    // earlier contents of the document on providers
	SignedBy                         string // id of the key
	Unsigned                         string // why it is used without a signature
	Refused                          string // why it is not used
}

// List lists the documents of images by name, and then the imported files that none names.
func (s *Service) List(ctx context.Context) ([]View, error) {
	u, err := s.imageUse(ctx)
	if err != nil {
		return nil, err
	}
	files := map[string]*director.ImageFile{}
	var loose []director.ImageFile
	list, err := s.files.Files()
	if err != nil {
		return nil, err
	}
	for i, f := range list {
		files[f.SHA256] = &list[i]
		if _, used := u.Files[f.SHA256]; !used || u.appliances[f.SHA256] {
			loose = append(loose, f)
		}
	}
	out := []View{}
	for _, name := range slices.Sorted(maps.Keys(u.docs)) {
		im := u.docs[name].Image
		v := View{
			Name: name, SHA256: im.SHA256, Kubernetes: im.Kubernetes, Source: im.Source, Clusters: u.users[name],
		}
		if im.Source == "" {
			v.File = files[im.SHA256]
		}
		s.provenance(&v, *im)
		key := im.NameOnProviders(name)
		for _, b := range u.brought {
			if b.Image == name && b.Name == key {
				v.Providers = append(v.Providers, b.Provider)
			} else if b.Image == name {
				v.Old++
			}
		}
		out = append(out, v)
	}
	for _, f := range loose {
		v := View{SHA256: f.SHA256, Kubernetes: f.Kubernetes, File: &f}
		s.provenance(&v, model.Image{SHA256: f.SHA256, Kubernetes: f.Kubernetes, Unsigned: f.Unsigned})
		out = append(out, v)
	}
	return out, nil
}

// imageUse is who needs which image.
type imageUse struct {
	usage.Usage
	docs      map[string]model.Stored // of images, by name
	users     map[string][]string     // clusters of an image, by the name of its document
	providers map[string]bool         // that there are
	// appliances are the checksums of the files that directors alone name.
	appliances map[string]bool
	brought    []director.ProviderImage
}

func (s *Service) imageUse(ctx context.Context) (imageUse, error) {
	u := imageUse{
		docs: map[string]model.Stored{}, users: map[string][]string{}, providers: map[string]bool{},
		appliances: map[string]bool{},
	}
	docs, err := s.store.Documents(ctx, "")
	if err != nil {
		return u, err
	}
	for _, d := range docs {
		switch {
		case d.Image != nil:
			u.docs[d.Metadata.Name] = d
		case d.Cluster != nil:
			u.users[d.Cluster.Image] = append(u.users[d.Cluster.Image], d.Metadata.Name)
		case d.Provider != nil:
			u.providers[d.Metadata.Name] = true
		case d.Director != nil && d.Director.Image.Source == "":
			u.appliances[d.Director.Image.SHA256] = true
		}
	}
	for _, d := range u.docs {
		if d.Image.Source == "" {
			delete(u.appliances, d.Image.SHA256)
		}
	}
	if u.Usage, err = usage.Of(ctx, s.store, docs); err != nil {
		return u, err
	}
	u.brought, err = s.store.ProviderImages(ctx)
	return u, err
}

// provenance adds to the view who signed the image, or why it is used without a signature, or why it is not used.
func (s *Service) provenance(v *View, im model.Image) {
	path := s.files.Path(im.SHA256)
	if im.Source != "" {
		var err error
		if path, err = s.dirs.Find(im.Source); err != nil {
			return // the pre-check says so
		}
	}
	reason, err := s.gate.Image(im, path)
	v.SignedBy, v.Unsigned = reason.Key, reason.Words
	if err != nil {
		v.Refused = director.MessageOf(err)
	}
}

// Prune removes what nothing needs: on providers the images that no document, no VM and no plan that can continue
// names, and on the director the files that were imported before the time and that no document and no such plan names.
// A dry run changes nothing.
func (s *Service) Prune(
	ctx context.Context, actor string, before time.Time, dryRun bool,
) ([]director.ImageLeft, error) {
	u, err := s.imageUse(ctx)
	if err != nil {
		return nil, err
	}
	out := []director.ImageLeft{}
	for _, b := range u.brought {
		if _, used := u.Images[b.Name]; used {
			continue
		}
		left := director.ImageLeft{Provider: b.Provider, Name: b.Name, SHA256: b.SHA256}
		switch {
		case !u.providers[b.Provider]:
			left.Kept = "its provider has no document any more"
		case !dryRun:
			if err := s.remove(ctx, b.Provider, b.Name); err != nil {
				left.Kept = director.MessageOf(err)
			}
		}
		out = append(out, left)
	}
	files, err := s.files.Files()
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if _, used := u.Files[f.SHA256]; used || f.At.After(before) {
			continue
		}
		if !dryRun {
			if err := s.files.Delete(f.SHA256); err != nil {
				return nil, err
			}
		}
		out = append(out, director.ImageLeft{SHA256: f.SHA256, Size: f.Size})
	}
	if dryRun || len(out) == 0 {
		return out, nil
	}
	return out, s.store.Update(ctx, func(tx *store.Tx) error { return tx.Audit(s.now(), actor, "prune", "Image") })
}

// DeleteFile removes an imported file; conflict while something needs it. No error if it is gone.
func (s *Service) DeleteFile(ctx context.Context, actor, sum string) error {
	u, err := s.imageUse(ctx)
	if err != nil {
		return err
	}
	if r, used := u.Files[sum]; used {
		return director.Errorf(director.KindConflict, "images.delete", "the image stays: %s", r.Why).
			WithHint("%s", r.Hint)
	}
	if err := s.files.Delete(sum); err != nil {
		return err
	}
	return s.audit(ctx, actor, "delete", sum)
}

func (s *Service) audit(ctx context.Context, actor, verb, sum string) error {
	return s.store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.now(), actor, verb, fmt.Sprintf("ImageFile/%.64s", sum))
	})
}
