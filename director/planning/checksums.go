package planning

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director/confine"
)

type fileKey struct {
	path     string
	size     int64
	modified time.Time
}

// checksums remembers the SHA-256 of files that have not changed since.
type checksums struct {
	mu    sync.Mutex
	known map[fileKey]string
}

// of returns the SHA-256 of the file in hex, read at most once as long as size and time of change stay.
func (c *checksums) of(ctx context.Context, path string) (string, error) {
	f, err := confine.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	key := fileKey{path, info.Size(), info.ModTime()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if sum, ok := c.known[key]; ok {
		return sum, nil
	}
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		_, _ = h.Write(buf[:n]) // a hash never fails
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return "", err
		}
	}
	c.known[key] = hex.EncodeToString(h.Sum(nil))
	return c.known[key], nil
}
