package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// pushing is a client of the registry of a director.
type pushing struct {
	t   *testing.T
	d   *Daemon
	web *http.Transport
}

func pushTo(t *testing.T, d *Daemon) pushing {
	t.Helper()
	ca, err := os.ReadFile(d.path("tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	web := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(web.CloseIdleConnections)
	return pushing{t, d, web}
}

func (p pushing) options(user, password string) []remote.Option {
	return []remote.Option{
		remote.WithTransport(p.web), remote.WithContext(p.t.Context()),
		remote.WithAuth(&authn.Basic{Username: user, Password: password}),
	}
}

func (p pushing) ref(repository string) name.Reference {
	p.t.Helper()
	ref, err := name.ParseReference(p.d.registryAddr.String() + "/" + repository)
	if err != nil {
		p.t.Fatal(err)
	}
	return ref
}

// push returns the status of a push of another image.
func (p pushing) push(repository, user, password string) int {
	p.t.Helper()
	var img v1.Image
	img, err := random.Image(1<<10, 1)
	if err != nil {
		p.t.Fatal(err)
	}
	return statusOf(p.t, remote.Write(p.ref(repository), img, p.options(user, password)...))
}

func (p pushing) pull(repository, user, password string) int {
	p.t.Helper()
	_, err := remote.Image(p.ref(repository), p.options(user, password)...)
	return statusOf(p.t, err)
}

func statusOf(t *testing.T, err error) int {
	t.Helper()
	e, ok := errors.AsType[*transport.Error](err)
	if err != nil && !ok {
		t.Errorf("no answer: %v", err)
	}
	if !ok {
		return http.StatusOK
	}
	return e.StatusCode
}

// People use the registry with the password or an API token, as their roles and grants say.
func TestPeopleUseTheRegistry(t *testing.T) {
	t.Parallel()
	c := simulating(t, grantDocuments)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, admin, p := t.Context(), connect(t, c, d), pushTo(t, d)
	ann := person(t, c, d, admin, "ann", director.RoleNone)
	person(t, c, d, admin, "bob", director.RoleNone)
	for _, text := range []string{strings.Replace(grantWeb, "ROLE", "operator", 1), grantShop} {
		if err := applied(ctx, admin, text); err != nil {
			t.Fatal(err)
		}
	}
	own := func(who string) string { return "the own password of " + who }
	tokens := map[string]string{}
	for _, scope := range []string{"all", "read", "phases"} {
		made, err := ann.CreateAPIToken(ctx, "", wire.NewToken{Name: scope, Scope: scope, Password: own("ann")})
		if err != nil {
			t.Fatal(err)
		}
		tokens[scope] = made.Token
	}
	for _, one := range []struct {
		repository, user, password string
		push, pull                 int
	}{
		{"projects/web/app:1", "ann", own("ann"), http.StatusOK, http.StatusOK},
		{"projects/web/app:1", "ann", tokens["all"], http.StatusOK, http.StatusOK},
		{"projects/web/app:1", "ann", tokens["read"], http.StatusForbidden, http.StatusOK},
		{"projects/web/app:1", "ann", tokens["phases"], http.StatusNotFound, http.StatusNotFound},
		{"projects/web/app:1", "bob", tokens["all"], http.StatusUnauthorized, http.StatusUnauthorized},
		{"projects/web/app:1", "bob", own("bob"), http.StatusForbidden, http.StatusOK}, // sees a cluster of it
		{"projects/web/app:1", "admin", "correct horse battery", http.StatusOK, http.StatusOK},
		{"projects/other/app:1", "ann", own("ann"), http.StatusNotFound, http.StatusNotFound},
		{"projects/none/app:1", "admin", "correct horse battery", http.StatusNotFound, http.StatusNotFound},
		{"kaas/pause:1", "admin", "correct horse battery", http.StatusForbidden, http.StatusNotFound},
	} {
		if got := p.push(one.repository, one.user, one.password); got != one.push {
			t.Errorf("%s pushes %s: %d, want %d", one.user, one.repository, got, one.push)
		}
		if got := p.pull(one.repository, one.user, one.password); got != one.pull {
			t.Errorf("%s pulls %s: %d, want %d", one.user, one.repository, got, one.pull)
		}
	}
	entries, err := d.services.db.AuditPage(ctx, 0, 1<<40, 1000)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, e := range entries {
		if e.Action == actPushImage {
			seen[e.Actor+" "+e.Object+" "+e.Outcome]++
		}
	}
	if seen["ann Image/projects/web/app ok"] != 2 || seen["bob Image/projects/web/app refused"] == 0 {
		t.Errorf("recorded: %v", seen)
	}
	if _, err := admin.DisableUser(ctx, "bob"); err != nil {
		t.Fatal(err)
	}
	if got := p.pull("projects/web/app:1", "bob", own("bob")); got != http.StatusUnauthorized {
		t.Errorf("a disabled user: %d", got)
	}
	for range 20 { // the limit of logins holds here, too
		if p.pull("projects/web/app:1", "ann", "a wrong password") == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("passwords can be tried without end")
}
