package signature

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"aead.dev/minisign"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

const opKey = "signature.key"

// Signer signs with one key.
type Signer struct{ key minisign.PrivateKey }

// Generate makes a key.
func Generate() (Signer, error) {
	_, key, err := minisign.GenerateKey(rand.Reader)
	return Signer{key}, err
}

// Public returns the public key, in one line.
func (s Signer) Public() string {
	public, _ := s.key.Public().(minisign.PublicKey)
	return public.String()
}

// Sign returns the signature of the text as minisign writes it.
func (s Signer) Sign(text []byte, subject Subject) ([]byte, error) {
	if got, ok := parseComment(subject.Comment()); !ok || got != subject {
		return nil, director.Errorf(
			director.KindInvalid, "signature.sign", "%q cannot be written into a signature", subject.Comment(),
		).
			WithHint("correct its name or version")
	}
	r := minisign.NewReader(bytes.NewReader(text))
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, err
	}
	return r.SignWithComments(s.key, subject.Comment(), "signature with the key "+KeyID(s.key.ID())), nil
}

// Write writes the private key to the path, which only its owner can read, and the public key to the same path with the
// suffix .pub. An empty password leaves the key without protection. Errors: conflict if there is such a file.
func (s Signer) Write(path string, password director.Secret) error {
	text, err := s.key.MarshalText()
	if password != "" {
		text, err = minisign.EncryptKey(password.Reveal(), s.key)
	}
	if err != nil {
		return err
	}
	public, err := s.PublicFile()
	if err != nil {
		return err
	}
	if err := fresh(path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return fresh(path+".pub", public, 0o644)
}

// PublicFile returns the public key as minisign keeps it in a file.
func (s Signer) PublicFile() ([]byte, error) {
	public, _ := s.key.Public().(minisign.PublicKey)
	text, err := public.MarshalText()
	return append(text, '\n'), err
}

func fresh(path string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) {
		return director.Errorf(director.KindConflict, opKey, "%s is there already", path).
			WithHint("keys are never overwritten: name another file")
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// ReadSigner reads a private key of minisign or of directorctl. It asks for the password when the key has one. Errors:
// invalid if the file can be read by others, is no key, or the password is wrong.
func ReadSigner(path string, password func() (director.Secret, error)) (Signer, error) {
	bad := func(hint, format string, args ...any) (Signer, error) {
		return Signer{}, director.Errorf(director.KindInvalid, opKey, format, args...).WithHint("%s", hint)
	}
	info, err := os.Stat(path)
	if err != nil {
		return bad("make one: directorctl key generate FILE", "the key cannot be read: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return bad("chmod 600 "+path, "%s is open to other users", path)
	}
	text, err := confine.Read(path, Most)
	if err != nil {
		return bad("name the file of the private key", "the key cannot be read: %w", err)
	}
	text = bytes.TrimSpace(text)
	var s Signer
	if !minisign.IsEncrypted(text) {
		if err := s.key.UnmarshalText(text); err != nil {
			return bad("name the file of the private key", "%s is not a private key of minisign", path)
		}
		return s, nil
	}
	secret, err := password()
	if err != nil {
		return s, err
	}
	if s.key, err = minisign.DecryptKey(secret.Reveal(), text); err != nil {
		return bad("try again", "the key %s cannot be opened: the password is wrong, or the file is damaged", path)
	}
	return s, nil
}

// ReadKeys reads the trusted keys: each entry is a public key or the absolute path of a file that holds one. A field of
// the result is named by its place.
func ReadKeys(name string, entries []string) (Keyring, []director.Field) {
	var keys Keyring
	var problems []director.Field
	for i, entry := range entries {
		key, err := readKey(entry)
		if err != nil {
			problems = append(problems, director.Field{
				Path: fmt.Sprintf("%s[%d]", name, i), Msg: err.Error(),
				Hint: "write a public key (RW...), or the absolute path of its file",
			})
			continue
		}
		keys = append(keys, key)
	}
	return keys, problems
}

func readKey(entry string) (minisign.PublicKey, error) {
	if !filepath.IsAbs(entry) {
		return ParseKey(entry)
	}
	f, err := confine.Open(entry)
	if err != nil {
		return minisign.PublicKey{}, err
	}
	info, err := f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return minisign.PublicKey{}, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return minisign.PublicKey{}, fmt.Errorf("%s can be written by other users", entry)
	}
	text, err := confine.Read(entry, Most)
	if err != nil {
		return minisign.PublicKey{}, err
	}
	return ParseKey(string(text))
}
