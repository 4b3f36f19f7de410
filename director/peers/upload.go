package peers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director"
)

// UploadPath is where a director gives peers the files that were sent to it.
const UploadPath = "/peer/v1/upload"

const opPeerUpload = "peers.upload"

// sizeHeader says how long the whole file is.
const sizeHeader = "Upload-Length"

// mostUploads is how many files a director gives away at the same time.
const mostUploads = 2

// Uploads are the files that have wholly arrived. *imagestore.Store implements it.
type Uploads interface {
	Take(id string) (path string, drop func() error, release func(), err error)
}

// NewUploadHandler returns a handler that gives the uploads of the director with the instance to peers. Who has no
// proof gets 404, as if it were not there, and so does who asks for an upload that is not.
func NewUploadHandler(key []byte, instance string, uploads Uploads, now func() time.Time) http.Handler {
	slots := make(chan struct{}, mostUploads)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || len(r.URL.RawQuery) > 4096 ||
			!proven(key, instance, r.URL.RequestURI(), r.Header.Get("Authorization"), now()) {
			http.NotFound(w, r)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		path, _, release, err := uploads.Take(r.URL.Query().Get("id"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer release()
		if err := give(w, path, r.URL.Query().Get("offset")); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
}

// give sends the file from the offset. With an error, nothing was sent.
func give(w http.ResponseWriter, path, offset string) error {
	from, err := strconv.ParseInt(offset, 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(sizeHeader, strconv.FormatInt(info.Size(), 10))
	_, _ = io.Copy(w, f) // the peer sees that less has come
	return nil
}

// Upload returns what the director with the instance has of the upload behind the offset, and how long the whole file
// is. Errors: not_found if it has not all of it; unavailable if it does not answer.
func (c *Client) Upload(ctx context.Context, instance, id string, offset int64) (io.ReadCloser, int64, error) {
	address, _, err := c.addresses.Peer(ctx, instance)
	if err != nil {
		return nil, 0, err
	}
	none := director.Errorf(director.KindNotFound, opPeerUpload, "the director %s has no upload %.64s", instance, id)
	if address == "" {
		return nil, 0, none
	}
	res, err := c.get(ctx, instance, address, UploadPath, url.Values{
		"id": {id}, "offset": {strconv.FormatInt(offset, 10)},
	})
	if err != nil {
		return nil, 0, director.Errorf(
			director.KindUnavailable, opPeerUpload, "the director %s does not give the upload: %w", instance, err,
		)
	}
	size, serr := strconv.ParseInt(res.Header.Get(sizeHeader), 10, 64)
	switch {
	case res.StatusCode == http.StatusOK && serr == nil:
		return res.Body, size, nil
	case res.StatusCode == http.StatusNotFound:
		return nil, 0, errors.Join(none, res.Body.Close())
	}
	return nil, 0, errors.Join(director.Errorf(
		director.KindUnavailable, opPeerUpload, "the director %s does not give the upload: %s", instance, res.Status,
	), res.Body.Close())
}
