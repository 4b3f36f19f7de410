// Package mirrors fetches archives of release bundles from mirrors. A person names the address; the director connects
// only where its configuration allows.
//
// What a mirror sends becomes an upload, as if a person had sent it: it reserves its room before it comes, it continues
// where it was cut off, and nothing of it is used before it is imported. The id of the upload is made of the address,
// and of what the mirror says of the file. A director that was killed thus finds the upload again, and a file that has
// changed meanwhile begins a new one.
package mirrors

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/jobs"
	"github.com/director-kaas/kaas/director/store"
)

// Uploads takes what arrives. *imagestore.Store implements it.
type Uploads interface {
	Begin(ctx context.Context, r director.ImageRequest) (director.ImageUpload, error)
	Upload(id string) (director.ImageUpload, error)
	Write(ctx context.Context, id string, offset int64, r io.Reader) (director.ImageUpload, error)
	Abort(ctx context.Context, id string) error
}

// Config is what New needs.
type Config struct {
	Store   *store.Store
	Uploads Uploads
	Allow   confine.Networks        // where mirrors may be
	Own     func() []netip.AddrPort // where the director listens
	Agent   string
	Log     *slog.Logger
	Now     func() time.Time
	// Quiet is how long a mirror may send nothing, and Most how long a fetch may take; 0 means a minute and 12 hours.
	Quiet, Most time.Duration
	// Pause waits before the attempt that follows so many failed ones; nil doubles the time, from a second to a minute.
	Pause func(ctx context.Context, failed int) error
}

// Job is a fetch. Its stages are checking, fetching, done and failed; its result is an upload that can be imported.
type Job = jobs.Job[director.ImageUpload]

// Service fetches. It is safe for concurrent use.
type Service struct {
	c       Config
	jobs    *jobs.Table[director.ImageUpload]
	begun   sync.Map // ids of uploads by those of jobs
	running atomic.Int64
}

const (
	opFetch = "mirrors.fetch"
	// Fetching is the stage in which bytes are counted.
	Fetching = "fetching"
	most     = 8 // fetches at a time
	attempts = 6 // in a row that may bring nothing
)

// New returns the service.
func New(c Config) *Service {
	c.Quiet, c.Most = cmp.Or(c.Quiet, time.Minute), cmp.Or(c.Most, 12*time.Hour)
	if c.Pause == nil {
		c.Pause = pause
	}
	return &Service{c: c, jobs: jobs.New[director.ImageUpload](opFetch, c.Log, c.Now)}
}

func pause(ctx context.Context, failed int) error {
	t := time.NewTimer(min(time.Second<<min(failed-1, 10), time.Minute))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Close ends what runs and waits for it. What has arrived stays. It is idempotent.
func (s *Service) Close(ctx context.Context) error { return s.jobs.Close(ctx) }

// Job returns the job, or not_found.
func (s *Service) Job(_ context.Context, id string) (Job, error) { return s.jobs.Job(id) }

// Fetch begins to fetch the archive, or returns the job that does. Errors: invalid for a request that is wrong,
// exhausted if too many fetches run.
func (s *Service) Fetch(ctx context.Context, r director.ReleaseFetch) (Job, error) {
	at, roots, err := check(r)
	if err != nil {
		return Job{}, err
	}
	s.begun.Range(func(id, _ any) bool {
		if _, err := s.jobs.Job(id.(string)); err != nil {
			s.begun.Delete(id)
		}
		return true
	})
	f := &fetch{
		c: s.c, of: r, at: at,
		client: confine.Guard{Allow: s.c.Allow, Own: s.c.Own()}.Client(s.c.Quiet, roots, nil),
	}
	id := jobOf(r.By, r.URL)
	f.begun = func(upload string) { s.begun.Store(id, upload) }
	j, err := s.jobs.Begin(id, s.place, func(ctx context.Context, to jobs.Progress) (director.ImageUpload, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, s.c.Most, fmt.Errorf("it took longer than %s", s.c.Most))
		defer cancel()
		return f.run(ctx, to(Fetching))
	})
	if err != nil {
		return j, err
	}
	return j, s.audit(ctx, r.By, "fetch", at)
}

// place takes one of the places for fetches.
func (s *Service) place() (release func(), err error) {
	if s.running.Add(1) > most {
		s.running.Add(-1)
		return nil, director.Errorf(director.KindExhausted, opFetch, "the director fetches %d files already", most).
			WithHint("wait until one of them has arrived")
	}
	return func() { s.running.Add(-1) }, nil
}

// jobOf is the id of the job in which the person fetches the file.
func jobOf(by, address string) string { return "fetch-" + digest(by, address)[:32] }

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// check returns the address and the roots of the mirror, or invalid.
func check(r director.ReleaseFetch) (*url.URL, *x509.CertPool, error) {
	var p []director.Field
	at, err := url.Parse(r.URL)
	if err != nil || at.Scheme != "https" || at.Hostname() == "" || at.User != nil || at.Fragment != "" {
		p = append(p, director.Field{
			Path: "url", Msg: "is not the address of a file on a mirror",
			Hint: "an address with https and without an account, such as https://mirror.example.org/k8s-1.37.2.tar",
		})
	}
	var roots *x509.CertPool
	if r.CA != "" {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(r.CA)) {
			p = append(p, director.Field{Path: "ca", Msg: "has no certificate in PEM form"})
		}
	}
	if r.User == "" && r.Password != "" || strings.Contains(r.User, ":") {
		p = append(p, director.Field{Path: "user", Msg: "is not a name", Hint: "a password needs a name without a :"})
	}
	return at, roots, director.Invalid(opFetch, "the fetch is not right", p)
}

// Cancel ends the person's fetch from the address and throws away what has arrived, also if all has. No error if there
// is none. Errors: conflict while the archive is being imported.
func (s *Service) Cancel(ctx context.Context, by, address string) error {
	id := jobOf(by, address)
	if err := s.jobs.Cancel(ctx, id); err != nil {
		return director.Errorf(director.KindUnavailable, opFetch, "the fetch does not end: %w", err).
			WithHint("cancel it again")
	}
	upload, ok := s.begun.Load(id)
	if !ok {
		return nil
	}
	if err := s.c.Uploads.Abort(ctx, upload.(string)); err != nil {
		return err
	}
	s.begun.Delete(id)
	at, err := url.Parse(address)
	if err != nil {
		return nil // no such address was ever fetched
	}
	return s.audit(ctx, by, "cancel", at)
}

// audit notes the address without its query, which may hold a secret.
func (s *Service) audit(ctx context.Context, by, verb string, at *url.URL) error {
	return s.c.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.c.Now(), by, verb, "ReleaseFetch/"+at.Host+at.Path)
	})
}
