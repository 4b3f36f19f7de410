package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// Apply stores the documents of a YAML stream, all or none. source is what errors call the text.
func (c *documentCalls) Apply(ctx context.Context, text []byte, source string, dryRun bool) (wire.Applied, error) {
	return c.ApplyIf(ctx, text, source, dryRun, "")
}

// ApplyIf is Apply of a single document if it still is at the version that the tag names; the tag "" is no condition.
func (c *documentCalls) ApplyIf(
	ctx context.Context, text []byte, source string, dryRun bool, tag string,
) (wire.Applied, error) {
	q := url.Values{}
	if dryRun {
		q.Set("dry_run", "true")
	}
	header := http.Header{}
	if tag != "" {
		header.Set("If-Match", tag)
	}
	if source != "" {
		q.Set("source", source)
	}
	var a wire.Applied
	err := c.call(
		ctx,
		request{
			method: http.MethodPost, path: "/apply", query: q, body: text, contentType: "application/yaml",
			header: header, once: true,
		},
		&a,
	)
	return a, err
}

// Preview says what the documents in text would change, and which plans would be made. Nothing is stored.
func (c *documentCalls) Preview(ctx context.Context, text []byte) (wire.Preview, error) {
	var p wire.Preview
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/preview", body: text, contentType: "application/yaml",
	}, &p)
	return p, err
}

// Documents lists documents of a kind.
func (c *documentCalls) Documents(ctx context.Context, kind model.Kind) ([]wire.Document, error) {
	return all(func(q url.Values) ([]wire.Document, string, error) {
		var d wire.Documents
		err := c.call(ctx, request{method: http.MethodGet, path: "/documents/" + string(kind), query: q}, &d)
		return d.Items, d.Continue, err
	})
}

// Document returns one document.
func (c *documentCalls) Document(ctx context.Context, ref model.Ref) (wire.Document, error) {
	var d wire.Document
	err := c.call(ctx, request{method: http.MethodGet, path: documentPath(ref)}, &d)
	return d, err
}

// DocumentYAML returns one document, or all of a kind if ref has no name, as a text that can be applied again.
func (c *documentCalls) DocumentYAML(ctx context.Context, ref model.Ref) ([]byte, error) {
	path := documentPath(ref)
	if ref.Name == "" {
		path = "/documents/" + string(ref.Kind)
	}
	return c.text(ctx, request{method: http.MethodGet, path: path, accept: "application/yaml"})
}

// DeleteDocument removes a document that nothing uses.
func (c *documentCalls) DeleteDocument(ctx context.Context, ref model.Ref) error {
	return c.call(ctx, request{method: http.MethodDelete, path: documentPath(ref)}, nil)
}
