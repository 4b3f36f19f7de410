package rootdisk_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/signature"
)

// made is what an archive is made of.
type made struct {
	manifest string
	subject  signature.Subject
	root     []byte
	first    string // name of the first file
	unsigned bool
}

func usual() made {
	root := bytes.Repeat([]byte("a root of an appliance "), 300_000) // more than the decoder holds at once
	sum := sha256.Sum256(root)
	return made{
		manifest: fmt.Sprintf(`apiVersion: kaas/v1
kind: Appliance
metadata:
  name: v1.2.3-4-gabc
spec:
  version: v1.2.3-4-gabc
  built: 1750000000
  schema: "0054"
  arch: amd64
  root:
    sha256: %s
    size: %d
`, hex.EncodeToString(sum[:]), len(root)),
		subject: rootdisk.Subject("v1.2.3-4-gabc"), root: root, first: rootdisk.ManifestName,
	}
}

func (m made) archive(t *testing.T, key signature.Signer) []byte {
	t.Helper()
	sig, err := key.Sign([]byte(m.manifest), m.subject)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		text []byte
	}{
		{m.first, []byte(m.manifest)},
		{rootdisk.ManifestName + signature.Suffix, sig},
		{rootdisk.RootName, z.EncodeAll(m.root, nil)},
	} {
		if m.unsigned && f.name == rootdisk.ManifestName+signature.Suffix {
			continue
		}
		h := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func key(t *testing.T) (signature.Signer, signature.Keyring) {
	t.Helper()
	s, err := signature.Generate()
	if err != nil {
		t.Fatal(err)
	}
	keys, wrong := signature.ReadKeys("trustedKeys", []string{s.Public()})
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return s, keys
}

func TestArchive(t *testing.T) {
	t.Parallel()
	signer, keys := key(t)
	_, others := key(t)
	for name, tt := range map[string]struct {
		change func(*made)
		spoil  func([]byte) []byte
		keys   signature.Keyring
		want   string // of the error; empty for none
	}{
		"good":            {},
		"no key":          {keys: signature.Keyring{}, want: "no key that may sign upgrades"},
		"another key":     {keys: others, want: "not trusted"},
		"another version": {change: func(m *made) { m.subject = rootdisk.Subject("v9") }, want: "the signature is for"},
		"signed as an image": {change: func(m *made) {
			m.subject = signature.Subject{Kind: signature.KindImage, Kubernetes: "v1.37.1", Arch: "amd64"}
		}, want: "the signature is for"},
		"another root": {change: func(m *made) {
			m.root = bytes.Repeat([]byte("b root of an appliance "), 300_000)
		}, want: "SHA-256"},
		"a shorter root": {change: func(m *made) { m.root = m.root[:1000] }, want: "shorter"},
		"a longer root":  {change: func(m *made) { m.root = append(m.root, 0) }, want: "longer"},
		"another field":  {change: func(m *made) { m.manifest += "status: {}\n" }, want: "cannot be read"},
		"no version": {change: func(m *made) {
			m.manifest = strings.ReplaceAll(m.manifest, "v1.2.3-4-gabc", `"../etc"`)
		}, want: "is wrong"},
		"another architecture": {change: func(m *made) {
			m.manifest = strings.Replace(m.manifest, "arch: amd64", "arch: arm64", 1)
		}, want: "spec.arch: is not amd64"},
		"no signature":        {change: func(m *made) { m.unsigned = true }, want: "no archive of an upgrade"},
		"another order":       {change: func(m *made) { m.first = "root.ext4.zst" }, want: "no archive of an upgrade"},
		"cut off":             {spoil: func(b []byte) []byte { return b[:1800] }, want: "cannot be read"},
		"cut off in the root": {spoil: func(b []byte) []byte { return b[:5*512+8] }, want: "cannot be read"},
		"a flipped bit":       {spoil: func(b []byte) []byte { b[520] ^= 1; return b }, want: "does not match"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, trusted := usual(), keys
			if tt.change != nil {
				tt.change(&m)
			}
			if tt.keys != nil {
				trusted = tt.keys
			}
			text := m.archive(t, signer)
			if tt.spoil != nil {
				text = tt.spoil(text)
			}
			var got bytes.Buffer
			a, err := rootdisk.Open(bytes.NewReader(text), trusted)
			if err == nil {
				err = a.CopyTo(t.Context(), &got, func(int64) {})
			}
			switch {
			case tt.want == "" && (err != nil || !bytes.Equal(got.Bytes(), m.root)):
				t.Errorf("%v, %d bytes", err, got.Len())
			case tt.want == "":
			case director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), tt.want):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNewer(t *testing.T) {
	t.Parallel()
	now := rootdisk.Root{Version: "v2", Built: 2000, Schema: "0054"}
	for _, tt := range []struct {
		next rootdisk.Root
		want string
	}{
		{rootdisk.Root{Version: "v3", Built: 3000, Schema: "0055"}, ""},
		{rootdisk.Root{Version: "v2.1", Built: 2000, Schema: "0054"}, ""},
		{now, "runs already"},
		{rootdisk.Root{Version: "v1", Built: 1000, Schema: "0054"}, "downgrade: it is of"},
		{rootdisk.Root{Version: "v3", Built: 3000, Schema: "0053"}, "downgrade: it knows the database up to 0053"},
	} {
		err := rootdisk.Newer(now, tt.next)
		if tt.want == "" && err == nil {
			continue
		}
		if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), tt.want) || tt.want == "" {
			t.Errorf("%v: got %v, want %q", tt.next, err, tt.want)
		}
	}
}

func TestParseRequest(t *testing.T) {
	t.Parallel()
	r, err := rootdisk.ParseRequest([]byte(`{"verb": "rollback", "by": "ann", "drain": 5, "lose_changes": true}`))
	want := rootdisk.Request{Verb: "rollback", By: "ann", Drain: 5, LoseChanges: true, Within: rootdisk.UsualWithin}
	if err != nil || r != want {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, bad := range []string{
		``, `[]`, `{"verb": "sh"}`, `{"verb": "upgrade", "drain": -1}`, `{"verb": "upgrade", "within": 1}`,
		`{"verb": "upgrade", "within": 99999}`, `{"verb": "upgrade", "path": "/etc/shadow"}`,
		`{"verb": "upgrade"} {"verb": "rollback"}`, `{"verb": "upgrade", "by": "` + strings.Repeat("a", 300) + `"}`,
	} {
		if r, err := rootdisk.ParseRequest([]byte(bad)); director.KindOf(err) != director.KindInvalid {
			t.Errorf("%s: got %+v, %v", bad, r, err)
		}
	}
}
