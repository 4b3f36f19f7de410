// Package backup is how backups of clusters look and where they lie: a snapshot of etcd is compressed and encrypted
// into an archive, and a manifest says what is in it. Targets keep both. An archive is written and read as a stream.
//
// An archive is zstd inside of age. It opens by hand, too: age -d -i KEYFILE ID.db.zst.age | zstd -d > snapshot.db
package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/director-kaas/kaas/director"
)

// Sums are the size and the SHA-256 of a stream.
type Sums struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// counter sums up what passes through.
type counter struct {
	size int64
	hash hash.Hash
}

func newCounter() *counter { return &counter{hash: sha256.New()} }

func (c *counter) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.hash.Write(p)
}

func (c *counter) sums() Sums { return Sums{c.size, hex.EncodeToString(c.hash.Sum(nil))} }

// window bounds what the compressor and the decompressor keep in memory.
const window = 4 << 20

// Encode compresses and encrypts what read writes, for all recipients, into w. It returns the sums of what read wrote
// and of the archive.
func Encode(w io.Writer, to []age.Recipient, read func(io.Writer) error) (content, archive Sums, err error) {
	outer, inner := newCounter(), newCounter()
	sealed, err := age.Encrypt(io.MultiWriter(w, outer), to...)
	if err != nil {
		return Sums{}, Sums{}, err
	}
	packed, err := zstd.NewWriter(
		sealed, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(window),
	)
	if err != nil {
		return Sums{}, Sums{}, err
	}
	if err := read(io.MultiWriter(packed, inner)); err != nil {
		return Sums{}, Sums{}, err
	}
	if err := errors.Join(packed.Close(), sealed.Close()); err != nil {
		return Sums{}, Sums{}, err
	}
	return inner.sums(), outer.sums(), nil
}

// Decode decrypts and decompresses the archive r into w. It reads the archive to its end, and returns the sums of the
// content and of the archive. Errors: invalid if the archive was changed, is not complete, or is for another key.
func Decode(ctx context.Context, w io.Writer, r io.Reader, key age.Identity) (content, archive Sums, err error) {
	outer, inner := newCounter(), newCounter()
	source := &failing{r: io.TeeReader(&cancelled{ctx, r}, outer)}
	opened, err := age.Decrypt(source, key)
	if err != nil {
		return Sums{}, Sums{}, source.explain(err)
	}
	plain, err := zstd.NewReader(
		opened, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(2*window),
	)
	if err != nil {
		return Sums{}, Sums{}, source.explain(err)
	}
	defer plain.Close()
	target := &failing{w: io.MultiWriter(w, inner)}
	if _, err := io.Copy(target, plain); err != nil {
		if target.err != nil {
			return Sums{}, Sums{}, target.err
		}
		return Sums{}, Sums{}, source.explain(err)
	}
	// zstd stops at the end of its frame; age must have nothing behind it, and the archive nothing behind age.
	if n, err := io.Copy(io.Discard, opened); err != nil || n > 0 {
		return Sums{}, Sums{}, source.explain(errors.Join(err, errors.New("there is more behind its end")))
	}
	if n, err := io.Copy(io.Discard, source); err != nil || n > 0 {
		return Sums{}, Sums{}, source.explain(errors.Join(err, errors.New("there is more behind its end")))
	}
	return inner.sums(), outer.sums(), nil
}

// failing remembers whether the reader or the writer itself failed: that says nothing about the archive.
type failing struct {
	r   io.Reader
	w   io.Writer
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

func (f *failing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		f.err = err
	}
	return n, err
}

func (f *failing) explain(err error) error {
	if f.err != nil {
		return f.err
	}
	const op = "backup.decode"
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return director.Errorf(
			director.KindInvalid, op, "the backup is encrypted for other keys, or its beginning is damaged",
		).
			WithHint("it needs the sealing key of the director that made it, or the key of a recipient")
	}
	return director.Errorf(director.KindInvalid, op, "the backup is damaged or cut off: %s", err).
		WithHint("use another backup; see: directorctl backup list CLUSTER")
}

// cancelled ends a read when its context ends.
type cancelled struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelled) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Recipients parses public keys of age.
func Recipients(keys []string) ([]age.Recipient, error) {
	out := make([]age.Recipient, len(keys))
	for i, k := range keys {
		r, err := age.ParseX25519Recipient(k)
		if err != nil {
			return nil, fmt.Errorf("recipient %d is not a public key of age: %w", i+1, err)
		}
		out[i] = r
	}
	return out, nil
}
