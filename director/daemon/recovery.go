package daemon

import (
	"context"
	"io"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/recovery"
	"github.com/director-kaas/kaas/director/store"
)

// bundler returns what writes all that this director is made of.
func (d *Daemon) bundler(
	db *store.Store, version string,
) func(ctx context.Context, w io.Writer, to []age.Recipient) (backup.Sums, error) {
	return func(ctx context.Context, w io.Writer, to []age.Recipient) (backup.Sums, error) {
		source := recovery.Source{
			Manifest: recovery.Manifest{
				Director: db.DirectorID(), Version: version, Made: time.Now().UTC().Truncate(time.Second),
				Database: recovery.SQLite,
			},
			StateDir: d.cfg.StateDir, Config: d.cfg.File, Dump: db.Backup,
		}
		if d.cfg.Database != "" {
			p, err := d.cfg.Postgres()
			if err != nil {
				return backup.Sums{}, err
			}
			source.Database, source.Dump = recovery.Postgres, recovery.Server{URL: p.URL, Password: p.Password}.Dump
		}
		return recovery.Write(ctx, w, source, to)
	}
}
