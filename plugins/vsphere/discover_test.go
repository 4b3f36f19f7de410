package vsphere

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// What helps to choose: the version, the size of hosts, and the space of datastores.
func TestDiscover(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.open(t)
	defer b.Close()
	vim, err := b.conn.client(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	d, err := b.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Version != vim.ServiceContent.About.FullName {
		t.Errorf("version %q", d.Version)
	}
	for _, i := range d.Items {
		switch i.Kind {
		case hypervisor.FoundHost:
			if i.In != "/DC0/host/DC0_C0" || i.CPUs == 0 || i.Memory == 0 {
				t.Errorf("host %+v", i)
			}
		case hypervisor.FoundDatastore:
			if i.Size == 0 || i.Free == 0 {
				t.Errorf("datastore %+v", i)
			}
		}
	}
}

// A vCenter that takes requests and never answers is unavailable as soon as its caller's time is over.
func TestDiscoverHangs(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	asked := make(chan struct{}, 16)
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-hang
	}))
	t.Cleanup(func() { close(hang); server.Close() })
	f := newFixture(t)
	f.cfg.URL = server.URL + "/sdk"
	f.cfg.Thumbprint = fingerprintOf(t, server.Listener.Addr())
	b := f.open(t)
	defer b.Close()
	ctx, cancel := context.WithTimeoutCause(
		t.Context(), 10*time.Second, director.Errorf(director.KindUnavailable, "test", "too slow"),
	)
	defer cancel()
	go func() {
		<-asked // it is connected, and waits
		cancel()
	}()
	_, err := b.Discover(ctx)
	if director.KindOf(err) != director.KindUnavailable || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("got %v", err)
	}
}

func fingerprintOf(t *testing.T, at net.Addr) string {
	t.Helper()
	f := newFixture(t)
	f.cfg.URL = "https://" + at.String()
	b := f.open(t)
	defer b.Close()
	return b.conn.fingerprint(t.Context())
}
