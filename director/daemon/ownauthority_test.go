package daemon

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// The authority of a running director is changed: images get into its registry in each stage, and a client that trusts
// the former one alone is served until that goes.
func TestDirectorAuthorityIsChanged(t *testing.T) {
	t.Parallel()
	c := simulating(t, demoDocuments)
	d, api := opened(t, c)
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

// Two directors on one database change their authority together, asked by turns. One that was away takes what it has
// missed when it starts.
func TestDirectorsAuthorityIsChanged(t *testing.T) {
	t.Parallel()
	var config Config
	first, second := peersOf(t, func(_, two *Config) { config = *two })
	former, err := os.ReadFile(first.path("tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	follows := func(d *Daemon, stage pki.Stage) {
		t.Helper()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			s, err := d.services.own.State(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			if s.Stage == stage && len(s.Directors) == 2 && len(s.Waiting()) == 0 {
				return
			}
			<-tick.C
		}
	}
	if _, err := first.services.own.Change(t.Context(), pki.StageTrust, false); err != nil {
		t.Fatal(err)
	}
	follows(second, pki.StageTrust)
	both := first.services.own.Server.CA()
	next := []byte(strings.TrimPrefix(both, string(former)))
	if _, err := second.services.own.Change(t.Context(), pki.StageUse, false); err != nil {
		t.Fatal(err)
	}
	follows(first, pki.StageUse)
	for _, d := range []*Daemon{first, second} {
		servedWith(t, d, former, true)
		servedWith(t, d, next, true)
	}
	const play = "play/install"
	runOf(t, second.services.db, first.peers.instance, play)
	path := first.services.journal.LogPath("p1", play, 1)
	err = errors.Join(
		os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{\"msg\":\"one\"}\n"), 0o600),
		second.Stop(t.Context()),
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.services.own.Change(t.Context(), pki.StageNone, false); err != nil {
		t.Fatal(err)
	}
	servedWith(t, first, former, false)
	again, err := start(t, config, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	follows(again, pki.StageNone)
	servedWith(t, again, former, false)
	servedWith(t, again, next, true)
	heard(t, again, first)
	w, err := again.services.journal.LogLines(t.Context(), "p1", journal.LogQuery{Step: play, Attempt: 1, Limit: 10})
	if err != nil || w.Total != 1 {
		t.Errorf("one director does not trust the other any more: %+v, %v", w, err)
	}
}
