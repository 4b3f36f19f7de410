package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/wire"
)

type schemaInput struct {
	Kind        kindName `path:"kind" doc:"Kind of the documents."`
	IfNoneMatch string   `header:"If-None-Match" doc:"304 if the schema still is at this version, by its ETag."`
}

// typeSchema is the media type of JSON Schemas.
const typeSchema = "application/schema+json"

// schemas serves the schemas of documents. Anyone who is logged in may write a document, to preview it at least.
func (s *documentRoutes) schemas(api huma.API) {
	operation(s.server, api, huma.Operation{
		OperationID: "get-schema", Method: http.MethodGet, Path: "/schemas/{kind}", Tags: []string{"Documents"},
		Summary: "Get the JSON Schema of documents of a kind",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
			typeSchema: {Schema: &huma.Schema{Type: huma.TypeObject}},
		}}},
	}, director.ActSelf, "", func(_ context.Context, _ director.Actor, in *schemaInput) (*anyOf, error) {
		text := model.Schema(model.Kind(in.Kind))
		sum := sha256.Sum256([]byte(text))
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		return &anyOf{Body: func(ctx huma.Context) {
			ctx.SetHeader("ETag", tag)
			ctx.SetHeader("Cache-Control", "private, no-cache")
			if slices.Contains(tagsOf(in.IfNoneMatch), tag) {
				ctx.SetStatus(http.StatusNotModified)
				return
			}
			ctx.SetHeader("Content-Type", typeSchema)
			ctx.SetStatus(http.StatusOK)
			_, _ = io.WriteString(ctx.BodyWriter(), text) // the status is out: a failure is a caller who has gone
		}}, nil
	})
}

// Drafts is what the API offers of documents that are not stored.
type Drafts interface {
	// Draft looks at the documents in text as an apply does. What is wrong with them is not an error.
	Draft(ctx context.Context, by documents.Author, text []byte, source string) (documents.Draft, error)
}

// Previews is what the API offers of plans for documents that are not stored.
type Previews interface {
	// Preview plans for the cluster as if the documents were stored.
	Preview(ctx context.Context, docs []model.Stored, cluster string) (planning.PreviewView, error)
}

type previewInput struct {
	ContentType string `header:"Content-Type"`
	RawBody     []byte `contentType:"application/yaml"`
}

// previewSource marks the lines of problems that have them.
const previewSource = "text"

// mostEffects bounds the answer of a preview.
const mostEffects = 1000

func (s *documentRoutes) preview(api huma.API) {
	op := huma.Operation{
		OperationID: "preview", Method: http.MethodPost, Path: "/preview", Tags: []string{"Documents"},
		Summary: "Say what documents would change, and which plans would be made",
		Description: "The body is as for apply. The answer has every problem with its place in the text, the " +
			"difference to what is stored, and for each Cluster the plan that would be made, with what its hosts " +
			"have left afterwards. Nothing is stored, and nothing happens.",
		MaxBodyBytes: maxDocuments, SkipValidateBody: true,
		Errors: []int{http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge},
	}
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		typeYAML: {Schema: &huma.Schema{Type: huma.TypeString}},
		typeJSON: {Schema: &huma.Schema{Type: huma.TypeObject}},
	}}
	operation(s.server, api, ofSome(op, kindCluster), director.ActApply, "",
		func(ctx context.Context, a director.Actor, in *previewInput) (*body[wire.Preview], error) {
			if !takesDocuments(in.ContentType) {
				p := newProblem(director.KindInvalid, http.StatusUnsupportedMediaType)
				p.Detail, p.RequestID = "documents are "+typeYAML+" or "+typeJSON, requestID(ctx)
				return nil, p
			}
			out, err := s.previewOf(ctx, a, bytes.Clone(in.RawBody))
			return &body[wire.Preview]{out}, err
		})
}

func (s *documentRoutes) previewOf(ctx context.Context, a director.Actor, text []byte) (wire.Preview, error) {
	out := wire.Preview{Problems: []wire.PreviewProblem{}, Plans: []wire.PreviewPlan{}}
	d, err := s.Drafts.Draft(ctx, authorOf(a), text, previewSource)
	if err != nil {
		return out, err
	}
	at := locate(text)
	out.Problems, out.Changes = located(at, d.Problems), wire.ChangesOf(d.Changes)
	out.OK = len(out.Problems) == 0
	hosts := auth.Can(a, director.ActRead, director.Object{Kind: kindProvider})
	for _, doc := range d.Documents {
		if doc.Kind != model.KindCluster {
			continue
		}
		v, err := s.Previews.Preview(ctx, d.Documents, doc.Metadata.Name)
		if err != nil {
			return out, err
		}
		p := previewPlanOf(v, at)
		if !hosts {
			p.HostsAfter = nil
		}
		out.OK = out.OK && p.OK
		out.Plans = append(out.Plans, p)
	}
	return out, nil
}

func previewPlanOf(v planning.PreviewView, at locator) wire.PreviewPlan {
	out := wire.PreviewPlan{
		Cluster: v.Cluster, OK: len(v.Problems) == 0, Operation: string(v.Operation), Summary: v.Summary,
		Steps: v.Steps, Groups: wire.GroupsOf(v.Groups), EffectsTotal: len(v.Effects), Machines: v.Machines,
		EstimateSeconds: wire.Seconds(v.Estimate), Approvals: append([]string{}, v.Approvals...),
		Warnings: append([]string{}, v.Warnings...), Problems: located(at, v.Problems), Effects: []wire.Effect{},
	}
	for _, e := range v.Effects[:min(len(v.Effects), mostEffects)] {
		out.Effects = append(out.Effects, wire.Effect(e))
	}
	for _, c := range v.Addresses {
		out.Addresses = append(out.Addresses, wire.AddressCheck(c))
	}
	for _, h := range v.Hosts {
		row := wire.HostAfter{Host: h.Host, MemoryLeftBytes: h.Memory, DiskLeftBytes: h.Disk}
		if h.CPUs != math.MaxInt {
			row.CPUsLeft = &h.CPUs
		}
		out.HostsAfter = append(out.HostsAfter, row)
	}
	return out
}

var atLine = regexp.MustCompile(`^` + previewSource + `:([0-9]+): `)

// located says where in the text the problems are.
func located(at locator, fields []director.Field) []wire.PreviewProblem {
	out := make([]wire.PreviewProblem, len(fields))
	for i, f := range fields {
		line := 0
		if m := atLine.FindStringSubmatch(f.Path); m != nil {
			line, _ = strconv.Atoi(m[1]) // it is a number
			f.Path = f.Path[len(m[0]):]
		} else if f.Path == previewSource {
			f.Path, line = "", at.lineOf(f.Msg)
		}
		out[i].ProblemField = wire.ProblemFieldOf(f)
		document := out[i].Document
		if line > 0 { // a text may have two documents of one name
			document = ""
		}
		out[i].Line, out[i].Column = at.at(document, line, out[i].Pointer)
	}
	return out
}
