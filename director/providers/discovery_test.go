package providers

import (
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
)

func TestDiscover(t *testing.T) {
	t.Parallel()
	l := open(t)
	ctx := t.Context()
	d, err := l.Discover(ctx, "lab")
	if err != nil || d.Version == "" || len(d.Items) != 6 || d.Items[0].Kind != hypervisor.FoundHost ||
		d.Items[0].Name != "h1" {
		t.Errorf("got %+v, %v", d, err)
	}
	l.world.SetReachable("h2", false)
	d, err = l.Discover(ctx, "lab")
	if err != nil || len(d.Items) != 3 || len(d.Unseen) != 1 || d.Unseen[0].Host != "h2" {
		t.Errorf("got %+v, %v", d, err)
	}
	_, err = l.Discover(ctx, "none")
	wantKind(t, err, director.KindNotFound)
	l.put(t, `kind: Provider
metadata: {name: vc}
spec: {type: vsphere, vsphere: {url: vcenter.example.org, credentials: missing, datacenter: d, cluster: c, `+
		`datastores: [s]}}
`)
	_, err = l.Discover(ctx, "vc")
	wantKind(t, err, director.KindNotFound, "directorctl provider credentials set missing")
	b, err := l.Backends.Backend(ctx, "lab")
	if err != nil {
		t.Fatal(err)
	}
	l.Backends = oneBackend{plainBackend{b}}
	_, err = l.Discover(ctx, "lab")
	wantKind(t, err, director.KindInvalid, "does not tell")
}

// A provider that hangs for longer than anyone waits holds up whoever asks it for as long as was said, and no other
// provider.
func TestDiscoverHangs(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.Patience = 50 * time.Millisecond
	l.world.Inject(sim.Fault{Verb: sim.VerbDiscover, Hang: true, Times: -1})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, err := l.Discover(t.Context(), "lab")
			if director.KindOf(err) != director.KindUnavailable {
				t.Errorf("got %v", err)
				return
			}
			wantKind(t, err, director.KindUnavailable, "does not answer within 50ms", "directorctl provider test lab")
		})
	}
	wg.Wait()
	if n := l.world.Calls(sim.VerbDiscover); n > 3 {
		t.Errorf("%d calls", n)
	}
	l.world.ClearFaults()
	l.Patience = time.Minute
	if _, err := l.Discover(t.Context(), "lab"); err != nil {
		t.Error(err)
	}
}
