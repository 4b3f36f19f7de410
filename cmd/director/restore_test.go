package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/recovery"
)

// bundled writes a bundle of a director that has a few files, with its configuration, and the key that opens it.
func bundled(t *testing.T, stateDir, database string) (bundle, key string) {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	put("state/sealing.key", "the key")
	put("state/tls/ca.crt", "the authority")
	put("state/tls/acme/certificate.pem", "a certificate by ACME")
	put("etc/keys/release.pub", "a public key")
	config := put("etc/director.yaml", fmt.Sprintf("stateDir: %s\naddress: 10.0.0.1\n", stateDir))
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	_, err = recovery.Write(t.Context(), &out, recovery.Source{
		Manifest: recovery.Manifest{Director: "d1", Version: "v1", Database: database},
		StateDir: filepath.Join(dir, "state"), Config: config,
		Dump: func(_ context.Context, path string) error { return os.WriteFile(path, []byte("the database"), 0o600) },
	}, []age.Recipient{id.Recipient()})
	if err != nil {
		t.Fatal(err)
	}
	return put("bundle.age", out.String()), put("key", id.String()+"\n")
}

func TestRestoreOnAnEmptyMachine(t *testing.T) {
	t.Parallel()
	machine := t.TempDir()
	state, config := filepath.Join(machine, "state"), filepath.Join(machine, "etc/director.yaml")
	bundle, key := bundled(t, state, recovery.SQLite)
	var out bytes.Buffer
	args := []string{"-config", config, "restore", "-identity", key, "-state-dir", state, bundle}
	if err := run(args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for file, want := range map[string]string{
		"state/director.db": "the database", "state/sealing.key": "the key", "state/tls/ca.crt": "the authority",
		"etc/keys/release.pub": "a public key", "state/tls/acme/certificate.pem": "a certificate by ACME",
	} {
		text, err := os.ReadFile(filepath.Join(machine, file))
		if err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", file, text, err)
		}
	}
	if !strings.Contains(out.String(), "director.yaml, keys/release.pub") ||
		!strings.Contains(out.String(), "The director d1 of ") {
		t.Errorf("it says %q", out.String())
	}
	left, err := os.ReadDir(state)
	if err != nil || len(left) != 4 { // the database, the key, tls, and when the bundle was made
		t.Errorf("the state directory has %v (%v)", left, err)
	}
	// A second time there is a director.
	if err := run(args, &out); director.KindOf(err) != director.KindConflict {
		t.Errorf("a second time: %v", err)
	}
}

func TestRestoreIsRefused(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	bundle, key := bundled(t, state, recovery.SQLite)
	elsewhere, elsewhereKey := bundled(t, "/somewhere/else", recovery.SQLite)
	served, servedKey := bundled(t, state, recovery.Postgres)
	_, other := bundled(t, state, recovery.SQLite)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no key":            {[]string{bundle}, "name -identity"},
		"no bundle":         {[]string{"-identity", key}, "name -identity and one bundle"},
		"a key of none":     {[]string{"-identity", bundle, bundle}, "does not have one private key"},
		"no such bundle":    {[]string{"-identity", key, "/nowhere"}, "cannot be read"},
		"no bundle at all":  {[]string{"-identity", key, key}, "damaged or cut off"},
		"another key":       {[]string{"-identity", other, bundle}, "for other keys"},
		"another directory": {[]string{"-identity", elsewhereKey, elsewhere}, "has stateDir /somewhere/else"},
		"another database":  {[]string{"-identity", servedKey, served}, "database of the kind postgres"},
	} {
		config := filepath.Join(t.TempDir(), "director.yaml")
		args := append([]string{"-config", config, "restore", "-state-dir", state}, tt.args...)
		err := run(args, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(state); len(left) > 0 {
			t.Errorf("%s: left in the state directory: %v", name, left)
		}
	}
}
