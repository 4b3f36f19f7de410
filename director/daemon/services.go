package daemon

import (
	"time"

	"github.com/director-kaas/kaas/director/disks"
	"github.com/director-kaas/kaas/director/images"
	"github.com/director-kaas/kaas/director/imagestore"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/vms"
)

// services are the services that need no plans.
type services struct {
	images *images.Service
	vms    *vms.Service
	disks  *disks.Service
}

func (d *Daemon) newServices(db *store.Store, env steps.Env, files *imagestore.Store) services {
	kept := disks.New(db, env.Backends, db.DirectorID(), time.Now)
	return services{
		disks: kept,
		images: images.New(images.Config{
			Store: db, Files: files, Backends: env.Backends, Gate: env.Gate, Dirs: d.cfg.rules().Images, Now: time.Now,
		}),
		vms: vms.New(vms.Config{
			Store: db, Backends: env.Backends, Clusters: env, Disks: kept, Director: db.DirectorID(), Now: time.Now,
		}),
	}
}
