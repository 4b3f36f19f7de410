package daemon

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/client"
)

// The file with the first password goes with its change, also if the director was killed before it could remove it.
func TestTheFirstPasswordGoes(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.StateDir, oneTimeFile)
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	login := func(password string) *client.Client {
		t.Helper()
		api, err := client.New(client.Config{Server: "https://" + d.Addr().String(), CA: ca})
		if err != nil {
			t.Fatal(err)
		}
		session, err := api.Login(t.Context(), "admin", director.Secret(password))
		if err != nil {
			t.Fatal(err)
		}
		if api, err = client.New(client.Config{
			Server: "https://" + d.Addr().String(), CA: ca, Token: director.Secret(session.Token),
		}); err != nil {
			t.Fatal(err)
		}
		return api
	}
	password := strings.TrimSpace(string(first))
	if err := login(password).ChangePassword(
		t.Context(), director.Secret(password), "correct horse battery",
	); err != nil {
		t.Fatal(err)
	}
	gone := func() {
		t.Helper()
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the file is still there: %v", err)
		}
	}
	gone()
	if err := d.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, first, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if d, err = start(t, c, &out); err != nil {
		t.Fatal(err)
	}
	gone()
	if out.Len() > 0 {
		t.Errorf("it speaks of a first password: %s", &out)
	}
	login("correct horse battery")
}

// Whatever permissions the state directory had, and whatever umask the director has, nobody else gets at anything in
// it.
func TestTheStateDirectoryIsClosed(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	open := filepath.Join(c.StateDir, "backups", "old.db")
	for _, err := range []error{
		os.MkdirAll(filepath.Dir(open), 0o755), os.WriteFile(open, nil, 0o644), os.Chmod(c.StateDir, 0o755),
		os.Chmod(open, 0o666),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(c.StateDir, "link")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start finds what the first has made
		d, err := start(t, c, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.state().closeState(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(c.StateDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeSymlink != 0 {
			return ignoreGone(err)
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&others != 0 {
			t.Errorf("%s: %s", path, info.Mode())
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("a file outside was changed: %v, %v", info.Mode(), err)
	}
}

// The first password may be given by its hash, so that it is in no file.
func TestTheFirstPasswordByItsHash(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.AdminPasswordHashFile = filepath.Join(t.TempDir(), "hash")
	hash := auth.HashPassword("correct horse battery")
	if err := os.WriteFile(c.AdminPasswordHashFile, []byte(hash+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(client.Config{Server: "https://" + d.Addr().String(), CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Login(t.Context(), "admin", "correct horse battery"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(c.StateDir, oneTimeFile)); !os.IsNotExist(err) {
		t.Errorf("there is a one-time password too: %v", err)
	}
	c.AdminPasswordFile = c.AdminPasswordHashFile
	if fields := director.FieldsOf(c.Validate()); len(fields) != 1 || fields[0].Path != "adminPasswordHashFile" {
		t.Errorf("both files: %v", fields)
	}
}
