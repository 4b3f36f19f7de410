package daemon

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// The authority of a running director is changed: images get into its registry in each stage, and a client that trusts
// the former one alone is served until that goes.
func TestDirectorAuthorityIsChanged(t *testing.T) {
	t.Parallel()
	c := simulating(t, demoDocuments)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	api := connect(t, c, d)
	former, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	change := func(stage string) (wire.DirectorAuthority, error) {
		return api.ChangeDirectorAuthority(t.Context(), wire.DirectorAuthorityChange{Stage: stage})
	}
	if _, err := change("use"); director.KindOf(err) != director.KindConflict {
		t.Errorf("use without trust: %v", err)
	}
	for _, stage := range []string{"trust", "trust", "use", "use"} {
		v, err := change(stage)
		if err != nil || v.Stage != stage || len(v.Authorities) != 2 || v.Authorities[1].Signs != (stage == "use") {
			t.Fatalf("%s: %+v, %v", stage, v, err)
		}
		servedWith(t, d, former, true)
	}
	run(t, api, plan.ClusterCreate)
	last, err := change("none")
	if err != nil || last.Stage != "none" || len(last.Authorities) != 1 || last.Trusted == string(former) {
		t.Fatalf("the former one stays: %+v, %v", last, err)
	}
	servedWith(t, d, former, false)
	servedWith(t, d, []byte(last.Trusted), true)
	api = connect(t, c, d)
	wantPlanDone(t, api, scaling(t, api))
	if own := connect(t, c, d); own == nil {
		t.Error("the admin does not get in")
	}
}

// servedWith wants a new client that trusts these authorities to be served, or refuse the director.
func servedWith(t *testing.T, d *Daemon, trusted []byte, want bool) {
	t.Helper()
	api, err := client.New(client.Config{Server: "https://" + d.Addr().String(), CA: trusted})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	_, err = api.DirectorAuthority(t.Context(), false) // without a token
	if served := director.KindOf(err) == director.KindUnauthenticated; served != want {
		t.Errorf("a client is served: %t, want %t: %v", served, want, err)
	}
}
