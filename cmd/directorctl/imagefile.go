package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/diskimage"
)

// wanted is what is asked of an import.
type wanted struct {
	path, document, kubernetes, sha256, compat, unsigned string
}

// imageFile is an image file that was found good as far as that can be told here.
type imageFile struct {
	*os.File
	name       string
	info       diskimage.Info
	kubernetes string // empty if only the director can tell, after the conversion
	sha256     string
}

// open looks at the file, so that a wrong one is refused before it is sent.
func (in wanted) open(ctx context.Context) (*imageFile, error) {
	const op = "directorctl.image"
	f, err := os.Open(in.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, director.Errorf(director.KindInvalid, op, "there is no file %s", in.path)
	}
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "%s cannot be read: %w", in.path, err)
	}
	out := &imageFile{File: f, name: filepath.Base(in.path), kubernetes: in.kubernetes}
	stat, err := f.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = director.Errorf(director.KindInvalid, op, "%s is not a regular file", in.path)
	}
	if err == nil {
		out.info, err = diskimage.Inspect(ctx, in.path, f, stat.Size())
	}
	if err == nil {
		err = out.tells(in)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return out, nil
}

// tells compares what the file says of itself with what the command line says.
func (f *imageFile) tells(in wanted) error {
	const op = "directorctl.image"
	r := f.info.Release
	switch {
	case f.info.Arch != "" && f.info.Arch != "amd64":
		return director.Errorf(director.KindInvalid, op, "%s is for %s, and nodes are amd64", in.path, f.info.Arch).
			WithHint("give the image for amd64")
	case r != nil && in.kubernetes != "" && in.kubernetes != r.Kubernetes:
		return director.Errorf(
			director.KindInvalid, op, "%s says in %s that it carries Kubernetes %s, and not %s", in.path,
			diskimage.ReleasePath, r.Kubernetes, in.kubernetes,
		).
			WithHint("leave --kubernetes out, or give the other image")
	case r != nil:
		f.kubernetes = r.Kubernetes
	case in.kubernetes != "" || f.info.Format == diskimage.VMDK || f.info.Format == diskimage.OVA:
	default:
		// The build of a node image writes it next to the image too.
		text, err := os.ReadFile(filepath.Join(filepath.Dir(in.path), "kaas-release.json"))
		if err == nil {
			r = diskimage.ParseRelease(text)
		}
		if r == nil {
			return director.Errorf(
				director.KindInvalid, op,
				"%s does not say which Kubernetes it carries: there is no %s that can be read", in.path,
				diskimage.ReleasePath,
			).
				WithHint("give it: --kubernetes v1.37.2")
		}
		f.kubernetes = r.Kubernetes
	}
	return nil
}

// sum computes the checksum, and compares it with the one that is wanted and with that in the file's .sha256.
func (f *imageFile) sum(ctx context.Context, want string, show *progress) error {
	var err error
	if f.sha256, err = show.copy(ctx, "Checking "+f.name, f, f.info.Size); err != nil {
		return endOf(ctx, director.Errorf(
			director.KindInvalid, "directorctl.image", "%s cannot be read: %w", f.name, err,
		))
	}
	from := "and not " + want
	if text, err := os.ReadFile(f.Name() + ".sha256"); err == nil && want == "" {
		if fields := strings.Fields(string(text)); len(fields) > 0 && wholeSum.MatchString(strings.ToLower(fields[0])) {
			want = strings.ToLower(fields[0])
			from = "and " + filepath.Base(f.Name()) + ".sha256 says " + want
		}
	}
	if want != "" && want != f.sha256 {
		return director.Errorf(
			director.KindInvalid, "directorctl.image", "%s has the SHA-256 %s, %s", f.Name(), f.sha256, from,
		).
			WithHint("copy or download it again, or correct the checksum")
	}
	return nil
}
