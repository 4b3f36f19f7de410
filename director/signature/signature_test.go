package signature_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/scrypt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/signature"
)

var release = signature.Subject{Kind: signature.KindRelease, Name: "k8s-1.37.1", Kubernetes: "v1.37.1", Arch: "amd64"}

func signer(t *testing.T) signature.Signer {
	t.Helper()
	s, err := signature.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ring(t *testing.T, signers ...signature.Signer) signature.Keyring {
	t.Helper()
	var entries []string
	for _, s := range signers {
		entries = append(entries, s.Public())
	}
	keys, problems := signature.ReadKeys("trustedKeys", entries)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return keys
}

func sign(t *testing.T, s signature.Signer, text string, subject signature.Subject) []byte {
	t.Helper()
	sig, err := s.Sign([]byte(text), subject)
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const text = "kind: Release\n"
	old, key, other := signer(t), signer(t), signer(t)
	good := string(sign(t, key, text, release))
	with := func(change func(*signature.Subject)) []byte {
		subject := release
		change(&subject)
		return sign(t, key, text, subject)
	}
	lines := strings.SplitAfter(good, "\n")
	cases := map[string]struct {
		keys signature.Keyring
		text string
		sig  []byte
		want string // of the error; none if empty
	}{
		"right":            {ring(t, key), text, []byte(good), ""},
		"rotated keys":     {ring(t, old, key), text, []byte(good), ""},
		"one byte changed": {ring(t, key), "kind: release\n", []byte(good), "does not match"},
		"no key":           {nil, text, []byte(good), "not trusted"},
		"another key":      {ring(t, other), text, []byte(good), "not trusted"},
		"retired key":      {ring(t, key), text, sign(t, old, text, release), "not trusted"},
		"empty":            {ring(t, key), text, []byte{}, "not in minisign's format"},
		"huge": {
			ring(t, key), text, []byte(good + strings.Repeat("A", signature.Most)), "more than 4096 bytes",
		},
		"an image's": {
			ring(t, key), text, with(func(s *signature.Subject) { s.Kind, s.Name = signature.KindImage, "" }),
			"for another thing",
		},
		"another version's": {
			ring(t, key), text, with(func(s *signature.Subject) { s.Kubernetes = "v1.36.4" }), "for another thing",
		},
		"another name's": {
			ring(t, key), text, with(func(s *signature.Subject) { s.Name = "k8s-1.37.0" }), "for another thing",
		},
		"another CPU's": {
			ring(t, key), text, with(func(s *signature.Subject) { s.Arch = "arm64" }), "for another thing",
		},
		"comment changed": {
			ring(t, key), text, []byte(strings.Replace(good, "v1.37.1", "v1.37.2", 1)), "does not match",
		},
		"comment of another": {
			ring(t, key), text,
			[]byte(
				lines[0] + lines[1] +
					strings.Join(strings.SplitAfter(string(sign(t, key, "other", release)), "\n")[2:], ""),
			),
			"does not match",
		},
		"its untrusted alone": {
			ring(t, key), text, []byte("untrusted comment: kaas is fine\n" + strings.Join(lines[1:], "")), "",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.keys.Check([]byte(c.text), c.sig, release)
			if c.want == "" && err != nil ||
				c.want != "" &&
					(director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), c.want) ||
						director.HintOf(err) == "") {
				t.Errorf("error = %v, hint %q, want %q", err, director.HintOf(err), c.want)
			}
		})
	}
}

func TestCheckImage(t *testing.T) {
	t.Parallel()
	key := signer(t)
	sum := strings.Repeat("ab", 32)
	image := signature.Subject{Kind: signature.KindImage, Kubernetes: "v1.37.1", Arch: "amd64"}
	cases := map[string]struct{ text, want string }{
		"right":         {sum + "  node.qcow2\n", ""},
		"binary":        {sum + " *node.qcow2\n", ""},
		"another file":  {strings.Repeat("cd", 32) + "  node.qcow2\n", "is for the file with the SHA-256 cdcd"},
		"two lines":     {sum + "  node.qcow2\n" + sum + "  more.qcow2\n", "not one line"},
		"hidden line":   {sum + "  node\x00\n", "not one line"},
		"no name":       {sum + "\n", "not one line"},
		"upper case":    {strings.ToUpper(sum) + "  node.qcow2\n", "not one line"},
		"a release too": {"kind: Release\n", "not one line"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ring(t, key).CheckImage(
				director.Signed{Text: c.text, Signature: string(sign(t, key, c.text, image))}, sum, "v1.37.1",
			)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error = %v, want %q", err, c.want)
			}
		})
	}
}

func TestSignRefusesWhatNoCommentHolds(t *testing.T) {
	t.Parallel()
	for _, s := range []signature.Subject{
		{Kind: signature.KindRelease, Name: "a kubernetes=v1.37.1", Kubernetes: "v1.37.2", Arch: "amd64"},
		{Kind: signature.KindImage, Kubernetes: "v1.37.1\n", Arch: "amd64"},
		{Kind: "key", Kubernetes: "v1.37.1", Arch: "amd64"},
		{Kind: signature.KindImage, Arch: "amd64"},
	} {
		if sig, err := signer(t).Sign([]byte("x"), s); director.KindOf(err) != director.KindInvalid {
			t.Errorf("%+v: %s, %v", s, sig, err)
		}
	}
}

func TestReadKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := signer(t)
	if err := key.Write(filepath.Join(dir, "key"), ""); err != nil {
		t.Fatal(err)
	}
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ entry, want string }{
		"text":         {key.Public(), ""},
		"file":         {filepath.Join(dir, "key.pub"), ""},
		"private":      {filepath.Join(dir, "key"), "not a public key"},
		"missing":      {filepath.Join(dir, "none"), "no such file"},
		"FIFO":         {fifo, "not a regular file"},
		"directory":    {dir, "not a regular file"},
		"huge":         {file("huge", strings.Repeat("A", 1<<20), 0o600), "more than 4096 bytes"},
		"others write": {file("open", key.Public(), 0o666), "written by other users"},
		"relative":     {"key.pub", "not a public key"},
		"empty":        {"", "not a public key"},
	} {
		keys, problems := signature.ReadKeys("trustedKeys", []string{c.entry})
		if c.want == "" && (len(keys) != 1 || len(problems) > 0) ||
			c.want != "" &&
				(len(problems) != 1 || problems[0].Path != "trustedKeys[0]" ||
					!strings.Contains(problems[0].Msg, c.want)) {
			t.Errorf("%s: %d keys, %+v", name, len(keys), problems)
		}
	}
}

func TestPrivateKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	key := signer(t)
	if err := key.Write(path, ""); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := signer(t).Write(path, ""); director.KindOf(err) != director.KindConflict {
		t.Errorf("a key was overwritten: %v", err)
	}
	got, err := signature.ReadSigner(path, nil)
	if err != nil || got.Public() != key.Public() {
		t.Errorf("%v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := signature.ReadSigner(
		path, nil,
	); director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), "open to other users") {
		t.Errorf("a key that others read: %v", err)
	}
}

// minisign is the program that people have.
func minisign(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("minisign")
	if err != nil {
		if os.Getenv("KAAS_REQUIRE_REAL") != "" {
			t.Fatal("minisign is missing: apt-get install minisign")
		}
		t.Skip("minisign is missing: apt-get install minisign")
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

func TestMinisignVerifiesWhatWeSign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, file := signer(t), filepath.Join(dir, "release.yaml")
	const text = "kind: Release\n"
	if err := errors.Join(
		key.Write(filepath.Join(dir, "key"), ""), os.WriteFile(file, []byte(text), 0o600),
		os.WriteFile(file+signature.Suffix, sign(t, key, text, release), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for _, by := range [][]string{{"-P", key.Public()}, {"-p", filepath.Join(dir, "key.pub")}} {
		if out, err := minisign(
			t, append([]string{"-Vm", file}, by...)...,
		); err != nil || !strings.Contains(out, "kaas release name=k8s-1.37.1 kubernetes=v1.37.1 arch=amd64") {
			t.Errorf("%s%v", out, err)
		}
	}
	// It also signs with our key.
	if out, err := minisign(t, "-Sm", file, "-s", filepath.Join(dir, "key"), "-t", release.Comment()); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	sig, err := signature.Read(file + signature.Suffix)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring(t, key).Check([]byte(text), sig, release); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("kind: release\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := minisign(t, "-Vm", file, "-P", key.Public()); err == nil {
		t.Errorf("a changed file passed: %s", out)
	}
}

func TestWeVerifyWhatMinisignSigns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	private, public, file := filepath.Join(dir, "m.key"), filepath.Join(dir, "m.pub"),
		filepath.Join(dir, "node.qcow2.sha256")
	if out, err := minisign(t, "-GW", "-s", private, "-p", public); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	sum := strings.Repeat("ab", 32)
	if err := os.WriteFile(file, []byte(sum+"  node.qcow2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, problems := signature.ReadKeys("trustedKeys", []string{public})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	check := func() error {
		sig, err := signature.Read(file + signature.Suffix)
		if err != nil {
			t.Fatal(err)
		}
		_, err = keys.CheckImage(director.Signed{Text: sum + "  node.qcow2\n", Signature: string(sig)}, sum, "v1.37.1")
		return err
	}
	if out, err := minisign(
		t, "-Sm", file, "-s", private, "-t", "kaas image kubernetes=v1.37.1 arch=amd64",
	); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	if err := check(); err != nil {
		t.Error(err)
	}
	if out, err := minisign(t, "-Sm", file, "-s", private); err != nil { // its comment says nothing of what it is
		t.Fatalf("%s%v", out, err)
	}
	if err := check(); err == nil || !strings.Contains(err.Error(), "trusted comment") {
		t.Errorf("a signature for anything passed: %v", err)
	}
	if out, err := minisign(
		t, "-lSm", file, "-s", private, "-t", "kaas image kubernetes=v1.37.1 arch=amd64",
	); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	if err := check(); err == nil || !strings.Contains(err.Error(), "old form") {
		t.Errorf("a signature of the old form passed: %v", err)
	}
	// Its keys are ours.
	key, err := signature.ReadSigner(private, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := signature.ParseKey(key.Public()); err != nil || !got.Equal(keys[0]) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestProtectedKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	// this takes seconds and 1 GiB, as minisign means it to
	if err := signer(t).Write(path, "open sesame"); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("nobody knows")
	if _, err := signature.ReadSigner(path, func() (director.Secret, error) {
		return "", refused
	}); !errors.Is(err, refused) {
		t.Errorf("without the password: %v", err)
	}
	key := signer(t)
	cheap := filepath.Join(t.TempDir(), "cheap")
	if err := os.WriteFile(cheap, protect(t, key, "open sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	for password, ok := range map[director.Secret]bool{"open sesame": true, "closed sesame": false} {
		got, err := signature.ReadSigner(cheap, func() (director.Secret, error) { return password, nil })
		if (err == nil) != ok || ok && got.Public() != key.Public() ||
			err != nil && strings.Contains(err.Error(), "sesame") {
			t.Errorf("%v", err)
		}
	}
}

// protect writes the key as minisign does with a password, for a hundredth of the work.
func protect(t *testing.T, key signature.Signer, password string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plain")
	if err := key.Write(path, ""); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	comment, line, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	raw, err := base64.StdEncoding.DecodeString(line)
	if err != nil {
		t.Fatal(err)
	}
	copy(raw[2:], "Sc")
	binary.LittleEndian.PutUint64(raw[38:], 1<<15)
	binary.LittleEndian.PutUint64(raw[46:], 1<<25)
	sum := blake2b.Sum256(append([]byte("Ed"), raw[54:126]...))
	copy(raw[126:], sum[:])
	stream, err := scrypt.Key([]byte(password), raw[6:38], 1<<10, 8, 1, 104)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range stream {
		raw[54+i] ^= b
	}
	return []byte(comment + "\n" + base64.StdEncoding.EncodeToString(raw) + "\n")
}

func FuzzFind(f *testing.F) {
	key, err := signature.Generate()
	if err != nil {
		f.Fatal(err)
	}
	keys, _ := signature.ReadKeys("trustedKeys", []string{key.Public()})
	good, err := key.Sign([]byte("x"), release)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("x"), good)
	f.Add([]byte("y"), []byte("untrusted comment: \nAA==\ntrusted comment: \nAA==\n"))
	f.Fuzz(func(t *testing.T, text, sig []byte) {
		if subject, id, err := keys.Find(
			text, sig,
		); err == nil && (string(text) != "x" || subject != release || id == "") {
			t.Errorf("%q passed as %+v", text, subject)
		}
	})
}
