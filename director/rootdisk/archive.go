package rootdisk

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/signature"
)

// Names of what is in the archive of an upgrade, in this order.
const (
	ManifestName  = "appliance.yaml"
	signatureName = ManifestName + signature.Suffix
	RootName      = "root.ext4.zst"
)

const opArchive = "rootdisk.archive"

// Archive is an upgrade that is being read. Its signature has been checked; its root has not been read yet.
type Archive struct {
	Manifest Manifest
	Key      string // id of the key that signed it
	root     io.Reader
}

// Compressed returns an upgrade whose root is read from r, outside of an archive. Nothing is known of its signature.
func Compressed(m Manifest, r io.Reader) *Archive { return &Archive{Manifest: m, root: r} }

// Subject is what an upgrade to the version is signed as.
func Subject(version string) signature.Subject {
	return signature.Subject{Kind: signature.KindAppliance, Name: version, Arch: "amd64"}
}

func damaged(format string, args ...any) error {
	return director.Errorf(director.KindInvalid, opArchive, format, args...).
		WithHint("copy it again from where it was built: images/director/build.sh writes director-upgrade.tar")
}

// Open reads the beginning of an archive and checks its signature. Errors: invalid if it is none, or if no trusted key
// signed it.
func Open(r io.Reader, keys signature.Keyring) (*Archive, error) {
	if len(keys) == 0 {
		return nil, director.Errorf(director.KindInvalid, opArchive, "no key that may sign upgrades is trusted").
			WithHint("name its public key in trustedKeys of the director's settings")
	}
	t := tar.NewReader(r)
	text, err := small(t, ManifestName)
	if err != nil {
		return nil, err
	}
	sig, err := small(t, signatureName)
	if err != nil {
		return nil, err
	}
	// Nothing of the text is looked at before the signature is known to be good.
	subject, key, err := keys.Find(text, sig)
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest(text)
	if err != nil {
		return nil, err
	}
	if want := Subject(m.Version); subject != want {
		return nil, damaged("the signature is for %q, and this is %q", subject.Comment(), want.Comment())
	}
	if h, err := t.Next(); err != nil || h.Name != RootName || h.Typeflag != tar.TypeReg {
		return nil, damaged("the archive has no %s in its place", RootName)
	}
	return &Archive{Manifest: m, Key: key, root: t}, nil
}

// small reads the next file of the archive, which has to have this name.
func small(t *tar.Reader, name string) ([]byte, error) {
	h, err := t.Next()
	if err != nil || h.Name != name || h.Typeflag != tar.TypeReg || h.Size > signature.Most {
		return nil, damaged("it is no archive of an upgrade: there is no %s in its place", name)
	}
	text, err := io.ReadAll(io.LimitReader(t, signature.Most))
	if err != nil {
		return nil, damaged("%s cannot be read: %w", name, err)
	}
	return text, nil
}

// mostWindow bounds the memory that the decompression takes.
const mostWindow = 64 << 20

// target tells what it could not write from what could not be read.
type target struct {
	w      io.Writer
	failed error
}

func (t *target) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	if err != nil {
		t.failed = err
	}
	return n, err
}

// CopyTo writes the root's file system to w, and returns nil if it is what was signed. progress is told how much was
// written. Errors: invalid if the archive has another root; those of w.
func (a *Archive) CopyTo(ctx context.Context, w io.Writer, progress func(done int64)) error {
	z, err := zstd.NewReader(
		diskimage.WithContext(ctx, a.root), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostWindow),
		zstd.WithDecoderLowmem(true),
	)
	if err != nil {
		return damaged("%s cannot be read: %w", RootName, err)
	}
	defer z.Close()
	h, out := sha256.New(), &target{w: w}
	for done := int64(0); done < a.Manifest.Size; {
		n, err := io.CopyN(io.MultiWriter(h, out), z, min(16<<20, a.Manifest.Size-done))
		done += n
		progress(done)
		if errors.Is(err, io.EOF) {
			return damaged("the root is shorter than the %d bytes that were signed", a.Manifest.Size)
		}
		if err != nil && out.failed == nil && ctx.Err() == nil {
			return damaged("%s cannot be read: %w", RootName, err)
		}
		if err != nil {
			return director.Errorf(director.KindInternal, opArchive, "the root cannot be copied: %w", err)
		}
	}
	if n, _ := z.Read(make([]byte, 1)); n > 0 {
		return damaged("the root is longer than the %d bytes that were signed", a.Manifest.Size)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != a.Manifest.SHA256 {
		return damaged("the root has the SHA-256 %s, and %s was signed", got, a.Manifest.SHA256)
	}
	return nil
}
