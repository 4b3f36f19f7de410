package operations

import (
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
