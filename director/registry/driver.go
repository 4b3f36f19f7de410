package registry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/distribution/distribution/v3/registry/storage/driver/base"
	"github.com/distribution/distribution/v3/registry/storage/driver/factory"
	"github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"github.com/minio/minio-go/v7"

	"github.com/director-kaas/kaas/director"
)

// bucketDriver keeps content in a bucket. What is written piece by piece lies in a directory of this machine until it
// is complete, so the bucket only ever has whole objects. Their names are those of distribution's own driver for S3,
// and those of files in a directory: copying one to the other moves a registry.
type bucketDriver struct {
	storage *bucketStorage
	spool   string // the directory
	local   driver.StorageDriver
}

// uploads is the directory in a repository where distribution writes what is pushed. No name of a repository has it.
const uploads = "/_uploads/"

// partSize is the size of the parts in which large layers are sent. They are read from the disk as they are sent.
const partSize = 64 << 20

// newBucketDriver returns the driver with distribution's checks of paths around it.
func newBucketDriver(s *bucketStorage, spool string) driver.StorageDriver {
	d := &bucketDriver{storage: s, spool: spool, local: newDirectoryDriver(spool)}
	return &base.Base{StorageDriver: base.NewRegulator(d, maxThreads)}
}

func newDirectoryDriver(root string) driver.StorageDriver {
	return filesystem.New(filesystem.DriverParameters{RootDirectory: root, MaxThreads: maxThreads})
}

// isGone reports whether the error says that nothing is at the path.
func isGone(err error) bool {
	_, gone := errors.AsType[driver.PathNotFoundError](err)
	return gone
}

func isLocal(p string) bool { return strings.Contains(p+"/", uploads) }

func (d *bucketDriver) key(p string) string {
	return d.storage.place.Name(strings.TrimPrefix(p, "/"))
}

// below is what the names of all objects in the directory begin with.
func (d *bucketDriver) below(p string) string {
	if key := d.key(p); key != "" {
		return key + "/"
	}
	return ""
}

func (d *bucketDriver) bucket() string { return d.storage.place.Bucket }

func (d *bucketDriver) client() *minio.Client { return d.storage.client.Client }

// failed returns the error as distribution wants it, and writes down what is wrong with the bucket.
func (d *bucketDriver) failed(ctx context.Context, op, p string, err error) error {
	err = d.storage.failed(ctx, "registry."+op, err)
	if director.KindOf(err) == director.KindNotFound {
		return driver.PathNotFoundError{Path: p}
	}
	return err
}

// Name implements driver.StorageDriver.
func (d *bucketDriver) Name() string { return "bucket" }

// GetContent implements driver.StorageDriver.
func (d *bucketDriver) GetContent(ctx context.Context, p string) ([]byte, error) {
	r, err := d.Reader(ctx, p, 0)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(r)
	return content, errors.Join(err, r.Close())
}

// PutContent implements driver.StorageDriver.
func (d *bucketDriver) PutContent(ctx context.Context, p string, content []byte) error {
	if isLocal(p) {
		return d.local.PutContent(ctx, p, content)
	}
	return d.put(ctx, "put", p, bytes.NewReader(content), int64(len(content)))
}

func (d *bucketDriver) put(ctx context.Context, op, p string, r io.Reader, size int64) error {
	_, err := d.client().PutObject(ctx, d.bucket(), d.key(p), r, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: partSize, NumThreads: 1,
	})
	return d.failed(ctx, op, p, err)
}

// Reader implements driver.StorageDriver.
func (d *bucketDriver) Reader(ctx context.Context, p string, offset int64) (io.ReadCloser, error) {
	if offset < 0 {
		return nil, driver.InvalidOffsetError{Path: p, Offset: offset}
	}
	if isLocal(p) {
		return d.local.Reader(ctx, p, offset)
	}
	var o minio.GetObjectOptions
	if offset > 0 {
		if err := o.SetRange(offset, 0); err != nil {
			return nil, driver.InvalidOffsetError{Path: p, Offset: offset}
		}
	}
	r, _, _, err := minio.Core{Client: d.client()}.GetObject(ctx, d.bucket(), d.key(p), o)
	if minio.ToErrorResponse(err).Code == "InvalidRange" {
		return io.NopCloser(bytes.NewReader(nil)), nil // nothing is behind the end
	}
	if err != nil {
		return nil, d.failed(ctx, "read", p, err)
	}
	return &watched{ReadCloser: r, failed: func(err error) error { return d.failed(ctx, "read", p, err) }}, nil
}

// watched is content whose errors are written down.
type watched struct {
	io.ReadCloser
	failed func(error) error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = w.failed(err)
	}
	return n, err
}

// Writer implements driver.StorageDriver. What it writes comes to the bucket with Commit, or with Move for uploads.
func (d *bucketDriver) Writer(ctx context.Context, p string, appending bool) (driver.FileWriter, error) {
	if appending && !isLocal(p) {
		if _, err := d.local.Stat(ctx, p); isGone(err) {
			appending = false // it is in the bucket already, without content
		}
	}
	w, err := d.local.Writer(ctx, p, appending)
	if err != nil || isLocal(p) {
		return w, err
	}
	return &spooled{FileWriter: w, move: func(ctx context.Context) error { return d.send(ctx, p, p) }}, nil
}

// spooled is a file that moves to the bucket when it is complete.
type spooled struct {
	driver.FileWriter
	move func(context.Context) error
}

func (s *spooled) Commit(ctx context.Context) error {
	if err := s.FileWriter.Commit(ctx); err != nil {
		return err
	}
	return s.move(ctx)
}

// send moves a local file to the bucket. The file stays until the bucket has it.
func (d *bucketDriver) send(ctx context.Context, from, to string) error {
	f, err := os.Open(filepath.Join(d.spool, filepath.FromSlash(from)))
	if errors.Is(err, os.ErrNotExist) {
		return driver.PathNotFoundError{Path: from}
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := d.put(ctx, "move", to, f, info.Size()); err != nil {
		return err
	}
	return d.local.Delete(ctx, from)
}

// Stat implements driver.StorageDriver.
func (d *bucketDriver) Stat(ctx context.Context, p string) (driver.FileInfo, error) {
	if isLocal(p) {
		return d.local.Stat(ctx, p)
	}
	out := driver.FileInfoFields{Path: p, IsDir: true}
	if p == "/" {
		return driver.FileInfoInternal{FileInfoFields: out}, nil
	}
	o, err := d.client().StatObject(ctx, d.bucket(), d.key(p), minio.StatObjectOptions{})
	if err == nil {
		out.IsDir, out.Size, out.ModTime = false, o.Size, o.LastModified
		return driver.FileInfoInternal{FileInfoFields: out}, nil
	}
	if err := d.failed(ctx, "stat", p, err); !isGone(err) {
		return nil, err
	}
	found := driver.PathNotFoundError{Path: p}
	for o := range d.objects(ctx, d.below(p), false) {
		if o.Err != nil {
			return nil, d.failed(ctx, "stat", p, o.Err)
		}
		return driver.FileInfoInternal{FileInfoFields: out}, nil
	}
	return nil, found
}

// objects lists what is below a prefix, and ends the listing when the caller does.
func (d *bucketDriver) objects(
	ctx context.Context, prefix string, recursive bool,
) func(yield func(minio.ObjectInfo) bool) {
	return func(yield func(minio.ObjectInfo) bool) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		for o := range d.client().ListObjects(ctx, d.bucket(), minio.ListObjectsOptions{
			Prefix: prefix, Recursive: recursive,
		}) {
			if !yield(o) {
				return
			}
		}
	}
}

// List implements driver.StorageDriver.
func (d *bucketDriver) List(ctx context.Context, p string) ([]string, error) {
	if isLocal(p) {
		return d.local.List(ctx, p)
	}
	var out []string
	for o := range d.objects(ctx, d.below(p), false) {
		if o.Err != nil {
			return nil, d.failed(ctx, "list", p, o.Err)
		}
		if name := strings.TrimPrefix(o.Key, d.below(p)); name != "" {
			out = append(out, path.Join(p, name))
		}
	}
	if len(out) == 0 && p != "/" {
		return nil, driver.PathNotFoundError{Path: p}
	}
	return out, nil
}

// Move implements driver.StorageDriver.
func (d *bucketDriver) Move(ctx context.Context, from, to string) error {
	switch {
	case isLocal(from) && isLocal(to):
		return d.local.Move(ctx, from, to)
	case isLocal(to):
		return driver.ErrUnsupportedMethod{}
	case isLocal(from):
		return d.send(ctx, from, to)
	}
	_, err := d.client().ComposeObject(ctx, minio.CopyDestOptions{Bucket: d.bucket(), Object: d.key(to)},
		minio.CopySrcOptions{Bucket: d.bucket(), Object: d.key(from)})
	if err == nil {
		err = d.client().RemoveObject(ctx, d.bucket(), d.key(from), minio.RemoveObjectOptions{})
	}
	return d.failed(ctx, "move", from, err)
}

// Delete implements driver.StorageDriver.
func (d *bucketDriver) Delete(ctx context.Context, p string) error {
	if isLocal(p) {
		return d.local.Delete(ctx, p)
	}
	var keys []string
	if _, err := d.client().StatObject(ctx, d.bucket(), d.key(p), minio.StatObjectOptions{}); err == nil {
		keys = append(keys, d.key(p))
	} else if err := d.failed(ctx, "delete", p, err); !isGone(err) {
		return err
	}
	for o := range d.objects(ctx, d.below(p), true) {
		if o.Err != nil {
			return d.failed(ctx, "delete", p, o.Err)
		}
		keys = append(keys, o.Key)
	}
	if len(keys) == 0 {
		return driver.PathNotFoundError{Path: p}
	}
	for _, key := range keys {
		err := d.client().RemoveObject(ctx, d.bucket(), key, minio.RemoveObjectOptions{})
		if err := d.failed(ctx, "delete", p, err); err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

// RedirectURL implements driver.StorageDriver: nodes reach the director, and not the bucket.
func (d *bucketDriver) RedirectURL(*http.Request, string) (string, error) { return "", nil }

// Walk implements driver.StorageDriver.
func (d *bucketDriver) Walk(
	ctx context.Context, p string, f driver.WalkFn, options ...func(*driver.WalkOptions),
) error {
	return driver.WalkFallback(ctx, d, p, f, options...)
}

// distribution takes drivers from parameters only.
func init() { factory.Register(driverName, given{}) }

const (
	driverName = "director"
	driverKey  = "driver" // of the parameters
)

// given makes the driver that it is given.
type given struct{}

func (given) Create(_ context.Context, parameters map[string]any) (driver.StorageDriver, error) {
	d, ok := parameters[driverKey].(driver.StorageDriver)
	if !ok {
		return nil, errors.New("there is no driver")
	}
	return d, nil
}
