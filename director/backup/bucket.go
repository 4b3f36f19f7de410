package backup

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bucket"
)

// Bucket is a target in a bucket of a server that speaks S3.
type Bucket struct {
	place  bucket.Place
	client *bucket.Client
}

// partSize bounds what an upload keeps in memory. A bucket takes 10,000 parts of an object, so an archive may have 156
// GiB.
const partSize = 16 << 20

// NewBucket returns the target. Nothing is sent yet.
func NewBucket(p bucket.Place) (*Bucket, error) {
	client, err := bucket.Open(p, "spec.s3.ca")
	if err != nil {
		return nil, err
	}
	return &Bucket{place: p, client: client}, nil
}

// Put implements Target.
func (b *Bucket) Put(ctx context.Context, name string, r io.Reader) error {
	const op = "backup.put"
	// What an upload that was cut off has left would be kept, and paid for.
	if err := b.client.RemoveIncompleteUpload(ctx, b.place.Bucket, b.place.Name(name)); err != nil {
		if err := b.explain(ctx, op, err); director.KindOf(err) != director.KindNotFound {
			return err
		}
	}
	source := &failing{r: &cancelled{ctx, r}}
	_, err := b.client.PutObject(ctx, b.place.Bucket, b.place.Name(name), source, -1, minio.PutObjectOptions{
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
	object, err := b.client.GetObject(ctx, b.place.Bucket, b.place.Name(name), minio.GetObjectOptions{})
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
	below := minio.ListObjectsOptions{Prefix: b.place.Name(dir) + "/"}
	for o := range b.client.ListObjects(ctx, b.place.Bucket, below) {
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
		ctx, b.place.Bucket, b.place.Name(name), minio.RemoveObjectOptions{},
	))
	if director.KindOf(err) == director.KindNotFound {
		return nil
	}
	return err
}

// words are how errors speak of a target.
var words = bucket.Words{
	What:    "the backup target",
	Address: "correct spec.s3.url, or name its range in providerNetworks of the director's configuration",
	Bucket:  "create it, or correct spec.s3.bucket",
	Key:     "directorctl provider credentials set NAME --user KEY --password-file FILE",
	Room:    "delete backups, keep fewer of them (spec.retention), or give the target more space",
	Reach:   "check that the director reaches the server, and spec.s3.ca",
}

func (b *Bucket) explain(ctx context.Context, op string, err error) error {
	return b.place.Explain(ctx, op, words, err)
}
