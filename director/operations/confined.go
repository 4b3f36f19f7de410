package operations

import (
	"errors"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
)

// imageFile returns where the file of the image is, with no link left to follow.
func (o *Operations) imageFile(im model.Image) (string, error) {
	path := o.Env.ImagePath(im)
	if im.Source == "" {
		return path, nil // imported: the director's own directory
	}
	return o.Confine.Images.Find(path)
}

// bundleDir returns where the bundle of the release is, with no link left to follow.
func (o *Operations) bundleDir(r model.Release) (string, error) {
	dir, err := o.Confine.Bundles.Find(r.Bundle)
	if errors.Is(err, confine.ErrOutside) {
		return "", director.Errorf(
			director.KindInvalid, "operations.release", "the release bundle is not allowed: %s", err,
		).
			WithHint("move it there, or name its directory in bundleDirs of the director's configuration")
	}
	if err != nil {
		return r.Bundle, nil // who opens it says what is wrong
	}
	return dir, nil
}
