package client

import (
	"context"
	"net/http"

	"github.com/director-kaas/kaas/director/wire"
)

// ProjectImages tells how much of its quota the images of the project use.
func (c *documentCalls) ProjectImages(ctx context.Context, project string) (wire.ProjectImages, error) {
	var v wire.ProjectImages
	err := c.call(ctx, request{method: http.MethodGet, path: "/projects/" + project + "/images"}, &v)
	return v, err
}
