package operations

import (
	"errors"
	"fmt"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/libvirturi"
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

// checkConfined refuses documents that name what the configuration does not allow. Back ends look again when they use
// it; a director that simulates never does.
func (o *Operations) checkConfined(d *model.Document) []director.Field {
	var out []director.Field
	look := func(in confine.Dirs, key, path, name string) {
		if name == "" {
			return
		}
		if err := in.Check(name); err != nil {
			out = append(out, director.Field{
				Path: d.Ref().String() + ": spec." + path, Msg: err.Error(),
				Hint: "move it there, or name its directory in " + key + " of the director's configuration",
			})
		}
	}
	if d.Image != nil {
		look(o.Confine.Images, "imageDirs", "source", d.Image.Source)
	}
	if d.Release != nil {
		look(o.Confine.Bundles, "bundleDirs", "bundle", d.Release.Bundle)
	}
	if d.Provider == nil || slices.Contains(o.ProviderTypes, model.ProviderSim) {
		return out
	}
	if v := d.Provider.VSphere; v != nil {
		look(o.Confine.ProviderFiles, "providerFiles", "vsphere.passwordFile", v.PasswordFile)
		look(o.Confine.ProviderFiles, "providerFiles", "vsphere.caFile", v.CAFile)
	}
	if d.Provider.Libvirt != nil {
		for i, h := range d.Provider.Libvirt.Hosts {
			u, err := libvirturi.Parse(h.URI)
			if err != nil {
				continue // the validation has said so
			}
			at := fmt.Sprintf("libvirt.hosts[%d].uri", i)
			_, file := u.Files()
			look(o.Confine.ProviderFiles, "providerFiles", at, file)
			look(o.Confine.ProviderSockets, "providerSockets", at, u.Socket)
		}
	}
	return out
}
