package daemon

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

// When no admin can log in, root on the machine gets in through the socket. The password from before, its file and all
// sessions end with it.
func TestRescue(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(filepath.Join(c.StateDir, wire.RescueSocket))
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Fatalf("the socket: %v, %v", info, err)
	}
	ca, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(c.StateDir, oneTimeFile))
	if err != nil {
		t.Fatal(err)
	}
	o, err := client.Rescue(t.Context(), c.StateDir, "admin")
	if err != nil || o.User.Name != "admin" || !o.User.MustChangePassword {
		t.Fatalf("%+v, %v", o.User, err)
	}
	if _, err := os.Stat(filepath.Join(c.StateDir, oneTimeFile)); !os.IsNotExist(err) {
		t.Errorf("the file with the first password is left: %v", err)
	}
	api, err := client.New(client.Config{Server: "https://" + d.Addr().String(), CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if _, err := api.Login(t.Context(), "admin", director.Secret(strings.TrimSpace(string(first)))); err == nil {
		t.Error("the first password is still good")
	}
	if s, err := api.Login(t.Context(), "admin", director.Secret(o.Password)); err != nil || !s.MustChangePassword {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := client.Rescue(t.Context(), c.StateDir, "eve"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("a user that does not exist: %v", err)
	}
	if err := d.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(c.StateDir, wire.RescueSocket)); !os.IsNotExist(err) {
		t.Errorf("the socket outlives the director: %v", err)
	}
	if _, err := client.Rescue(t.Context(), c.StateDir, "admin"); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("without a director: %v", err)
	}
}

// The mode of the socket is not all that holds: the kernel names the process at the other end.
func TestRescueChecksThePeer(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	d := &Daemon{log: slog.New(slog.NewTextHandler(&log, nil))}
	for name, p := range map[string]any{
		"another user": peer{uid: os.Geteuid() + 4711}, "not known": peer{err: io.EOF}, "none": nil,
	} {
		r := httptest.NewRequestWithContext(
			context.WithValue(t.Context(), peerKey{}, p), http.MethodPost, wire.RescuePath,
			strings.NewReader(`{"user":"a"}`),
		)
		w := httptest.NewRecorder()
		d.rescue(nil)(w, r) // nil: nothing may be asked of it
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if strings.Count(log.String(), "BREAK GLASS refused") != 3 {
		t.Errorf("the log is not loud: %s", log.String())
	}
}
