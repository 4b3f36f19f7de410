package images

import (
	"context"
	"io"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/jobs"
)

// BeginUpload makes a place for a file, or returns the one that there is with what has arrived.
func (s *Service) BeginUpload(ctx context.Context, r director.ImageRequest) (director.ImageUpload, error) {
	if r.Release {
		return s.files.Begin(ctx, r) // its signature is in the archive
	}
	if r.SHA256 == "" {
		r.SHA256 = r.Signed.Sum() // what is signed says it
	}
	if _, err := s.gate.Upload(director.ImageImport{
		Upload: r.SHA256, Signed: r.Signed, Unsigned: r.Unsigned,
	}); err != nil {
		return director.ImageUpload{}, err // before anything is sent
	}
	return s.files.Begin(ctx, r)
}

// Upload returns the upload, or not_found.
func (s *Service) Upload(_ context.Context, id string) (director.ImageUpload, error) {
	return s.files.Upload(id)
}

// WriteUpload adds to the upload at the offset.
func (s *Service) WriteUpload(
	ctx context.Context, id string, offset int64, r io.Reader,
) (director.ImageUpload, error) {
	return s.files.Write(ctx, id, offset, r)
}

// AbortUpload throws the upload away.
func (s *Service) AbortUpload(ctx context.Context, id string) error {
	return s.files.Abort(ctx, id)
}

// Import begins to make an image of an upload.
func (s *Service) Import(ctx context.Context, r director.ImageImport) (jobs.Job[director.ImageFile], error) {
	r, err := s.gate.Upload(r)
	if err != nil {
		return jobs.Job[director.ImageFile]{}, err
	}
	j, err := s.files.Import(ctx, r)
	if err != nil {
		return j, err
	}
	verb := "import"
	if r.Unsigned != "" {
		verb = "import unsigned: " + r.Unsigned
	}
	return j, s.audit(ctx, r.By, verb, r.Upload)
}

// Convert begins to make another image of an imported one.
func (s *Service) Convert(ctx context.Context, actor, sum, compat string) (jobs.Job[director.ImageFile], error) {
	j, err := s.files.ConvertFile(ctx, sum, compat, actor)
	if err != nil {
		return j, err
	}
	return j, s.audit(ctx, actor, "convert", sum)
}

// Job returns the job, or not_found.
func (s *Service) Job(_ context.Context, id string) (jobs.Job[director.ImageFile], error) {
	return s.files.Job(id)
}
