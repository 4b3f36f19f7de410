package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/images"
	"github.com/director-kaas/kaas/director/jobs"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pace"
	"github.com/director-kaas/kaas/director/wire"
)

// Images is what the API offers of images besides their documents. All methods return *director.Error and are safe for
// concurrent use.
type Images interface {
	// List lists the documents of images by name, and then the imported files that none names, the newest first.
	List(ctx context.Context) ([]images.View, error)
	// BeginUpload makes a place for a file, or returns the one that there is with what has arrived.
	BeginUpload(ctx context.Context, r director.ImageRequest) (director.ImageUpload, error)
	// Upload returns the upload, or not_found.
	Upload(ctx context.Context, id string) (director.ImageUpload, error)
	// WriteUpload adds what r gives at the offset; conflict if the upload is elsewhere. What has arrived stays when r
	// breaks off.
	WriteUpload(ctx context.Context, id string, offset int64, r io.Reader) (director.ImageUpload, error)
	// AbortUpload throws the upload away. No error if it is gone.
	AbortUpload(ctx context.Context, id string) error
	// Import begins to make an image of an upload that has wholly arrived, or returns the job that does.
	Import(ctx context.Context, r director.ImageImport) (jobs.Job[director.ImageFile], error)
	// Convert begins to make another image of an imported one, or returns the job that does.
	Convert(ctx context.Context, actor, sum, compat string) (jobs.Job[director.ImageFile], error)
	// Job returns the job, or not_found.
	Job(ctx context.Context, id string) (jobs.Job[director.ImageFile], error)
	// DeleteFile removes an imported file; conflict while something needs it. No error if it is gone.
	DeleteFile(ctx context.Context, actor, sum string) error
	// Prune removes what is not needed: on providers, and of files those that were imported before the time.
	Prune(ctx context.Context, actor string, before time.Time, dryRun bool) ([]director.ImageLeft, error)
}

const kindImage = string(model.KindImage)

type uploadInput struct {
	ID string `path:"id" maxLength:"64" doc:"The SHA-256 that the whole file shall have."`
}

type pieceInput struct {
	ID          string `path:"id" maxLength:"64" doc:"The SHA-256 that the whole file shall have."`
	Offset      int64  `header:"Upload-Offset" required:"true" minimum:"0" doc:"Where the piece begins: the offset of the upload."`
	ContentType string `header:"Content-Type"`

	piece io.Reader
}

// Resolve takes the body as a stream: a piece is too long to be kept in memory.
func (in *pieceInput) Resolve(ctx huma.Context) []error {
	w := humagin.Unwrap(ctx)
	unlimited(ctx) // the answer comes after the last byte
	in.piece = pace.Default.Body(w.Request.Body, http.NewResponseController(w.Writer))
	return nil
}

type uploadOutput struct {
	Location string `header:"Location"`
	Offset   int64  `header:"Upload-Offset"`
	Body     wire.Upload
}

type importInput struct{ Body wire.ImageImport }

type conversionInput struct {
	SHA256 string `path:"sha256" maxLength:"64" doc:"Checksum of an imported image."`
	Body   wire.ImageConversion
}

type imageFileInput struct {
	SHA256 string `path:"sha256" maxLength:"64" doc:"Checksum of an imported image."`
}

type imageJobInput struct {
	ID string `path:"id" maxLength:"100" doc:"Id of the job."`
}

type pruneInput struct {
	DryRun    bool `query:"dry_run" doc:"Only say what would be removed."`
	OlderThan int  `query:"older_than" minimum:"0" default:"86400" doc:"Keep files that were imported in the last so many seconds."`
}

// jobOutput is where a job can be asked for, and how far it is.
type jobOutput[B any] struct {
	Location string `header:"Location"`
	Body     B
}

type imageJobOutput = jobOutput[wire.ImageJob]

// rendered renders jobs that are below the path; how one failed is a problem in it, and not the answer's.
func rendered[T, B any](
	ctx context.Context, path string, body func(j jobs.Job[T], failed *wire.Problem) B,
) func(jobs.Job[T], error) (*jobOutput[B], error) {
	return func(j jobs.Job[T], err error) (*jobOutput[B], error) {
		if err != nil {
			return nil, err
		}
		var failed *wire.Problem
		if j.Err != nil {
			failed = &problemOf(ctx, j.Err).Problem
		}
		return &jobOutput[B]{Location: prefixed(path + "/" + j.ID), Body: body(j, failed)}, nil
	}
}

func (s *documentRoutes) images(api huma.API) {
	tags := []string{"Images"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-images", Method: http.MethodGet, Path: "/images", Tags: tags,
		Summary:     "List the images and the imported files",
		Description: "The documents of images by name, and then the imported files that none names, the newest first.",
	}, director.ActRead, kindImage, s.listImages)
	s.uploads(api, tags)
	operation(s.server, api, huma.Operation{
		OperationID: "import-image", Method: http.MethodPost, Path: "/images", Tags: tags,
		Summary: "Make an image of an upload",
		Description: "The file is checked, converted to qcow2 if it is none, and kept by its checksum, which a " +
			"document of the kind Image then names. " +
			"Asked again, the answer is the same job, or its end. A file that is wrong is thrown away. Without a " +
			"signature of a trusted key the import is " +
			"refused, unless unsigned says in words why.",
		Errors: []int{http.StatusNotFound, http.StatusConflict}, DefaultStatus: http.StatusAccepted,
	}, director.ActApply, kindImage, s.importImage)
	operation(s.server, api, huma.Operation{
		OperationID: "convert-image", Method: http.MethodPost, Path: "/images/{sha256}/convert", Tags: tags,
		Summary:     "Make another image of an imported one",
		Description: "The new image has a checksum of its own. The old one stays.",
		Errors:      []int{http.StatusNotFound, http.StatusConflict}, DefaultStatus: http.StatusAccepted,
	}, director.ActApply, kindImage,
		func(ctx context.Context, a director.Actor, in *conversionInput) (*imageJobOutput, error) {
			return imageJob(ctx)(s.Images.Convert(ctx, a.User, in.SHA256, in.Body.Compat))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "get-image-job", Method: http.MethodGet, Path: "/image-jobs/{id}", Tags: tags,
		Summary: "See how far the work on an image is",
		Description: "A director that was started again does not know its jobs any more: ask for the same import " +
			"again.", Errors: []int{
			http.StatusNotFound,
		},
	}, director.ActRead, kindImage,
		func(ctx context.Context, _ director.Actor, in *imageJobInput) (*imageJobOutput, error) {
			return imageJob(ctx)(s.Images.Job(ctx, in.ID))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "delete-image-file", Method: http.MethodDelete, Path: "/images/{sha256}", Tags: tags,
		Summary: "Delete an imported file that nothing needs",
		Errors:  []int{http.StatusConflict}, DefaultStatus: http.StatusNoContent,
	}, director.ActDelete, kindImage,
		func(ctx context.Context, a director.Actor, in *imageFileInput) (*empty, error) {
			return nil, s.Images.DeleteFile(ctx, a.User, in.SHA256)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "prune-images", Method: http.MethodPost, Path: "/images/prune", Tags: tags,
		Summary: "Delete what is not needed",
		Description: "On providers the images that no document, no VM and no plan that can continue names; on the " +
			"director the imported files of which the same is true.",
	}, director.ActDelete, kindImage, s.pruneImages)
}

func (s *documentRoutes) listImages(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.Images], error) {
	views, err := s.Images.List(ctx)
	if err != nil {
		return nil, err
	}
	list := wire.Images{Items: make([]wire.Image, len(views))}
	for i, v := range views {
		list.Items[i] = wire.Image{
			Name: v.Name, SHA256: v.SHA256, Kubernetes: v.Kubernetes, Source: v.Source,
			File:     wire.ImageFileOf(v.File),
			Clusters: v.Clusters, Providers: v.Providers, Old: v.Old, SignedBy: v.SignedBy,
			Unsigned: v.Unsigned,
			Refused:  v.Refused,
		}
	}
	return &body[wire.Images]{list}, nil
}

func (s *documentRoutes) importImage(ctx context.Context, a director.Actor, in *importInput) (*imageJobOutput, error) {
	return imageJob(ctx)(s.Images.Import(ctx, director.ImageImport{
		Upload: in.Body.Upload, Kubernetes: in.Body.Kubernetes, Compat: in.Body.Compat, By: a.User,
		Signed:   director.Signed{Text: in.Body.Checksum, Signature: in.Body.Signature},
		Unsigned: in.Body.Unsigned,
	}))
}

func (s *documentRoutes) pruneImages(
	ctx context.Context, a director.Actor, in *pruneInput,
) (*body[wire.ImagesPruned], error) {
	left, err := s.Images.Prune(ctx, a.User, s.Now().Add(-time.Duration(in.OlderThan)*time.Second), in.DryRun)
	if err != nil {
		return nil, err
	}
	return &body[wire.ImagesPruned]{wire.ImagesPruned{DryRun: in.DryRun, Items: wire.ImagesLeftOf(left)}}, nil
}

func (s *documentRoutes) uploads(api huma.API, tags []string) {
	operation(s.server, api, huma.Operation{
		OperationID: "begin-upload", Method: http.MethodPost, Path: "/uploads", Tags: tags,
		Summary: "Begin to upload a file, or find how far it is",
		Description: "The checksum is the id, so that everyone who has the file finds its upload again. One to which " +
			"nothing is added for a day is thrown away.",
		Errors:        []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable},
		DefaultStatus: http.StatusOK,
	}, director.ActApply, kindImage, s.beginUpload)
	operation(s.server, api, huma.Operation{
		OperationID: "get-upload", Method: http.MethodGet, Path: "/uploads/{id}", Tags: tags,
		Summary: "See how much of a file has arrived",
		Errors:  []int{http.StatusNotFound},
	}, director.ActApply, kindImage,
		func(ctx context.Context, _ director.Actor, in *uploadInput) (*uploadOutput, error) {
			return uploadAnswer(s.Images.Upload(ctx, in.ID))
		})
	piece := huma.Operation{
		OperationID: "add-to-upload", Method: http.MethodPatch, Path: "/uploads/{id}", Tags: tags,
		Summary: "Send a piece of a file",
		Description: "The piece may be of any length. What has arrived before a cut stays: ask for the offset and " +
			"go on there. A beginning that is no disk " +
			"image, and more than was said, are refused, and the upload is gone.",
		Errors: []int{
			http.StatusNotFound, http.StatusConflict, http.StatusUnsupportedMediaType, http.StatusServiceUnavailable,
		},
	}
	piece.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		wire.TypeUpload: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
	operation(s.server, api, piece, director.ActApply, kindImage, s.addToUpload)
	operation(s.server, api, huma.Operation{
		OperationID: "abort-upload", Method: http.MethodDelete, Path: "/uploads/{id}", Tags: tags,
		Summary: "Throw an upload away",
		Errors:  []int{http.StatusConflict}, DefaultStatus: http.StatusNoContent,
	}, director.ActApply, kindImage,
		func(ctx context.Context, _ director.Actor, in *uploadInput) (*empty, error) {
			return nil, s.Images.AbortUpload(ctx, in.ID)
		})
}

func (s *documentRoutes) beginUpload(
	ctx context.Context, a director.Actor, in *struct{ Body wire.UploadRequest },
) (*uploadOutput, error) {
	return uploadAnswer(s.Images.BeginUpload(ctx, director.ImageRequest{
		SHA256: in.Body.SHA256, Name: in.Body.Name, Size: in.Body.Size, Format: in.Body.Format,
		Compat: in.Body.Compat, By: a.User, Release: in.Body.Kind == wire.UploadRelease,
		Signed:   director.Signed{Text: in.Body.Checksum, Signature: in.Body.Signature},
		Unsigned: in.Body.Unsigned,
	}))
}

func (s *documentRoutes) addToUpload(ctx context.Context, _ director.Actor, in *pieceInput) (*uploadOutput, error) {
	media, _, _ := strings.Cut(in.ContentType, ";")
	if !strings.EqualFold(strings.TrimSpace(media), wire.TypeUpload) {
		p := newProblem(director.KindInvalid, http.StatusUnsupportedMediaType)
		p.Detail, p.RequestID = "a piece of an upload is "+wire.TypeUpload, requestID(ctx)
		return nil, p
	}
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	return uploadAnswer(s.Images.WriteUpload(ctx, in.ID, in.Offset, in.piece))
}

func uploadAnswer(u director.ImageUpload, err error) (*uploadOutput, error) {
	if err != nil {
		return nil, err
	}
	return &uploadOutput{Location: prefixed("/uploads/" + u.ID), Offset: u.Offset, Body: wire.UploadOf(u)}, nil
}

func imageJob(ctx context.Context) func(jobs.Job[director.ImageFile], error) (*imageJobOutput, error) {
	return rendered(ctx, "/image-jobs", func(j jobs.Job[director.ImageFile], failed *wire.Problem) wire.ImageJob {
		return wire.ImageJob{
			ID: j.ID, Stage: j.Stage, Done: j.Done, Total: j.Total, File: wire.ImageFileOf(j.Result), Problem: failed,
		}
	})
}
