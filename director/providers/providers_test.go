package providers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
)

// A password goes in, is changed, and comes out for whoever logs in with it: never in a list, and never as it is into
// the database.
func TestCredentials(t *testing.T) {
	t.Parallel()
	l := open(t)
	ctx := t.Context()
	first, second := director.Secret("correct-horse-1"), director.Secret("battery-staple-2")
	c, err := l.SetCredentials(ctx, "ann", "vcenter", "kaas@vsphere.local", first)
	if err != nil || c.Revision != 1 || c.By != "ann" || c.Password != "" {
		t.Fatalf("got %+v, %v", c, err)
	}
	read := func(name string) (director.Credentials, error) {
		return l.Vault.Reveal(ctx, name)
	}
	if got, err := read(
		"vcenter",
	); err != nil || got.Password.Reveal() != first.Reveal() || got.User != "kaas@vsphere.local" {
		t.Errorf("got %+v, %v", got, err)
	}
	// A rotation touches neither providers nor clusters.
	before, err := l.db.Documents(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if c, err = l.SetCredentials(
		ctx, "bob", "vcenter", "other@vsphere.local", second,
	); err != nil || c.Revision != 2 || c.By != "bob" {
		t.Fatalf("got %+v, %v", c, err)
	}
	if after, err := l.db.Documents(ctx, ""); err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("documents changed: %v, %+v", err, after)
	}
	if got, err := read("vcenter"); err != nil || got.Password.Reveal() != second.Reveal() {
		t.Errorf("got %+v, %v", got, err)
	}
	list, err := l.ListCredentials(ctx)
	if err != nil || len(list) != 1 || list[0].Password != "" || list[0].Revision != 2 {
		t.Errorf("got %+v, %v", list, err)
	}
	// What is sealed for one name is of no use under another.
	if _, err := l.db.SQL().ExecContext(
		ctx, "INSERT INTO credentials SELECT 'stolen', user_name, sealed, 1, 1, 1, 'eve' FROM credentials",
	); err != nil {
		t.Fatal(err)
	}
	_, err = read("stolen")
	wantKind(t, err, director.KindInternal, "cannot be read", "set them again")
	_, err = read("none")
	wantKind(t, err, director.KindNotFound, "directorctl provider credentials set none")

	files, err := filepath.Glob(filepath.Join(l.dir, "director.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []director.Secret{first, second} {
			if bytes.Contains(text, []byte(secret.Reveal())) {
				t.Errorf("%s holds a password", name)
			}
		}
	}
	_, err = l.SetCredentials(ctx, "ann", "No Name", "", "")
	wantKind(t, err, director.KindInvalid, "name", "user", "password")
	if err := l.DeleteCredentials(ctx, "ann", "vcenter"); err != nil {
		t.Error(err)
	}
	wantKind(t, l.DeleteCredentials(ctx, "ann", "vcenter"), director.KindNotFound)
}

func TestProviderTest(t *testing.T) {
	t.Parallel()
	l := open(t)
	look := func() []string {
		t.Helper()
		probes, err := l.TestProvider(t.Context(), "lab")
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range probes {
			out = append(out, fmt.Sprintf("%s %s %t", p.Host, p.What, p.Err == nil))
		}
		return out
	}
	if diff := cmp.Diff([]string{"h1 connection true", "h2 connection true"}, look()); diff != "" {
		t.Error(diff)
	}
	l.world.SetReachable("h2", false)
	if diff := cmp.Diff([]string{"h1 connection true", "h2 connection false"}, look()); diff != "" {
		t.Error(diff)
	}
	// A back end that cannot say more is asked for its VMs.
	b, err := l.Backends.Backend(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	l.Backends = oneBackend{plainBackend{b}}
	if diff := cmp.Diff([]string{" list VMs false"}, look()); diff != "" {
		t.Error(diff)
	}
	_, err = l.TestProvider(t.Context(), "none")
	wantKind(t, err, director.KindNotFound)
	// A provider that hangs is told of, too.
	l.Backends, l.Testing = oneBackend{b}, 50*time.Millisecond
	l.world.Inject(sim.Fault{Verb: sim.VerbCapacity, Hang: true, Times: -1})
	probes, err := l.TestProvider(t.Context(), "lab")
	if err != nil || len(probes) == 0 {
		t.Fatalf("got %v, %v", probes, err)
	}
	wantKind(t, probes[len(probes)-1].Err, director.KindUnavailable, "within 50ms", "look at the hypervisor")
}

// plainBackend has the five verbs alone.
type plainBackend struct{ b hypervisor.Backend }

func (p plainBackend) Ensure(ctx context.Context, s hypervisor.Spec) (hypervisor.VM, error) {
	return p.b.Ensure(ctx, s)
}

func (p plainBackend) Get(ctx context.Context, id hypervisor.ID) (hypervisor.VM, error) {
	return p.b.Get(ctx, id)
}

func (p plainBackend) List(ctx context.Context, f hypervisor.Filter) ([]hypervisor.VM, error) {
	return p.b.List(ctx, f)
}

func (p plainBackend) SetPower(ctx context.Context, id hypervisor.ID, x hypervisor.Power) error {
	return p.b.SetPower(ctx, id, x)
}

func (p plainBackend) Delete(ctx context.Context, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	return p.b.Delete(ctx, id, o)
}

func (p plainBackend) Close() error { return p.b.Close() }
