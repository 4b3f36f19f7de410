package registry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bucket"
)

const (
	askEvery  = 5 * time.Second // how often the bucket is asked whether it is there
	askWithin = 5 * time.Second
)

// words are how errors speak of the bucket.
var words = bucket.Words{
	What:    "the registry's bucket",
	Address: "correct registryBucket.url of the director's configuration",
	Bucket:  "create it, or correct registryBucket.bucket of the director's configuration",
	Key: "correct registryBucket.accessKey and the file registryBucket.secretKeyFile, and restart the " +
		"director",
	Room:  "give the bucket more space, or delete what is not needed any more",
	Reach: "check that the director reaches the server, and registryBucket.caFile of its configuration",
}

// bucketStorage is a bucket, and how it is. Safe for concurrent use.
type bucketStorage struct {
	place  bucket.Place
	client *bucket.Client
	log    *slog.Logger
	every  time.Duration

	mu   sync.Mutex
	away error // why nothing can be read; nil while that is not known
}

func newBucketStorage(p bucket.Place, log *slog.Logger) (*bucketStorage, error) {
	client, err := bucket.Open(p, "registryBucket.caFile")
	if err != nil {
		return nil, err
	}
	return &bucketStorage{place: p, client: client, log: log, every: askEvery}, nil
}

// wrong returns why nothing can be read, and nil if all is well.
func (s *bucketStorage) wrong() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// say writes down how the bucket is.
func (s *bucketStorage) say(ctx context.Context, err error) {
	s.mu.Lock()
	before := s.away
	s.away = err
	s.mu.Unlock()
	switch {
	case err != nil && before == nil:
		s.log.WarnContext(ctx, "the registry refuses all requests until its bucket answers", "err", err)
	case err == nil && before != nil:
		s.log.InfoContext(ctx, "the registry's bucket answers again")
	}
}

// watch asks the bucket at once and then regularly, until ctx ends. It is what finds out that the bucket is back.
func (s *bucketStorage) watch(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		err := s.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		s.say(ctx, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *bucketStorage) ask(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, askWithin)
	defer stop()
	const op = "registry.ask"
	there, err := s.client.BucketExists(ctx, s.place.Bucket)
	if err == nil && !there {
		err = minio.ErrorResponse{Code: "NoSuchBucket"}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return director.Errorf(
			director.KindUnavailable, op, "%s %s does not answer within %s", words.What, s.place.URL, askWithin,
		).WithHint("%s", words.Reach)
	}
	return s.place.Explain(ctx, op, words, err)
}

// trouble is what went wrong with the bucket while a request was served.
type trouble struct{ err atomic.Pointer[error] }

type troubleKey struct{}

// failed says what went wrong with the bucket, for the request that ctx is of, and for those that follow.
func (s *bucketStorage) failed(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	err = s.place.Explain(ctx, op, words, err)
	switch kind := director.KindOf(err); {
	case ctx.Err() != nil || kind == director.KindNotFound:
		return err
	case kind == director.KindUnavailable:
		s.say(ctx, err)
	}
	if t, ok := ctx.Value(troubleKey{}).(*trouble); ok {
		t.err.Store(&err)
	}
	return err
}

// guard refuses requests while the bucket is away, and answers 503 to those during which it fails: clients try those
// again. Who asks is not told where the bucket is.
func (s *bucketStorage) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.wrong() != nil {
			unavailable(w)
			return
		}
		t := &trouble{}
		next.ServeHTTP(
			&honestWriter{ResponseWriter: w, trouble: t},
			req.WithContext(context.WithValue(req.Context(), troubleKey{}, t)),
		)
	})
}

func unavailable(w http.ResponseWriter) {
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/json")
	h.Set("Retry-After", "10")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"errors":[{"code":"UNAVAILABLE","message":"the bucket in which the director's registry ` +
		`keeps images cannot be used now; the director's log and /readyz say why"}]}` + "\n"))
}

// honestWriter answers 503 instead of 500 when the bucket is the reason.
type honestWriter struct {
	http.ResponseWriter
	trouble *trouble
	instead bool
}

func (w *honestWriter) WriteHeader(status int) {
	if status == http.StatusInternalServerError && w.trouble.err.Load() != nil {
		w.instead = true
		unavailable(w.ResponseWriter)
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *honestWriter) Write(b []byte) (int, error) {
	if w.instead {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *honestWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// purge removes the parts of large layers whose upload to the bucket was cut off before then.
func (s *bucketStorage) purge(ctx context.Context, before time.Time) error {
	var errs []error
	core := minio.Core{Client: s.client.Client}
	for u := range s.client.ListIncompleteUploads(ctx, s.place.Bucket, s.place.Name("docker"), true) {
		err := u.Err
		if err == nil && u.Initiated.Before(before) {
			err = core.AbortMultipartUpload(ctx, s.place.Bucket, u.Key, u.UploadID)
		}
		errs = append(errs, s.place.Explain(ctx, "registry.purge", words, err))
	}
	return errors.Join(errs...)
}
