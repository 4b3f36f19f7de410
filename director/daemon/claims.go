package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/claims"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/recovery"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// claimsEvery is how often clusters are asked whether another copy of this director works on them.
const claimsEvery = 20 * time.Second

// beginRun gives this start its id. A director that was made from a bundle takes its clusters over at its first start:
// who restores it means it. One that was handed over is held.
func (d stateOpener) beginRun(ctx context.Context, db *store.Store, host string) error {
	of, err := restoredOf(d.cfg.StateDir)
	if err != nil {
		return err
	}
	if of != "" {
		done, err := db.TakeOverRestored(ctx, of, time.Now())
		if err != nil {
			return err
		}
		if done {
			d.log.InfoContext(ctx, "the director was restored, and takes its clusters over", "of", of)
		}
	}
	away, err := db.HandedOver(ctx)
	if err != nil {
		return err
	}
	if away {
		d.handedOver.Store(true)
		d.held.Store(true)
	}
	d.run = director.Claim{Director: db.DirectorID(), Run: claims.NewRun(), Host: host}
	return db.BeginRun(ctx, d.run.Run, host, time.Now())
}

// restoredOf names what the database was made of: a bundle, or the data that a former root of the appliance had saved.
// It is empty for a database that was never restored.
func restoredOf(stateDir string) (string, error) {
	made, err := recovery.Restored(stateDir)
	if err != nil {
		return "", err
	}
	var of []string
	if !made.IsZero() {
		of = append(of, "bundle "+made.UTC().Format(time.RFC3339Nano))
	}
	text, err := os.ReadFile(filepath.Join(stateDir, rootdisk.RestoredFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", director.Errorf(director.KindInternal, "daemon.restored_of", "%w", err)
	}
	if saved := strings.TrimSpace(string(text)); saved != "" {
		of = append(of, "data of "+saved)
	}
	return strings.Join(of, ", "), nil
}

func (d background) makeClaims(db *store.Store, reached steps.Clusters) *claims.Service {
	return claims.New(claims.Config{
		Store: db, Own: d.run, Now: time.Now, Log: d.log,
		Connect: func(ctx context.Context, uid, name, endpoint string) (claims.Cluster, error) {
			api, err := reached.Cluster(ctx, uid, name, endpoint)
			if err != nil {
				return nil, err
			}
			if cluster, ok := api.(claims.Cluster); ok {
				return cluster, nil
			}
			api.Close()
			return nil, director.Errorf(director.KindInternal, "daemon.claims", "the cluster keeps no claims")
		},
		Pause: func(ctx context.Context, cluster, reason string) error {
			var running []string
			err := db.Update(ctx, func(tx *store.Tx) (err error) {
				running, err = tx.PlansIn(cluster, plan.StatusRunning)
				return err
			})
			for _, id := range running {
				err = errors.Join(err, d.engine.Load().Pause(ctx, id, "director", reason))
			}
			return err
		},
	})
}

// handOver has the director work on nothing any more, and answers with a bundle of it for the recipients. That it was
// handed over is written down before the bundle is made, so the bundle has it too; a director that is restored from it
// takes over at its first start. Whatever is cut off: this one stays as it is until it is told to take over.
func (d *Daemon) handOver(db *store.Store, version string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		to, err := d.beginHandOver(w, r, db)
		if err != nil {
			refuse(w, err)
			return
		}
		out := &begun{Writer: w}
		if _, err := d.bundler(db, version)(r.Context(), out, to); err != nil {
			d.log.ErrorContext(r.Context(), "the bundle of the hand-over was not written", "err", err)
			if out.yes {
				panic(http.ErrAbortHandler) // so that who asks knows that it was cut off
			}
			refuse(w, err)
		}
	}
}

// begun knows whether anything was written.
type begun struct {
	io.Writer
	yes bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.yes = true
	return b.Writer.Write(p)
}

// beginHandOver returns who the bundle is for, once no step runs any more and the hand-over is written down. Until then
// it can be called off.
func (d *Daemon) beginHandOver(w http.ResponseWriter, r *http.Request, db *store.Store) ([]age.Recipient, error) {
	const op = "daemon.hand_over"
	uid, err := rootOf(r)
	if err != nil {
		return nil, err
	}
	var in wire.HandOver
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil || len(in.Recipients) == 0 {
		return nil, director.Errorf(director.KindInvalid, op, "the body is not that of a hand-over")
	}
	to, err := backup.Recipients(in.Recipients)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "%w", err).
			WithHint("give the public key that age-keygen prints on the machine of the next director")
	}
	if alive, err := db.Instances(r.Context()); err != nil {
		return nil, err
	} else if len(alive) > 1 {
		return nil, director.Errorf(
			director.KindConflict, op, "%d directors work on this database", len(alive),
		).WithHint("stop all but this one, and try again after a minute")
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
		return nil, err
	}
	before := d.held.Swap(true)
	err = d.engine.Load().Drain(r.Context())
	if err == nil {
		err = db.HandOver(r.Context(), uid, time.Now())
	}
	if err != nil {
		if !before {
			d.held.Store(false)
			d.engine.Load().Release()
		}
		return nil, err
	}
	d.handedOver.Store(true)
	d.log.WarnContext(r.Context(), "the director is handed over, and works on nothing any more", "by", uid)
	return to, nil
}

// takeOver has the director take its clusters from other copies of it, and work if it was handed over.
func (d *Daemon) takeOver(db *store.Store, released func()) func(http.ResponseWriter, *http.Request) error {
	return func(_ http.ResponseWriter, r *http.Request) error {
		uid, err := rootOf(r)
		if err != nil {
			return err
		}
		if err := db.TakeOver(r.Context(), uid, time.Now()); err != nil {
			return err
		}
		d.log.WarnContext(r.Context(), "the director takes its clusters over", "by", uid)
		if d.handedOver.Swap(false) && !d.cfg.Held {
			d.release(r.Context(), released)
		}
		if d.held.Load() {
			return nil
		}
		return d.claims.Pass(r.Context())
	}
}

// release has a director work that was held. One that was handed over stays so: it takes over only when told.
func (d *Daemon) release(ctx context.Context, released func()) {
	if d.handedOver.Load() {
		d.log.WarnContext(ctx, "the director is not released: it was handed over")
		return
	}
	d.held.Store(false)
	if eng := d.engine.Load(); eng != nil {
		eng.Release()
	}
	released()
	d.log.InfoContext(ctx, "the director is released, and works")
}

// mayWork refuses what would work on the cluster, also for what runs by itself, if this director was handed over or
// another copy of it works there.
func (d *Daemon) mayWork(ctx context.Context, cluster string) error {
	if d.handedOver.Load() {
		return director.Errorf(
			director.KindConflict, "daemon.may_work", "the director was handed over to another machine",
		)
	}
	return d.claims.Check(ctx, cluster)
}
