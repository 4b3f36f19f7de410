// Package provenance decides which release bundles and node images a director uses: those that a trusted key signed,
// and those that an administrator uses without a signature and says so in words. A signature that is there must be
// right, whatever the words say.
package provenance

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/signature"
)

const op = "provenance.check"

// sumSuffix follows the name of an image in the name of the file that sha256sum wrote of it, which is what is signed.
const sumSuffix = ".sha256"

// Gate lets through what is trusted. A nil gate lets everything through.
type Gate struct {
	Keys   signature.Keyring
	Never  bool         // nothing is accepted without a signature, whatever documents say
	Images confine.Dirs // directories of image files that documents name, with their signatures
	// File returns an imported image, or not_found.
	File func(sha256 string) (director.ImageFile, error)
}

// Reason is why something is used.
type Reason struct {
	Key   string // the id of the key that signed it
	Words string // of the administrator who uses it without a signature
}

// decide checks the signature if there is one.
func (g *Gate) decide(signed bool, words, hint string, check func() (string, error)) (Reason, error) {
	switch {
	case signed:
		id, err := check()
		return Reason{Key: id}, err
	case g.Never:
		return Reason{}, director.Errorf(
			director.KindInvalid, op, "it has no signature, and this director uses nothing without one",
		).
			WithHint("sign it: directorctl sign; trustedKeys in the director's configuration names the keys")
	case words == "":
		return Reason{}, director.Errorf(director.KindInvalid, op, "it has no signature").WithHint("%s", hint)
	}
	return Reason{Words: words}, nil
}

// about names the thing in the error.
func about(what string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*director.Error](err)
	if !ok {
		return director.Errorf(director.KindInvalid, op, "%s is not used: its signature cannot be read: %w", what, err).
			WithHint("replace it with a regular file: copy it again from where it was built")
	}
	named := *e
	named.Msg = what + " is not used: " + e.Msg
	return &named
}

// Release tells why the bundle is used. words are those of its document. Errors: invalid if it is not used.
func (g *Gate) Release(b *bundle.Bundle, words string) (Reason, error) {
	if g == nil {
		return Reason{}, nil
	}
	what := "the release bundle in " + b.Dir()
	sig, err := signature.Read(filepath.Join(b.Dir(), bundle.SignatureName))
	if err != nil {
		return Reason{}, about(what, err)
	}
	const hint = "copy its " + bundle.SignatureName +
		" too, or sign it: directorctl sign DIR; or say in spec.unsigned of the Release why it is used without one"
	reason, err := g.release(b.Release(), b.Text(), sig, words, hint)
	return reason, about(what, err)
}

// Archive tells why the release bundle in an archive is imported. text is its release.yaml, sig its signature or nil,
// and words are those of who imports it. Errors: invalid if it is not imported.
func (g *Gate) Archive(r bundle.Release, text, sig []byte, words string) (Reason, error) {
	if g == nil {
		return Reason{}, nil
	}
	const hint = "sign it and pack it again: directorctl sign DIR, directorctl release pack DIR FILE; or say with " +
		"--unsigned why it is used without a signature"
	reason, err := g.release(r, text, sig, words, hint)
	return reason, about("release "+r.Name, err)
}

func (g *Gate) release(r bundle.Release, text, sig []byte, words, hint string) (Reason, error) {
	return g.decide(sig != nil, words, hint, func() (string, error) {
		return g.Keys.Check(text, sig, signature.Subject{
			Kind: signature.KindRelease, Name: r.Name, Kubernetes: r.Kubernetes, Arch: r.Arch,
		})
	})
}

// Image tells why the image is used. path is where its file is, with no link left to follow; whether the file has the
// checksum in the document is not looked at. Errors: invalid if it is not used.
func (g *Gate) Image(im model.Image, path string) (Reason, error) {
	if g == nil {
		return Reason{}, nil
	}
	what, sum, hint := "the image "+path, im.SHA256,
		"copy its .sha256 and .sha256.minisig too, or sign it: directorctl sign FILE; or say in spec.unsigned of "+
			"the Image why it is used without one"
	var signed director.Signed
	var err error
	if im.Source == "" {
		var f director.ImageFile
		what, hint = fmt.Sprintf("the imported image %.12s", im.SHA256),
			"import it again with its signature: directorctl image import FILE; or say in spec.unsigned of the "+
				"Image why it is used without one"
		if g.File != nil {
			f, err = g.File(im.SHA256)
		}
		if director.KindOf(err) == director.KindNotFound {
			err = nil // that it is missing is said elsewhere
		}
		signed, sum = f.Signed, f.Origin.SHA256 // the director made it of what was signed
	} else {
		signed, err = g.nextTo(path)
	}
	if err != nil {
		return Reason{}, about(what, err)
	}
	reason, err := g.decide(signed.Signature != "", im.Unsigned, hint, func() (string, error) {
		return g.Keys.CheckImage(signed, sum, im.Kubernetes)
	})
	return reason, about(what, err)
}

// nextTo reads the signed text of an image and its signature from the files next to it.
func (g *Gate) nextTo(path string) (director.Signed, error) {
	read := func(name string) (string, error) {
		real, err := g.Images.Find(name)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		text, err := signature.Read(real)
		return string(text), err
	}
	sig, err := read(path + sumSuffix + signature.Suffix)
	if err != nil || sig == "" {
		return director.Signed{}, err
	}
	text, err := read(path + sumSuffix)
	return director.Signed{Text: text, Signature: sig}, err
}

// Upload tells whether an image may be made of an upload, and completes the request: a signature says which Kubernetes
// the image carries. Errors: invalid if not.
func (g *Gate) Upload(r director.ImageImport) (director.ImageImport, error) {
	if words := r.Unsigned; words != "" {
		if bad := director.CheckLine(words); bad != nil || len(strings.Fields(words)) < 3 || len(words) > 200 {
			return r, director.Invalid(op, "the import is not right", []director.Field{
				{
					Path: "unsigned", Msg: "is no reason",
					Hint: "say in three words or more why the image is used without a signature",
				},
			})
		}
	}
	if g == nil {
		return r, nil
	}
	if r.Unsigned != "" && r.Signed != (director.Signed{}) {
		return r, director.Invalid(op, "the import is not right", []director.Field{
			{Path: "unsigned", Msg: "there is a signature", Hint: "leave one of the two out"},
		})
	}
	const hint = "send its FILE.sha256.minisig too, or sign it: directorctl sign FILE; or say why it is used " +
		"without one: directorctl image import --unsigned WORDS"
	_, err := g.decide(r.Signed != (director.Signed{}), r.Unsigned, hint, func() (string, error) {
		subject, _, err := g.Keys.Find([]byte(r.Signed.Text), []byte(r.Signed.Signature))
		if err != nil {
			return "", err
		}
		if r.Kubernetes == "" && subject.Kind == signature.KindImage {
			r.Kubernetes = subject.Kubernetes
		}
		return g.Keys.CheckImage(r.Signed, r.Upload, r.Kubernetes)
	})
	return r, about("the upload", err)
}
