package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
)

// The password of a vCenter is read again at every login, from a file that nobody else can read, and is in no error.
func TestVSphereCredentials(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	credentials := vsphereCredentials(
		"vc", model.VSphere{User: "kaas@vsphere.local", PasswordFile: file}, nil, confine.Dirs{filepath.Dir(file)},
	)
	for i, step := range []struct {
		text string
		mode os.FileMode
		kind director.Kind // of the error; empty for none
		want string
	}{
		{"", 0, director.KindNotFound, ""},
		{"hunter2\n", 0o644, director.KindInvalid, ""},
		{"hunter2\n", 0o600, "", "hunter2"},
		{" with space \r\n", 0o600, "", " with space "},
		{"\n", 0o600, director.KindInvalid, ""},
	} {
		if step.mode != 0 {
			if err := os.WriteFile(file, []byte(step.text), step.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, step.mode); err != nil {
				t.Fatal(err)
			}
		}
		user, password, err := credentials(t.Context())
		switch {
		case step.kind == "" && (err != nil || user != "kaas@vsphere.local" || password.Reveal() != step.want):
			t.Errorf("step %d: %q, %v", i, password.Reveal(), err)
		case step.kind != "" &&
			(director.KindOf(err) != step.kind || err == nil || director.HintOf(err) == "" ||
				strings.Contains(fmt.Sprintf("%v %#v", err, err), "hunter2")):
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// A password is read from a file below the configured directories alone, whatever the document says, and never from a
// FIFO or through a link.
func TestVSpherePasswordFileIsConfined(t *testing.T) {
	t.Parallel()
	in, out := t.TempDir(), t.TempDir()
	secret, link, fifo, long := filepath.Join(out, "secret"), filepath.Join(in, "link"), filepath.Join(in, "fifo"),
		filepath.Join(in, "long")
	if err := errors.Join(
		os.WriteFile(secret, []byte("hunter2"), 0o600), os.Symlink(secret, link), syscall.Mkfifo(fifo, 0o600),
		os.WriteFile(long, bytes.Repeat([]byte("x"), 5000), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		secret: "spec.vsphere.passwordFile", link: "leads out of", fifo: "cannot be read", long: "more than",
	} {
		_, password, err := vsphereCredentials("vc", model.VSphere{
			User: "u", PasswordFile: file,
		}, nil, confine.Dirs{in})(t.Context())
		if text := fmt.Sprintf(
			"%v", err,
		); director.KindOf(err) != director.KindInvalid || !strings.Contains(text, want) ||
			strings.Contains(text, "hunter2") || password != "" {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Sealed credentials are opened at every login too, and their name and errors pass.
func TestVSphereSealedCredentials(t *testing.T) {
	t.Parallel()
	sealed := map[string]director.Credentials{"vcenter": {Name: "vcenter", User: "kaas@vsphere.local", Password: "one"}}
	credentials := vsphereCredentials("vc", model.VSphere{
		Credentials: "vcenter",
	}, func(_ context.Context, _ string, s model.VSphere) (director.Credentials, error) {
		c, found := sealed[s.Credentials]
		if !found {
			return c, director.Errorf(
				director.KindNotFound, "planning.credentials", "there are no credentials %q", s.Credentials,
			)
		}
		return c, nil
	}, nil)
	for _, want := range []director.Credentials{
		{User: "kaas@vsphere.local", Password: "one"}, {User: "other@vsphere.local", Password: "two"},
	} {
		sealed["vcenter"] = want
		if user, password, err := credentials(t.Context()); err != nil || user != want.User ||
			password != want.Password {
			t.Errorf("%q, %q, %v; want %q", user, password.Reveal(), err, want.User)
		}
	}
	delete(sealed, "vcenter")
	if _, password, err := credentials(t.Context()); director.KindOf(err) != director.KindNotFound || password != "" {
		t.Errorf("of credentials that are gone: %v", err)
	}
}

// A provider's document is opened without a connection, and what is wrong with it is said.
func TestOpenVSphere(t *testing.T) {
	t.Parallel()
	open := openReal(nil, confine.Rules{}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	p := model.Provider{Type: model.ProviderVSphere, VSphere: &model.VSphere{
		URL: "https://vcenter.invalid", User: "u", PasswordFile: "/p", Datacenter: "DC", Cluster: "C",
		Datastores: []string{"ds"},
	}}
	b, err := open("vc", p)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	p.VSphere.Clone = "instant"
	if _, err := open("vc", p); director.KindOf(err) != director.KindInvalid {
		t.Errorf("clone: instant: %v", err)
	}
}
