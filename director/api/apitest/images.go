package apitest

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/images"
	"github.com/director-kaas/kaas/director/imagestore"
	"github.com/director-kaas/kaas/director/jobs"
	"github.com/director-kaas/kaas/director/model"
)

// Images is a real store of images next to an in-memory director. It implements api.Images.
type Images struct {
	Operations *Operations
	Store      *imagestore.Store
}

var _ api.Images = Images{}

// List lists the documents and the files.
func (i Images) List(context.Context) ([]images.View, error) {
	files, err := i.Store.Files()
	if err != nil {
		return nil, err
	}
	var out []images.View
	named := map[string]bool{}
	for _, d := range i.documents() {
		v := images.View{
			Name: d.Metadata.Name, SHA256: d.Image.SHA256, Kubernetes: d.Image.Kubernetes, Source: d.Image.Source,
		}
		named[v.SHA256] = true
		for n, f := range files {
			if f.SHA256 == v.SHA256 {
				v.File = &files[n]
			}
		}
		out = append(out, v)
	}
	for _, f := range files {
		if !named[f.SHA256] {
			out = append(out, images.View{SHA256: f.SHA256, Kubernetes: f.Kubernetes, File: &f})
		}
	}
	return out, nil
}

func (i Images) documents() []model.Stored {
	i.Operations.mu.Lock()
	defer i.Operations.mu.Unlock()
	var out []model.Stored
	for _, d := range i.Operations.docs {
		if d.Image != nil {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b model.Stored) int { return len(a.Metadata.Name) - len(b.Metadata.Name) })
	return out
}

func (i Images) uses(sum string) bool {
	return slices.ContainsFunc(i.documents(), func(d model.Stored) bool { return d.Image.SHA256 == sum })
}

// BeginUpload begins an upload.
func (i Images) BeginUpload(ctx context.Context, r director.ImageRequest) (director.ImageUpload, error) {
	return i.Store.Begin(ctx, r)
}

// Upload returns an upload.
func (i Images) Upload(_ context.Context, id string) (director.ImageUpload, error) {
	return i.Store.Upload(id)
}

// WriteUpload adds to an upload.
func (i Images) WriteUpload(ctx context.Context, id string, offset int64, r io.Reader) (director.ImageUpload, error) {
	return i.Store.Write(ctx, id, offset, r)
}

// AbortUpload throws an upload away.
func (i Images) AbortUpload(ctx context.Context, id string) error { return i.Store.Abort(ctx, id) }

// Import imports an upload.
func (i Images) Import(ctx context.Context, r director.ImageImport) (jobs.Job[director.ImageFile], error) {
	return i.Store.Import(ctx, r)
}

// Convert converts an image.
func (i Images) Convert(ctx context.Context, actor, sum, compat string) (jobs.Job[director.ImageFile], error) {
	return i.Store.ConvertFile(ctx, sum, compat, actor)
}

// Job returns a job.
func (i Images) Job(_ context.Context, id string) (jobs.Job[director.ImageFile], error) {
	return i.Store.Job(id)
}

// DeleteFile removes a file that no document names.
func (i Images) DeleteFile(_ context.Context, _, sum string) error {
	if i.uses(sum) {
		return director.Errorf(director.KindConflict, "apitest.images", "the image stays: a document names it").
			WithHint("delete what needs it first")
	}
	return i.Store.Delete(sum)
}

// Prune removes the files that no document names.
func (i Images) Prune(_ context.Context, _ string, before time.Time, dryRun bool) ([]director.ImageLeft, error) {
	files, err := i.Store.Files()
	var out []director.ImageLeft
	for _, f := range files {
		if i.uses(f.SHA256) || f.At.After(before) {
			continue
		}
		out = append(out, director.ImageLeft{SHA256: f.SHA256, Size: f.Size})
		if !dryRun {
			if err := i.Store.Delete(f.SHA256); err != nil {
				return nil, err
			}
		}
	}
	return out, err
}
