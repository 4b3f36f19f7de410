package vsphere

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// sessions returns the sessions of directors at the simulator.
func (f *fixture) sessions(t *testing.T) []types.UserSession {
	t.Helper()
	var manager mo.SessionManager
	if err := f.Admin.RetrieveOne(
		context.Background(), *f.Admin.ServiceContent.SessionManager, []string{"sessionList"}, &manager,
	); err != nil {
		t.Fatal(err)
	}
	var ours []types.UserSession
	for _, s := range manager.SessionList {
		if s.UserAgent == userAgent {
			ours = append(ours, s)
		}
	}
	return ours
}

// endSessions is what vCenter does to an idle session, or an administrator to any.
func (f *fixture) endSessions(t *testing.T) {
	t.Helper()
	var keys []string
	for _, s := range f.sessions(t) {
		keys = append(keys, s.Key)
	}
	if _, err := methods.TerminateSession(context.Background(), f.Admin, &types.TerminateSession{
		This: *f.Admin.ServiceContent.SessionManager, SessionId: keys,
	}); err != nil {
		t.Fatal(err)
	}
}

// One session serves any number of operations, from any number of callers, also when vCenter ends it again and again.
func TestOneSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	vm, err := b.Ensure(t.Context(), f.spec())
	if err != nil {
		t.Fatal(err)
	}
	const callers, rounds = 10, 100
	for part := range 4 {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range rounds / 4 {
					if got, err := b.Get(t.Context(), vm.ID); err != nil || got.ID != vm.ID {
						t.Errorf("Get: %+v, %v", got, err)
					}
				}
			})
		}
		wg.Wait()
		if got := f.sessions(t); len(got) != 1 {
			t.Fatalf("part %d: %d sessions, want 1", part, len(got))
		}
		f.endSessions(t)
	}
	// Every kind of call finds its way back.
	s := f.spec()
	for _, call := range []func() error{
		func() error { _, err := b.Ensure(t.Context(), s); return err },
		func() error { _, err := b.List(t.Context(), hypervisor.Filter{Director: s.Key.Director}); return err },
		func() error { _, err := b.ListVolumes(t.Context(), s.Key.Director); return err },
		func() error { _, err := b.Capacity(t.Context()); return err },
		func() error { _, err := b.Discover(t.Context()); return err },
		func() error {
			return b.Delete(t.Context(), hypervisor.ID(
				vmUUID(s.Key),
			), hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true})
		},
	} {
		if err := call(); err != nil {
			t.Errorf("after a forced logout: %v", err)
		}
		if got := f.sessions(t); len(got) != 1 {
			t.Errorf("%d sessions after a forced logout, want 1", len(got))
		}
		f.endSessions(t)
	}
	if _, err := b.Get(t.Context(), vm.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.sessions(t); len(got) != 0 {
		t.Errorf("%d sessions after Close, want none", len(got))
	}
	if _, err := b.Get(t.Context(), vm.ID); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("Get after Close: %v", err)
	}
}

// An idle session gives signs of life by itself.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.cfg.KeepAlive = 5 * time.Millisecond
	b := f.open(t)
	defer b.Close()
	if _, err := b.conn.client(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	calls := func() int64 { return f.sessions(t)[0].CallCount }
	for first := calls(); calls() < first+5; {
		if t.Context().Err() != nil {
			t.Fatal("no sign of life")
		}
	}
	f.endSessions(t)
	for len(f.sessions(t)) != 1 { // a sign of life logs in again
		if t.Context().Err() != nil {
			t.Fatal("no new session")
		}
	}
}

// Whatever stands in the way of a session is said with what to do, and never with the password.
func TestNoSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	web := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	closed := httptest.NewTLSServer(nil)
	closed.Close()
	host := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "https://") }
	bad := t.TempDir() + "/ca.pem"
	link, fifo := filepath.Join(filepath.Dir(bad), "link"), filepath.Join(filepath.Dir(bad), "fifo")
	if err := errors.Join(
		os.WriteFile(bad, []byte("no certificate"), 0o600), os.Symlink("/etc/hostname", link),
		syscall.Mkfifo(fifo, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	const wrong = "hunter2-the-wrong-one"
	for name, tt := range map[string]struct {
		change func(*Config)
		kind   director.Kind
		want   []string
	}{
		"certificate": {
			func(c *Config) { c.Thumbprint = "" }, director.KindInvalid,
			[]string{"not trusted", "spec.vsphere.thumbprint", f.cfg.Thumbprint},
		},
		"another certificate": {
			func(c *Config) { c.Thumbprint = strings.Repeat("AB:", 31) + "CD" }, director.KindInvalid,
			[]string{"another certificate", f.cfg.Thumbprint},
		},
		"authority": {
			func(c *Config) { c.Thumbprint, c.CAFile, c.Files = "", bad, confine.Dirs{filepath.Dir(bad)} },
			director.KindInvalid,
			[]string{"caFile"},
		},
		"authority elsewhere": {
			func(c *Config) { c.Thumbprint, c.CAFile, c.Files = "", "/etc/shadow", confine.Dirs{filepath.Dir(bad)} },
			director.KindInvalid,
			[]string{"spec.vsphere.caFile", "providerFiles", "/etc/shadow"},
		},
		"authority behind a link": {
			func(c *Config) { c.Thumbprint, c.CAFile, c.Files = "", link, confine.Dirs{filepath.Dir(bad)} },
			director.KindInvalid,
			[]string{"spec.vsphere.caFile", "leads out of"},
		},
		"authority in a FIFO": {
			func(c *Config) { c.Thumbprint, c.CAFile, c.Files = "", fifo, confine.Dirs{filepath.Dir(bad)} },
			director.KindInvalid,
			[]string{"caFile"},
		},
		"password": {
			func(c *Config) {
				c.Credentials = func(context.Context) (string, director.Secret, error) { return account, wrong, nil }
			}, director.KindInvalid, []string{"password of " + account, "locks accounts"},
		},
		"no password": {
			func(c *Config) {
				c.Credentials = func(context.Context) (string, director.Secret, error) {
					return "", "", director.Errorf(director.KindNotFound, "test", "no file")
				}
			}, director.KindNotFound, []string{"no file"},
		},
		"no vCenter": {
			func(c *Config) { c.URL, c.Thumbprint = host(web), soap.ThumbprintSHA256(web.Certificate()) },
			director.KindInvalid,
			[]string{"no vCenter", "spec.vsphere.url"},
		},
		"nobody": {
			func(c *Config) { c.URL = host(closed) }, director.KindUnavailable, []string{"does not answer", "443"},
		},
		"no name": {
			func(c *Config) { c.URL = "vcenter.invalid" }, director.KindUnavailable,
			[]string{"vcenter.invalid", "spec.vsphere.url"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := *f
			tt.change(&x.cfg)
			b := x.open(t)
			defer b.Close()
			_, err := b.List(t.Context(), hypervisor.Filter{Director: "d"})
			text := fmt.Sprintf("%v (%s) %#v", err, director.HintOf(err), err)
			if director.KindOf(err) != tt.kind {
				t.Errorf("kind %s, want %s: %s", director.KindOf(err), tt.kind, text)
			}
			for _, w := range tt.want {
				if !strings.Contains(text, w) {
					t.Errorf("%s\nsays nothing of %q", text, w)
				}
			}
			if strings.Contains(text, wrong) || strings.Contains(text, password) {
				t.Errorf("the password is in the error: %s", text)
			}
		})
	}
}

// vCenter locks accounts after a few wrong passwords: the same one is not tried again for a while, another one at once.
func TestWrongPasswordIsTriedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tried, secret, clock := 0, director.Secret("wrong"), time.Now()
	f.cfg.Credentials = func(context.Context) (string, director.Secret, error) { return account, secret, nil }
	b := f.open(t)
	defer b.Close()
	b.conn.now = func() time.Time { return clock }
	b.conn.around = func(inner soap.RoundTripper) soap.RoundTripper {
		return roundTrip(func(ctx context.Context, req, res soap.HasFault) error {
			if _, login := req.(*methods.LoginBody); login {
				tried++
			}
			return inner.RoundTrip(ctx, req, res)
		})
	}
	get := func() director.Kind {
		_, err := b.Get(t.Context(), "1c1e5d4a-0000-0000-0000-000000000000")
		return director.KindOf(err)
	}
	for range 5 {
		if got := get(); got != director.KindInvalid {
			t.Errorf("kind %s", got)
		}
	}
	if tried != 1 {
		t.Errorf("the wrong password was tried %d times", tried)
	}
	clock = clock.Add(2 * refusedFor)
	get()
	if tried != 2 {
		t.Errorf("tried %d times after a while, want 2", tried)
	}
	secret = password
	if got := get(); got != director.KindNotFound || tried != 3 {
		t.Errorf("with the right password: %s after %d tries", got, tried)
	}
}

// roundTrip is a function between a back end and its vCenter.
type roundTrip func(ctx context.Context, req, res soap.HasFault) error

// RoundTrip implements soap.RoundTripper.
func (r roundTrip) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	return r(ctx, req, res)
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	_, err := Open(Config{URL: "https://root:hunter2@vc", Thumbprint: "x", Clone: "instant", Firmware: "uefi"})
	text := fmt.Sprint(err)
	for _, w := range []string{
		"url: ", "thumbprint: ", "credentials: ", "datacenter: ", "cluster: ", "datastores: ", "clone: ", "firmware: ",
	} {
		if !strings.Contains(text, w) {
			t.Errorf("%s\nsays nothing of %q", text, w)
		}
	}
	if strings.Contains(text, "hunter2") || director.KindOf(err) != director.KindInvalid {
		t.Errorf("%s", text)
	}
}
