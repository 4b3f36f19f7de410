package operations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/usage"
)

var _ api.Images = (*Operations)(nil)

// checkImage looks at the file of the cluster's image: there, whole, what its document says, and small enough for the
// disks. A director that simulates takes any file.
func (o *Operations) checkImage(ctx context.Context, w planner.World) []director.Field {
	im, at := w.Image.Image, w.Image.Ref().String()
	one := func(field, hint, format string, args ...any) []director.Field {
		return []director.Field{{Path: at + ": spec." + field, Msg: fmt.Sprintf(format, args...), Hint: hint}}
	}
	path, err := o.imageFile(*im)
	sum := ""
	if err == nil {
		sum, err = o.sums.of(ctx, path)
	}
	switch {
	case errors.Is(err, confine.ErrOutside):
		return one(
			"source", "move it there, or name its directory in imageDirs of the director's configuration", "%s", err,
		)
	case errors.Is(err, confine.ErrNotRegular):
		return one("source", "name the image's file", "%s is not a regular file", im.Source)
	case errors.Is(err, os.ErrNotExist) && im.Source == "":
		return one(
			"sha256",
			"import it: directorctl image import FILE "+w.Image.Metadata.Name+"; or name a file in spec.source",
			"this director has no imported image with this checksum",
		)
	case errors.Is(err, os.ErrNotExist):
		return one(
			"source", "copy the image there, or correct the path", "%s does not exist on the director", im.Source,
		)
	case err != nil:
		return one("source", "", "%s", err)
	case sum != im.SHA256:
		return one(
			"sha256", "the file is damaged or another one: copy it again, or correct the checksum: sha256sum "+path,
			"the file has another checksum",
		)
	case slices.Contains(o.ProviderTypes, model.ProviderSim):
		return nil // a rehearsal takes stand-ins
	}
	info, err := diskimage.InspectFile(ctx, path)
	if err != nil {
		return []director.Field{{Path: at + ": spec.source", Msg: message(err), Hint: director.HintOf(err)}}
	}
	var out []director.Field
	if info.Format != diskimage.QCOW2 {
		out = append(
			out,
			one(
				"source", "import it, which converts it: directorctl image import FILE "+w.Image.Metadata.Name,
				"the file is %s, and back ends take qcow2", info,
			)...,
		)
	}
	if info.Arch != "" && info.Arch != im.Arch {
		out = append(out, one("arch", "name an image for "+im.Arch, "the image is for %s", info.Arch)...)
	}
	if info.Release != nil && info.Release.Kubernetes != im.Kubernetes {
		out = append(
			out,
			one("kubernetes", "correct it, or name another image", "the image carries %s", info.Release.Kubernetes)...,
		)
	}
	return append(out, fits(w, info.Virtual)...)
}

// fits compares the disks of the nodes with that of the image, which they begin as a copy of.
func fits(w planner.World, virtual int64) []director.Field {
	var out []director.Field
	small := func(path string, disk model.Size) {
		if int64(disk) < virtual {
			out = append(out, director.Field{
				Path: w.Cluster.Ref().String() + ": spec." + path,
				Msg: fmt.Sprintf(
					"%s are less than the disk of Image/%s has, %s", disk, w.Image.Metadata.Name, model.Size(virtual),
				),
				Hint: "at least " + model.Size(virtual).String(),
			})
		}
	}
	c := w.Cluster.Cluster
	small("masters.disk", c.Masters.Disk)
	for i, p := range c.Workers {
		small(fmt.Sprintf("workers[%d].disk", i), p.Disk)
	}
	return out
}

// placesOf returns where the contents of the image's document may be: what is known to be on providers, and what each
// of them may have under its names.
func placesOf(doc model.Stored, docs []model.Stored, brought []director.ProviderImage) []director.ProviderImage {
	name := doc.Metadata.Name
	var out []director.ProviderImage
	for _, d := range docs {
		if d.Provider == nil {
			continue
		}
		// the first is how it was called before its checksum was part of the name
		there := []string{name, doc.Image.NameOnProviders(name)}
		for _, k := range brought {
			if k.Provider == d.Metadata.Name && k.Image == name && !slices.Contains(there, k.Name) {
				there = append(there, k.Name)
			}
		}
		for _, n := range there {
			out = append(out, director.ProviderImage{
				Provider: d.Metadata.Name, Name: n, Image: name, SHA256: doc.Image.SHA256,
			})
		}
	}
	return out
}

// clearOff takes the images of a document that is gone off their providers. What stays is in the record, and goes with
// the next prune.
func (o *Operations) clearOff(ctx context.Context, doc model.Stored, places []director.ProviderImage) error {
	var left []error
	for _, p := range places {
		if err := o.takeOff(ctx, p.Provider, p.Name); err != nil {
			left = append(left, fmt.Errorf("%s on provider %s: %w", p.Name, p.Provider, err))
		}
	}
	if len(left) == 0 {
		return nil
	}
	return &director.Error{
		Kind: director.KindOf(left[0]), Op: "operations.delete",
		Msg:  doc.Ref().String() + " is deleted, and not yet all of its images: " + errors.Join(left...).Error(),
		Hint: "take the rest off later: directorctl image prune", Err: errors.Join(left...),
	}
}

// takeOff deletes an image on a provider. No error if it is gone; conflict while VMs are linked to it.
func (o *Operations) takeOff(ctx context.Context, provider, name string) error {
	b, err := o.Env.Backends.Backend(ctx, provider)
	if err != nil {
		return err
	}
	if im, ok := hypervisor.Capability[hypervisor.Imaging](b); ok {
		if err := im.DeleteImage(ctx, name); err != nil {
			return err
		}
	}
	return o.Store.ForgetImage(ctx, provider, name)
}

// imageUse is who needs which image.
type imageUse struct {
	usage.Usage
	docs      map[string]model.Stored // of images, by name
	users     map[string][]string     // clusters of an image, by the name of its document
	providers map[string]bool         // that there are
	brought   []director.ProviderImage
}

func (o *Operations) imageUse(ctx context.Context) (imageUse, error) {
	u := imageUse{docs: map[string]model.Stored{}, users: map[string][]string{}, providers: map[string]bool{}}
	docs, err := o.Store.Documents(ctx, "")
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
		}
	}
	if u.Usage, err = usage.Of(ctx, o.Store, docs); err != nil {
		return u, err
	}
	u.brought, err = o.Store.ProviderImages(ctx)
	return u, err
}

// ImageViews lists the documents of images by name, and then the imported files that none names.
func (o *Operations) ImageViews(ctx context.Context) ([]api.ImageView, error) {
	u, err := o.imageUse(ctx)
	if err != nil {
		return nil, err
	}
	files := map[string]*director.ImageFile{}
	var loose []director.ImageFile
	if o.Images != nil {
		list, err := o.Images.Files()
		if err != nil {
			return nil, err
		}
		for i, f := range list {
			files[f.SHA256] = &list[i]
			if _, used := u.Files[f.SHA256]; !used {
				loose = append(loose, f)
			}
		}
	}
	out := []api.ImageView{}
	for _, name := range sorted(u.docs) {
		im := u.docs[name].Image
		v := api.ImageView{
			Name: name, SHA256: im.SHA256, Kubernetes: im.Kubernetes, Source: im.Source, Clusters: u.users[name],
		}
		if im.Source == "" {
			v.File = files[im.SHA256]
		}
		o.provenance(&v, *im)
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
		v := api.ImageView{SHA256: f.SHA256, Kubernetes: f.Kubernetes, File: &f}
		o.provenance(&v, model.Image{SHA256: f.SHA256, Kubernetes: f.Kubernetes, Unsigned: f.Unsigned})
		out = append(out, v)
	}
	return out, nil
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// PruneImages removes what nobody needs: on providers the images that no document, no VM and no plan that can go on
// names, and on the director the imported files that were imported before the time and that no document and no such
// plan names. A rehearsal changes nothing.
func (o *Operations) PruneImages(
	ctx context.Context, actor string, before time.Time, rehearse bool,
) ([]director.ImageLeft, error) {
	u, err := o.imageUse(ctx)
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
		case !rehearse:
			if err := o.takeOff(ctx, b.Provider, b.Name); err != nil {
				left.Kept = message(err)
			}
		}
		out = append(out, left)
	}
	var files []director.ImageFile
	if o.Images != nil {
		if files, err = o.Images.Files(); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if _, used := u.Files[f.SHA256]; used || f.At.After(before) {
			continue
		}
		if !rehearse {
			if err := o.Images.Delete(f.SHA256); err != nil {
				return nil, err
			}
		}
		out = append(out, director.ImageLeft{SHA256: f.SHA256, Size: f.Size})
	}
	if rehearse || len(out) == 0 {
		return out, nil
	}
	return out, o.Store.Update(ctx, func(tx *store.Tx) error { return tx.Audit(o.Now(), actor, "prune", "Image") })
}

// DeleteImageFile removes an imported file; conflict while something needs it. No error if it is gone.
func (o *Operations) DeleteImageFile(ctx context.Context, actor, sum string) error {
	s, err := o.images()
	if err != nil {
		return err
	}
	u, err := o.imageUse(ctx)
	if err != nil {
		return err
	}
	if r, used := u.Files[sum]; used {
		return director.Errorf(director.KindConflict, "operations.delete", "the image stays: %s", r.Why).
			WithHint("%s", r.Hint)
	}
	if err := s.Delete(sum); err != nil {
		return err
	}
	return o.auditImage(ctx, actor, "delete", sum)
}

func (o *Operations) auditImage(ctx context.Context, actor, verb, sum string) error {
	return o.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(o.Now(), actor, verb, fmt.Sprintf("ImageFile/%.64s", sum))
	})
}

// ImageStore is what operations ask of the store of images.
type ImageStore interface {
	Begin(ctx context.Context, r director.ImageRequest) (director.ImageUpload, error)
	Upload(id string) (director.ImageUpload, error)
	Write(ctx context.Context, id string, offset int64, r io.Reader) (director.ImageUpload, error)
	Abort(ctx context.Context, id string) error
	Import(ctx context.Context, r director.ImageImport) (director.ImageJob, error)
	ConvertFile(ctx context.Context, sum, compat, by string) (director.ImageJob, error)
	Job(id string) (director.ImageJob, error)
	Files() ([]director.ImageFile, error)
	Delete(sum string) error
}

func (o *Operations) images() (ImageStore, error) {
	if o.Images == nil {
		return nil, director.Errorf(director.KindUnavailable, "operations.images", "this director keeps no images").
			WithHint("name the file of the image in spec.source of its document")
	}
	return o.Images, nil
}

// BeginUpload makes a place for a file, or returns the one that there is with what has arrived.
func (o *Operations) BeginUpload(ctx context.Context, r director.ImageRequest) (director.ImageUpload, error) {
	s, err := o.images()
	if err != nil {
		return director.ImageUpload{}, err
	}
	if _, err := o.Env.Gate.Upload(director.ImageImport{
		Upload: r.SHA256, Signed: r.Signed, Unsigned: r.Unsigned,
	}); err != nil {
		return director.ImageUpload{}, err // before anything is sent
	}
	return s.Begin(ctx, r)
}

// Upload returns the upload, or not_found.
func (o *Operations) Upload(_ context.Context, id string) (director.ImageUpload, error) {
	s, err := o.images()
	if err != nil {
		return director.ImageUpload{}, err
	}
	return s.Upload(id)
}

// WriteUpload adds to the upload at the offset.
func (o *Operations) WriteUpload(
	ctx context.Context, id string, offset int64, r io.Reader,
) (director.ImageUpload, error) {
	s, err := o.images()
	if err != nil {
		return director.ImageUpload{}, err
	}
	return s.Write(ctx, id, offset, r)
}

// AbortUpload throws the upload away.
func (o *Operations) AbortUpload(ctx context.Context, id string) error {
	s, err := o.images()
	if err != nil {
		return err
	}
	return s.Abort(ctx, id)
}

// ImportImage begins to make an image of an upload.
func (o *Operations) ImportImage(ctx context.Context, r director.ImageImport) (director.ImageJob, error) {
	s, err := o.images()
	if err != nil {
		return director.ImageJob{}, err
	}
	if r, err = o.Env.Gate.Upload(r); err != nil {
		return director.ImageJob{}, err
	}
	j, err := s.Import(ctx, r)
	if err != nil {
		return j, err
	}
	verb := "import"
	if r.Unsigned != "" {
		verb = "import unsigned: " + r.Unsigned
	}
	return j, o.auditImage(ctx, r.By, verb, r.Upload)
}

// ConvertImage begins to make another image of an imported one.
func (o *Operations) ConvertImage(ctx context.Context, actor, sum, compat string) (director.ImageJob, error) {
	s, err := o.images()
	if err != nil {
		return director.ImageJob{}, err
	}
	j, err := s.ConvertFile(ctx, sum, compat, actor)
	if err != nil {
		return j, err
	}
	return j, o.auditImage(ctx, actor, "convert", sum)
}

// ImageJob returns the job, or not_found.
func (o *Operations) ImageJob(_ context.Context, id string) (director.ImageJob, error) {
	s, err := o.images()
	if err != nil {
		return director.ImageJob{}, err
	}
	return s.Job(id)
}
