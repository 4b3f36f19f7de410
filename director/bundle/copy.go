package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/whole"
)

// CopyFiles copies files of the bundle to the same paths below dir. Each is there under its name only when it is
// complete and has its checksum, so a file that is there already is not copied again. Idempotent. Errors: invalid if a
// file of the bundle is damaged.
func (b *Bundle) CopyFiles(ctx context.Context, dir string, files []File) error {
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.copyFile(filepath.Join(dir, filepath.FromSlash(f.Path)), f); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bundle) copyFile(to string, f File) (err error) {
	if info, err := os.Stat(to); err == nil && info.Size() == f.Size {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	from, err := b.Path(f.Path)
	if err != nil {
		return err
	}
	in, err := confine.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := os.MkdirAll(
		filepath.Dir(to), 0o755,
	); err != nil { //nolint:gosec // nodes read what is below it, through the registry
		return err
	}
	return whole.Fill(to, 0o600, func(out *os.File) error {
		h := sha256.New()
		if _, err := io.Copy(io.MultiWriter(out, h), in); err != nil {
			return err
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
			return director.Errorf(
				director.KindInvalid, "bundle.copy",
				"%s of the release bundle has the SHA-256 %s, and release.yaml says %s", f.Path, got, f.SHA256,
			).
				WithHint("the bundle is damaged: copy it to the director again")
		}
		return nil
	})
}
