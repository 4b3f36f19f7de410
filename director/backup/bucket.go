package backup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// Place is a bucket and how one gets into it.
type Place struct {
	URL, Bucket, Prefix, Region string
	CA                          string // certificates in PEM; those of the system if empty
	Key                         string // id of the access key
	Secret                      director.Secret
	Networks                    confine.Networks // that the server's addresses must be in
}

// Bucket is a target in a bucket of a server that speaks S3.
type Bucket struct {
	place  Place
	client *minio.Client
}

// partSize bounds what an upload keeps in memory. A bucket takes 10,000 parts of an object, so an archive may have 156
// GiB.
const partSize = 16 << 20

// NewBucket returns the target. Nothing is sent yet.
func NewBucket(p Place) (*Bucket, error) {
	const op = "backup.bucket"
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "the address of the bucket cannot be read")
	}
	roots := (*x509.CertPool)(nil)
	if p.CA != "" {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(p.CA)) {
			return nil, director.Errorf(director.KindInvalid, op, "spec.s3.ca holds no certificate")
		}
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(p.Key, p.Secret.Reveal(), ""), Secure: true, Region: p.Region,
		BucketLookup: minio.BucketLookupPath, MaxRetries: 3,
		Transport: &http.Transport{
			DialContext:         p.Networks.Dialer().DialContext,
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: time.Minute,
			IdleConnTimeout: 30 * time.Second,
		},
	})
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "the bucket cannot be used: %s", err)
	}
	return &Bucket{place: p, client: client}, nil
}

func (b *Bucket) name(name string) string { return path.Join(b.place.Prefix, name) }

// Put implements Target.
func (b *Bucket) Put(ctx context.Context, name string, r io.Reader) error {
	const op = "backup.put"
	// What an upload that was cut off has left would be kept, and paid for.
	if err := b.client.RemoveIncompleteUpload(ctx, b.place.Bucket, b.name(name)); err != nil {
		if err := b.explain(ctx, op, err); director.KindOf(err) != director.KindNotFound {
			return err
		}
	}
	source := &failing{r: &cancelled{ctx, r}}
	_, err := b.client.PutObject(ctx, b.place.Bucket, b.name(name), source, -1, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: partSize, NumThreads: 1,
	})
	if source.err != nil {
		return source.err // not of the target
	}
	return b.explain(ctx, op, err)
}

// Get implements Target.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	const op = "backup.get"
	object, err := b.client.GetObject(ctx, b.place.Bucket, b.name(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, b.explain(ctx, op, err)
	}
	if _, err := object.Stat(); err != nil {
		_ = object.Close() // the error that is returned says more
		return nil, b.explain(ctx, op, err)
	}
	return &explained{object, func(err error) error { return b.explain(ctx, op, err) }}, nil
}

// explained is a reader whose errors are said in our words.
type explained struct {
	io.ReadCloser
	explain func(error) error
}

func (e *explained) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = e.explain(err)
	}
	return n, err
}

// List implements Target.
func (b *Bucket) List(ctx context.Context, dir string) ([]string, error) {
	ctx, stop := context.WithCancel(ctx) // ends the listing if it is left early
	defer stop()
	var out []string
	for o := range b.client.ListObjects(ctx, b.place.Bucket, minio.ListObjectsOptions{Prefix: b.name(dir) + "/"}) {
		if o.Err != nil {
			return nil, b.explain(ctx, "backup.list", o.Err)
		}
		if name := path.Join(dir, path.Base(o.Key)); !strings.HasSuffix(o.Key, "/") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Delete implements Target.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	err := b.explain(ctx, "backup.delete", b.client.RemoveObject(
		ctx, b.place.Bucket, b.name(name), minio.RemoveObjectOptions{},
	))
	if director.KindOf(err) == director.KindNotFound {
		return nil
	}
	return err
}

// explain says what went wrong with the bucket.
func (b *Bucket) explain(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	where := b.place.URL + "/" + b.place.Bucket
	if errors.Is(err, confine.ErrAddress) {
		return director.Errorf(director.KindInvalid, op, "the backup target %s: %s", where, err).
			WithHint("correct spec.s3.url, or name its range in providerNetworks of the director's configuration")
	}
	switch r := minio.ToErrorResponse(err); {
	case r.Code == "NoSuchBucket":
		return director.Errorf(director.KindUnavailable, op, "the backup target %s has no such bucket", where).
			WithHint("create it, or correct spec.s3.bucket")
	case r.Code == "NoSuchKey" || r.Code == "NoSuchUpload":
		return director.Errorf(director.KindNotFound, op, "the backup target %s does not have it", where)
	case slices.Contains([]string{
		"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed",
	}, r.Code) || r.StatusCode == http.StatusForbidden:
		return director.Errorf(
			director.KindUnavailable, op, "the backup target %s does not let the director in: %s %s", where, r.Code,
			r.Message,
		).
			WithHint("check the key and what it may do (put, get, list, delete), and the clocks; then: " +
				"directorctl provider credentials set NAME --user KEY --password-file FILE")
	case r.StatusCode == http.StatusInsufficientStorage || strings.Contains(r.Code, "StorageFull") ||
		strings.Contains(r.Code, "QuotaExceeded"):
		return director.Errorf(director.KindExhausted, op, "the backup target %s is full", where).
			WithHint("delete backups, keep fewer of them (spec.retention), or give the target more space")
	}
	return director.Errorf(director.KindUnavailable, op, "the backup target %s does not work: %s", where, err).
		WithHint("check that the director reaches the server, and spec.s3.ca")
}
