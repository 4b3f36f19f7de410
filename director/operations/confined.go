package operations

import (
	"fmt"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/libvirturi"
	"github.com/director-kaas/kaas/director/model"
)

// checkConfined refuses documents that name what the configuration does not allow. Back ends look again when they use it; a director that simulates
// never does.
func (o *Operations) checkConfined(d *model.Document) []director.Field {
	var out []director.Field
	look := func(in confine.Dirs, key, path, name string) {
		if name == "" {
			return
		}
		if err := in.Check(name); err != nil {
			out = append(out, director.Field{Path: d.Ref().String() + ": spec." + path, Msg: err.Error(), Hint: "move it there, or name its directory in " + key + " of the director's configuration"})
		}
	}
	if d.Provider == nil || slices.Contains(o.ProviderTypes, model.ProviderSim) {
		return nil
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
