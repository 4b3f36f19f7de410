// Package registry is the director's own OCI registry: distribution as a library, on a directory or a bucket, behind
// TLS.
//
// Nodes pull with the credentials of their cluster, and people push and pull images of their projects; whatever else
// changes content needs the director's own.
package registry

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/distribution/distribution/v3"
	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	"github.com/distribution/distribution/v3/registry/storage"
	storagedriver "github.com/distribution/distribution/v3/registry/storage/driver"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bucket"
	"github.com/director-kaas/kaas/director/pace"
)

const (
	uploadLife = 24 * time.Hour // an upload that was not finished by then never will be
	purgeEvery = 24 * time.Hour
)

// ArtifactsPath is below what a registry serves the files of Config.Artifacts.
const ArtifactsPath = "/artifacts/"

// Config is what a registry needs. All fields but Bucket, Addr, Listener, Artifacts, Reader, People, Releases and Room
// are required.
type Config struct {
	Root      string          // directory of the content, or only of unfinished uploads with Bucket; made when missing
	Bucket    *bucket.Place   // of the content, instead of Root; several directors may share one
	Addr      string          // address to listen on, such as 172.30.0.1:5000; used when Listener is nil
	Listener  net.Listener    // plain; the registry wraps it in TLS, owns it from New on and closes it
	TLS       *tls.Config     // of the server
	Artifacts string          // directory of plain files that readers may read below ArtifactsPath; empty for none
	User      string          // who may write
	Password  director.Secret // of User; long and random, since tries are not counted
	Reader    Reader          // who may read; nil for User only
	People    People          // who may push and pull images of projects; nil for no one
	// Releases says which images of releases stay, and may wait until that is known; nil for all.
	Releases func(ctx context.Context) (Needed, error)
	Room     func() error // exhausted while the disk has no room for more of people; nil for no limit
	Logger   *slog.Logger
}

// Registry serves one directory. Safe for concurrent use.
type Registry struct {
	cfg    Config
	spool  storagedriver.StorageDriver // has unfinished uploads
	bucket *bucketStorage              // nil without one
	server *http.Server
	pace   pace.Limits // of bodies

	content   storagedriver.StorageDriver
	namespace distribution.Namespace // of content
	quotas    *quotas
	largest   int64            // of what people send
	now       func() time.Time // for what is removed later
	counting  sync.Mutex       // held while the images of a project are counted
	owned     sync.Mutex
	owners    map[string]string // uids of projects by their names, as far as known

	mu       sync.Mutex
	listener net.Listener
	started  bool
	stopped  bool
	cancel   context.CancelFunc
	work     sync.WaitGroup // the accept loop and the purger
	requests sync.RWMutex   // held for reading while a request is served
}

// New returns a registry on cfg.Root that does not serve yet. Errors: invalid for an incomplete Config, internal when
// the directory cannot be made or written.
func New(cfg Config) (*Registry, error) {
	const op = "registry.new"
	var fields []director.Field
	for path, missing := range map[string]bool{
		"root": cfg.Root == "", "address": cfg.Addr == "" && cfg.Listener == nil, "tls": cfg.TLS == nil,
		"user": cfg.User == "", "password": cfg.Password == "", "logger": cfg.Logger == nil,
	} {
		if missing {
			fields = append(fields, director.Field{Path: "registry." + path, Msg: "is missing"})
		}
	}
	if err := director.Invalid(op, "the registry is not configured", fields); err != nil {
		return nil, err
	}
	root, err := filepath.Abs(cfg.Root)
	if err == nil {
		err = probe(root)
	}
	if err != nil {
		return nil, director.Errorf(
			director.KindInternal, op, "the registry's directory %s cannot be written: %w", cfg.Root, err,
		).
			WithHint("check that it exists, who owns it, and that its file system has space and is not read-only")
	}

	takeLogs()
	r := &Registry{
		cfg: cfg, spool: newDirectoryDriver(root), listener: cfg.Listener, pace: pace.Default, quotas: newQuotas(),
		largest: largestBlob, now: time.Now, owners: map[string]string{},
	}
	r.content = r.spool
	if cfg.Bucket != nil {
		if r.bucket, err = newBucketStorage(*cfg.Bucket, cfg.Logger); err != nil {
			return nil, err
		}
		r.content = newBucketDriver(r.bucket, root)
	}
	app, err := r.open()
	if err != nil {
		return nil, err
	}
	if r.bucket != nil {
		app = r.bucket.guard(app)
	}
	if cfg.Artifacts != "" {
		if app, err = withArtifacts(app, cfg.Artifacts); err != nil {
			return nil, err
		}
	}
	r.server = &http.Server{
		Handler:           r.guard(app),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute, // no limit on a whole request: a layer may take long on a slow node
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.New(debugWriter{cfg.Logger}, "", 0),
	}
	return r, nil
}

// open returns what serves the content.
func (r *Registry) open() (http.Handler, error) {
	var err error
	if r.namespace, err = storage.NewRegistry(context.Background(), r.content); err != nil {
		return nil, director.Errorf(director.KindInternal, "registry.new", "the registry cannot be set up: %w", err)
	}
	app, err := newApp(r.content)
	if err != nil {
		return nil, err
	}
	return r.sure(app), nil
}

// Addr returns the address that it serves on, and nil before Start when Config has no Listener.
func (r *Registry) Addr() net.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener == nil {
		return nil
	}
	return r.listener.Addr()
}

// Start returns when the registry serves; it serves until Stop, also when ctx ends. It is called once. Errors: conflict
// when the address is taken or Start was called before.
func (r *Registry) Start(ctx context.Context) error {
	const op = "registry.start"
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started || r.stopped {
		return director.Errorf(director.KindConflict, op, "the registry was started before")
	}
	if r.listener == nil {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.cfg.Addr)
		if err != nil {
			return director.Errorf(director.KindConflict, op, "the registry cannot listen on %s: %w", r.cfg.Addr, err).
				WithHint("check what listens there (ss -ltnp), and that the address belongs to this machine")
		}
		r.listener = ln
	}
	r.started = true
	bridgeLogs(r.cfg.Logger)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	tlsConfig := r.cfg.TLS.Clone()
	tlsConfig.NextProtos = []string{"h2", "http/1.1"}
	ln := tls.NewListener(limit(r.listener, maxConnections, maxPerAddress), tlsConfig)
	r.work.Go(func() {
		if err := r.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			r.cfg.Logger.ErrorContext(run, "registry stopped serving", "err", err)
		}
	})
	r.work.Go(func() { collector{r}.purge(run) })
	if r.bucket != nil {
		r.work.Go(func() { r.bucket.watch(run) })
	}
	return nil
}

// Stop ends the registry: requests in flight are finished until ctx ends and cut off then. It returns when nothing
// serves any more; all that stays is one idle goroutine of distribution (go-events' Broadcaster), which cannot be
// ended. It is idempotent, also before Start.
func (r *Registry) Stop(ctx context.Context) error {
	r.mu.Lock()
	started, first := r.started, !r.stopped
	r.stopped = true
	if first && !started && r.listener != nil {
		_ = r.listener.Close()
	}
	cancel := r.cancel
	r.mu.Unlock()
	if !started {
		return nil
	}
	cancel()
	err := r.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, r.server.Close())
	}
	r.work.Wait()
	r.requests.Lock() // requests that were cut off have noticed it
	defer r.requests.Unlock()
	if r.bucket != nil {
		r.bucket.client.Close()
	}
	if first {
		unbridgeLogs(r.cfg.Logger)
	}
	if err != nil {
		return director.Errorf(director.KindUnavailable, "registry.stop", "transfers were cut off: %w", err)
	}
	return nil
}

// Content returns nil while what the registry holds can be read, as far as that is known. Errors: unavailable, naming
// the bucket and what to do. It asks nothing.
func (r *Registry) Content() error {
	if r.bucket == nil {
		return nil
	}
	return r.bucket.wrong()
}

// withArtifacts also serves the files of dir. Directories are not listed: a client knows the name and the checksum of a
// file.
func withArtifacts(images http.Handler, dir string) (http.Handler, error) {
	if err := probe(dir); err != nil {
		return nil, director.Errorf(
			director.KindInternal, "registry.new", "the directory of artifacts %s cannot be written: %w", dir, err,
		)
	}
	root, err := os.OpenRoot(dir) // nothing outside of it is ever opened
	if err != nil {
		return nil, director.Errorf(
			director.KindInternal, "registry.new", "the directory of artifacts %s cannot be opened: %w", dir, err,
		)
	}
	files := http.StripPrefix(ArtifactsPath, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f, err := root.Open(req.URL.Path)
		if err != nil {
			http.NotFound(w, req)
			return
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			http.NotFound(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, req, "", info.ModTime(), f)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, ArtifactsPath) {
			files.ServeHTTP(w, req)
			return
		}
		images.ServeHTTP(w, req)
	}), nil
}

// purge removes what interrupted uploads left behind, and images that nothing needs, at once and then daily.
func (r collector) purge(ctx context.Context) {
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	for {
		if err := r.purgeOnce(ctx, time.Now().Add(-uploadLife)); err != nil && ctx.Err() == nil {
			r.cfg.Logger.WarnContext(ctx, "cannot remove interrupted uploads", "err", err)
		}
		if err := r.collect(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Logger.WarnContext(ctx, "cannot remove images that are not needed; this is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r collector) purgeOnce(ctx context.Context, before time.Time) error {
	var errs []error
	// An empty registry has no directory of repositories yet, and distribution calls that an error.
	if _, err := r.spool.Stat(ctx, "/docker/registry/v2/repositories"); err == nil {
		_, errs = storage.PurgeUploads(ctx, r.spool, before, true)
	}
	if r.bucket != nil {
		errs = append(errs, r.bucket.purge(ctx, before))
	}
	return errors.Join(errs...)
}

// maxThreads bounds the file operations that run at once.
const maxThreads = 25

// newApp sets distribution up from nothing but this code: no file, no environment, no cache, no metrics.
func newApp(content storagedriver.StorageDriver) (app http.Handler, err error) {
	// distribution reports what it cannot set up by panicking.
	defer func() {
		if p := recover(); p != nil {
			err = director.Errorf(director.KindInternal, "registry.new", "the registry cannot be set up: %v", p)
		}
	}()
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	c := &configuration.Configuration{
		Version: configuration.CurrentVersion,
		Storage: configuration.Storage{
			driverName: configuration.Parameters{driverKey: content},
			"delete":   configuration.Parameters{"enabled": true},
			"redirect": configuration.Parameters{"disable": true},
			"maintenance": configuration.Parameters{
				"uploadpurging": map[any]any{"enabled": false}, // purge does it, and can be stopped
			},
		},
	}
	c.HTTP.Secret = hex.EncodeToString(secret) // signs the state of uploads, which do not outlive a restart
	return handlers.NewApp(context.Background(), c), nil
}

// probe makes the directory and sees that it can be written.
func probe(root string) error {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(root, ".probe.*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, "ok")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
