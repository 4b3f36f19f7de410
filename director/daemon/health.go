package daemon

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/backups"
	"github.com/director-kaas/kaas/director/metrics"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/upgrades"
)

// leastFree is the free space on the data disk below which the director reports that it is not ready: journal and logs
// need it.
const leastFree = 256 << 20

// probeEvery is how long an answer of the probes is good for: anybody may ask, and must not keep the database busy by
// it.
const probeEvery = 2 * time.Second

// health looks at what its director needs to work.
type health struct{ *Daemon }

// checks returns what /readyz asks.
func (d health) checks(db *store.Store) func(context.Context) []api.Check {
	var mu sync.Mutex
	var last []api.Check
	var at time.Time
	return func(ctx context.Context) []api.Check {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) < probeEvery {
			return last
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // the answer is for others too
		defer cancel()
		last, at = []api.Check{
			{Name: "database", Err: d.checkDatabase(ctx, db)},
			{Name: "engine", Err: d.checkEngine()},
			{Name: "disk", Err: d.checkDisk()},
			{Name: "registry", Err: d.checkRegistry(ctx)},
			{Name: "claims", Err: checkClaims(ctx, db), Minor: true},
		}, time.Now()
		if d.cfg.RegistryBucket.URL != "" {
			last = append(last, api.Check{Name: "registry-bucket", Err: d.checkBucket(), Minor: true})
		}
		return last
	}
}

func (d health) checkDatabase(ctx context.Context, db *store.Store) error {
	err := db.Writable(ctx, time.Now())
	if err == nil {
		return nil
	}
	return &director.Error{
		Kind: director.KindUnavailable, Op: "daemon.ready", Msg: "the database cannot be written",
		Hint: "check that its disk has room and works", Err: err,
	}
}

// checkClaims looks whether another copy of this director works on its clusters. Who asks is not told on which.
func checkClaims(ctx context.Context, db *store.Store) error {
	n, err := db.CountClaimedElsewhere(ctx)
	if err != nil || n == 0 {
		return err
	}
	return director.Errorf(
		director.KindConflict, "daemon.ready", "another copy of this director works on %d of its clusters", n,
	).WithHint("see the director's log")
}

func (d health) checkEngine() error {
	eng := d.engine.Load()
	if eng == nil {
		return director.Errorf(director.KindUnavailable, "daemon.ready", "the engine has not started")
	}
	return eng.Alive()
}

// free returns how many bytes the disk with the state directory has left.
func (d health) free() (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(d.cfg.StateDir, &fs); err != nil {
		return 0, &director.Error{
			Kind: director.KindUnavailable, Op: "daemon.ready", Msg: "the state directory cannot be checked",
			Err: err,
		}
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}

func (d health) checkDisk() error {
	free, err := d.free()
	if err != nil {
		return err
	}
	if free < leastFree {
		return director.Errorf(director.KindExhausted, "daemon.ready", "the data disk has %d MiB left", free>>20).
			WithHint("make it larger, or prune logs and images")
	}
	return nil
}

// room refuses plans while the data disk is nearly full: a plan that stops half way for want of space is worse than one
// that does not begin.
func (d health) room() error {
	err := d.checkDisk()
	if full, ok := errors.AsType[*director.Error](err); ok && full.Kind == director.KindExhausted {
		full.Op, full.Msg = "daemon.room", "no plan is made or started: "+full.Msg+", and needs "+
			strconv.Itoa(leastFree>>20)
		return full
	}
	return nil // a disk that cannot be looked at is no reason
}

// checkPushes refuses images of people while the data disk is nearly full, and while nothing is taken.
func (d health) checkPushes() error {
	if d.held.Load() {
		return director.Errorf(
			director.KindExhausted, "daemon.push", "this director is being tried after an upgrade, and takes no images",
		)
	}
	err := d.checkDisk()
	if director.KindOf(err) == director.KindExhausted {
		return err
	}
	return nil // a disk that cannot be looked at is no reason
}

// checkRegistry looks whether the registry takes connections. What it holds is for its own tests.
func (d health) checkRegistry(ctx context.Context) error {
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", d.registryAddr.String())
	if err != nil {
		return &director.Error{
			Kind: director.KindUnavailable, Op: "daemon.ready", Msg: "the registry does not accept connections",
			Hint: "see the director's log", Err: err,
		}
	}
	return conn.Close()
}

// checkBucket looks whether images can be pulled. Who asks is not told where the bucket is.
func (d health) checkBucket() error {
	err := d.images()
	if err == nil {
		return nil
	}
	return &director.Error{
		Kind: director.KindUnavailable, Op: "daemon.ready",
		Msg:  "the registry's bucket cannot be used: no images are pulled or pushed",
		Hint: "see the director's log", Err: err,
	}
}

func (d *Daemon) metrics(db *store.Store, build Build) *metrics.Metrics {
	return metrics.New(metrics.Config{
		Version: build.Version, Commit: build.Commit, Go: runtime.Version(), Forks: d.cfg.Forks, Log: d.log,
		Counts: func(ctx context.Context) (metrics.Counts, error) {
			c, err := db.Counts(ctx)
			out := metrics.Counts{Machines: c.Machines, Plans: c.Plans, Steps: c.Steps}
			if free, ferr := (health{d}).free(); ferr == nil {
				out.Free = new(int(free))
			}
			out.Packages = rootPackages(ctx, d.services.upgrades)
			if eng := d.engine.Load(); eng != nil && err == nil {
				out.Held = eng.Held()
				out.Queue, err = eng.QueueLength(ctx)
			}
			if d.cfg.RegistryBucket.URL != "" {
				out.Bucket = new(d.images() == nil)
			}
			if d.cfg.AuditSyslog.Address != "" && err == nil {
				var unsent int64
				unsent, err = db.AuditUnsent(ctx)
				out.Unsent = new(int(unsent))
			}
			if err == nil {
				out.Certificates, _, err = db.Certificates(ctx, director.CertificateQuery{}, director.Page{})
			}
			if err == nil {
				out.Hooks, err = db.CountDeliveries(ctx)
			}
			if err == nil {
				out.Notified, err = db.CountNotifications(ctx)
			}
			if d.discovery != nil && err == nil {
				out.Consuls, err = consulCounts(ctx, d.discovery)
			}
			if svc := d.services.backups; svc != nil && err == nil {
				out.Backups, err = backupCounts(ctx, svc)
			}
			return out, err
		},
	})
}

// rootPackages returns how the packages of the appliance's root are; nil if that is not known.
func rootPackages(ctx context.Context, s *upgrades.Service) *metrics.Packages {
	if s == nil {
		return nil // the services are not there yet
	}
	state, err := s.State(ctx)
	if err != nil || state.Packages == nil {
		return nil // also on another machine
	}
	out := &metrics.Packages{Of: state.Packages.Of}
	known := !state.Packages.List.IsZero() && !state.Packages.ListOutdated()
	if missing := len(state.Packages.Missing); missing > 0 || known {
		out.Missing = new(missing)
	}
	return out
}

// backupCounts returns how old the newest backups are.
func backupCounts(ctx context.Context, s *backups.Service) ([]metrics.BackupAge, error) {
	ages, err := s.Ages(ctx)
	out := make([]metrics.BackupAge, len(ages))
	for i, a := range ages {
		out[i] = metrics.BackupAge{Cluster: a.Cluster, Newest: a.Newest, Late: a.Late}
		if a.Drills.Network != "" {
			out[i].Drill = &metrics.Drill{
				Last: a.Drills.Last.Answered, Took: a.Drills.Last.Took(), Late: a.Drills.Late,
				Failed: a.Drills.Failed(),
			}
		}
	}
	return out, err
}
