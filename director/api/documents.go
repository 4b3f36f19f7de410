package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

const (
	typeYAML = "application/yaml"
	typeJSON = "application/json"
)

type applyInput struct {
	DryRun      bool   `query:"dry_run" doc:"Only say what would be done."`
	Source      string `query:"source" doc:"What errors call the text, such as its file name." maxLength:"200"`
	ContentType string `header:"Content-Type"`
	IfMatch     string `header:"If-Match" doc:"Only if the document is at this version, by its ETag; for one document."`
	IfNoneMatch string `header:"If-None-Match" doc:"Only * : only if the document does not exist; for one document."`
	RawBody     []byte `contentType:"application/yaml"`
}

// kindName is a kind of documents in a path. Its schema names every kind that there is.
type kindName string

// Schema returns the schema of the path's part.
func (kindName) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: valuesOf(model.Kinds())}
}

type kindInput struct {
	Kind   kindName `path:"kind" doc:"Kind of the documents."`
	Accept string   `header:"Accept" doc:"application/json, or application/yaml for a text that can be applied again."`
	ListInput
	NamePrefix string   `query:"name_prefix" maxLength:"64" doc:"Only documents whose name begins so."`
	Label      []string `query:"label" maxItems:"20" doc:"Only documents with all of these labels, each key=value or key, separated by commas."`
	Limit      int      `query:"limit" minimum:"1" maximum:"500" default:"500" doc:"At most so many."`
}

// RefInput names a document. It is exported because huma leaves other embedded fields out.
type RefInput struct {
	Kind   kindName `path:"kind" doc:"Kind of the document."`
	Accept string   `header:"Accept" doc:"application/json, or application/yaml for a text that can be applied again."`
	Name   string   `path:"name" maxLength:"64" doc:"Name of the document."`
}

type getInput struct {
	RefInput
	IfNoneMatch string `header:"If-None-Match" doc:"304 if the document still is at this version, by its ETag."`
}

type deleteInput struct {
	Kind    kindName `path:"kind" doc:"Kind of the document."`
	Name    string   `path:"name" maxLength:"64" doc:"Name of the document."`
	IfMatch string   `header:"If-Match" doc:"Only if the document is at this version, by its ETag."`
}

func (in *RefInput) ref() model.Ref { return model.Ref{Kind: model.Kind(in.Kind), Name: in.Name} }

// anyOf is a body that is written by hand because its media type depends on what the caller takes. T is what the
// description of the API says of its JSON form.
type anyOf struct{ Body func(huma.Context) }

func wantsYAML(accept string) bool {
	yaml, json := strings.Index(accept, "yaml"), strings.Index(accept, typeJSON)
	return yaml >= 0 && (json < 0 || yaml < json)
}

func (s *documentRoutes) documents(api huma.API) {
	tags := []string{"Documents"}
	apply := huma.Operation{
		OperationID: "apply", Method: http.MethodPost, Path: "/apply", Tags: tags,
		Summary: "Store documents, all or none",
		Description: "The body is a stream of YAML documents, or one document in JSON. Documents that are named by " +
			"others may stand in any order.",
		MaxBodyBytes: maxDocuments,
		Errors: []int{
			http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnsupportedMediaType,
			http.StatusRequestEntityTooLarge,
		},
		SkipValidateBody: true,
	}
	apply.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		typeYAML: {Schema: &huma.Schema{Type: huma.TypeString}},
		typeJSON: {Schema: &huma.Schema{Type: huma.TypeObject}},
	}}
	apply = takesKeys(apply, func(_ context.Context, witness string) (int, string, any, error) {
		return http.StatusOK, "", json.RawMessage(witness), nil
	})
	operation(s.server, api, ofSome(apply, kindCluster), director.ActApply, "", s.apply)

	operation(s.server, api, ofSome(listing[wire.Documents](api, huma.Operation{
		OperationID: "list-documents", Path: "/documents/{kind}", Tags: tags, Summary: "List documents of a kind",
		Description: "Sorted by name, created_at or updated_at.",
	}, typeYAML), ""), director.ActRead, "", func(
		ctx context.Context, a director.Actor, in *kindInput,
	) (*anyOf, error) {
		return s.listDocuments(ctx, api, a, in)
	})

	operation(s.server, api, describe[wire.Document](api, huma.Operation{
		OperationID: "get-document", Method: http.MethodGet, Path: "/documents/{kind}/{name}", Tags: tags,
		Summary:     "Get one document",
		Description: "The ETag names the version that was read, for If-Match and If-None-Match.",
		Errors:      []int{http.StatusNotFound},
	}, typeYAML), director.ActRead, "", func(ctx context.Context, _ director.Actor, in *getInput) (*anyOf, error) {
		return s.getDocument(ctx, api, in)
	})

	operation(s.server, api, huma.Operation{
		OperationID: "delete-document", Method: http.MethodDelete, Path: "/documents/{kind}/{name}", Tags: tags,
		Summary: "Delete a document that nothing uses",
		Description: "The machines of a cluster are never deleted by this: make a plan with the operation " +
			"cluster.delete for it.",
		Errors:        []int{http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed},
		DefaultStatus: http.StatusNoContent,
	}, director.ActDelete, "", func(ctx context.Context, a director.Actor, in *deleteInput) (*empty, error) {
		ref := model.Ref{Kind: model.Kind(in.Kind), Name: in.Name}
		return nil, s.Documents.DeleteDocumentIf(ctx, a.User, ref, documents.Condition{Tags: tagsOf(in.IfMatch)})
	})
}

func (s *documentRoutes) apply(ctx context.Context, a director.Actor, in *applyInput) (*body[wire.Applied], error) {
	if !takesDocuments(in.ContentType) {
		p := newProblem(director.KindInvalid, http.StatusUnsupportedMediaType)
		p.Detail, p.RequestID = "documents are "+typeYAML+" or "+typeJSON, requestID(ctx)
		return nil, p
	}
	c, err := conditionInput{in.IfMatch, in.IfNoneMatch}.condition()
	if err != nil {
		return nil, err
	}
	// huma takes the buffer of RawBody back after the handler; what is stored must not live in it.
	changes, err := s.Documents.ApplyIf(ctx, authorOf(a), bytes.Clone(in.RawBody), in.Source, in.DryRun, c)
	if err != nil {
		return nil, err
	}
	return &body[wire.Applied]{wire.Applied{DryRun: in.DryRun, Changes: wire.ChangesOf(changes)}}, nil
}

func (s *documentRoutes) getDocument(ctx context.Context, api huma.API, in *getInput) (*anyOf, error) {
	stored, err := s.Documents.Document(ctx, in.ref())
	if err != nil {
		return nil, err
	}
	var answer *anyOf
	switch {
	case unmodified(in.IfNoneMatch, stored):
		answer = &anyOf{Body: func(ctx huma.Context) { ctx.SetStatus(http.StatusNotModified) }}
	case wantsYAML(in.Accept):
		answer, err = yamlBody([]model.Stored{stored})
	default:
		var d wire.Document
		d, err = documentOf(stored)
		answer = jsonBody(api, d)
	}
	if err != nil {
		return nil, err
	}
	return &anyOf{Body: func(ctx huma.Context) {
		ctx.SetHeader("ETag", documents.ETag(stored))
		// What a cache keeps must be asked about each time, and not be forgotten.
		ctx.SetHeader("Cache-Control", "private, no-cache")
		answer.Body(ctx)
	}}, nil
}

func documentOf(stored model.Stored) (wire.Document, error) {
	d, err := wire.DocumentOf(stored)
	d.ETag = documents.ETag(stored)
	return d, err
}

func (s *documentRoutes) listDocuments(
	ctx context.Context, api huma.API, a director.Actor, in *kindInput,
) (*anyOf, error) {
	filters := []any{in.Kind, in.NamePrefix, in.Label}
	q := documents.Query{
		Kind: model.Kind(in.Kind), NamePrefix: in.NamePrefix, Labels: in.Label,
		Visible: auth.VisibleTo(a, string(in.Kind)),
	}
	var err error
	if q.Page, err = in.page(in.Limit, "name", filters...); err == nil {
		err = oneOf(q.Page, "name", "created_at", "updated_at")
	}
	if err != nil {
		return nil, err
	}
	stored, place, err := s.Documents.ListDocuments(ctx, q)
	if err != nil {
		return nil, err
	}
	more := next(q.Page, place, filters...)
	if wantsYAML(in.Accept) {
		text, err := yamlBody(stored)
		if err != nil {
			return nil, err
		}
		return &anyOf{Body: func(ctx huma.Context) { linkNext(ctx, more); text.Body(ctx) }}, nil
	}
	items := make([]wire.Document, len(stored))
	for i, d := range stored {
		if items[i], err = documentOf(d); err != nil {
			return nil, err
		}
	}
	return listAnswer(api, items, in.Fields, more)
}

func takesDocuments(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	switch strings.TrimSpace(strings.ToLower(media)) {
	case "", typeYAML, typeJSON, "application/x-yaml", "text/yaml", "text/x-yaml":
		return true
	}
	return false
}

// describe puts the JSON form T and further media types into the description of an operation whose body is written by
// hand.
func describe[T any](api huma.API, op huma.Operation, others ...string) huma.Operation {
	content := map[string]*huma.MediaType{typeJSON: {Schema: schemaOf[T](api)}}
	for _, o := range others {
		content[o] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: content}}
	return op
}

func jsonBody(api huma.API, v any) *anyOf {
	return &anyOf{Body: func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", typeJSON)
		ctx.SetStatus(http.StatusOK)
		_ = api.Marshal(ctx.BodyWriter(), typeJSON, v) // the status is out: a failure is a caller who has gone
	}}
}

func yamlBody(stored []model.Stored) (*anyOf, error) {
	var text bytes.Buffer
	for i, d := range stored {
		b, err := model.Encode(d.Document)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text.WriteString("---\n")
		}
		text.Write(b)
	}
	return &anyOf{Body: func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", typeYAML)
		ctx.SetStatus(http.StatusOK)
		_, _ = ctx.BodyWriter().Write(text.Bytes()) // as above
	}}, nil
}
