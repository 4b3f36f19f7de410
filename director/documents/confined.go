package documents

import (
	"fmt"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/libvirturi"
	"github.com/director-kaas/kaas/director/model"
)

// checkConfined refuses documents that name what the configuration does not allow. Back ends look again when they use
// it; a director that simulates never does.
func (s *Service) checkConfined(d *model.Document) []director.Field {
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
		look(s.c.Confine.Images, "imageDirs", "source", d.Image.Source)
	}
	if d.Director != nil {
		look(s.c.Confine.Images, "imageDirs", "image.source", d.Director.Image.Source)
	}
	if d.Release != nil {
		look(s.c.Confine.Bundles, "bundleDirs", "bundle", d.Release.Bundle)
	}
	if d.BackupTarget != nil {
		look(s.c.Confine.Backups, "backupDirs", "directory", d.BackupTarget.Directory)
	}
	if d.Provider == nil || slices.Contains(s.c.ProviderTypes, model.ProviderSim) {
		return out
	}
	if v := d.Provider.VSphere; v != nil {
		look(s.c.Confine.ProviderFiles, "providerFiles", "vsphere.passwordFile", v.PasswordFile)
		look(s.c.Confine.ProviderFiles, "providerFiles", "vsphere.caFile", v.CAFile)
	}
	if d.Provider.Libvirt != nil {
		for i, h := range d.Provider.Libvirt.Hosts {
			u, err := libvirturi.Parse(h.URI)
			if err != nil {
				continue // the validation has said so
			}
			at := fmt.Sprintf("libvirt.hosts[%d].uri", i)
			_, file := u.Files()
			look(s.c.Confine.ProviderFiles, "providerFiles", at, file)
			look(s.c.Confine.ProviderSockets, "providerSockets", at, u.Socket)
		}
	}
	return out
}
