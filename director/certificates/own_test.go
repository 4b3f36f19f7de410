package certificates

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
)

// The next authority signs, and the former one goes, only when no node is behind that can be asked.
func TestOwnAuthorityWaitsForNodes(t *testing.T) {
	t.Parallel()
	server, err := pki.EnsureServer(t.TempDir(), []string{"director"}, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	former := server.CA()
	trusts := map[string]string{"a": former, "b": former, "elsewhere": "another registry's"}
	node := func(name string) director.Machine {
		return director.Machine{Name: name, Cluster: "demo", ClusterUID: "u", Kubernetes: "v1.37.1", Address: "10.0.0.1"}
	}
	machines := []director.Machine{node("b"), node("a"), node("elsewhere"), {Name: "comes", Cluster: "demo"}}
	buried := node("buried")
	buried.Deleted = time.Now()
	o := &OwnAuthority{
		Server: server, Log: slog.New(slog.DiscardHandler),
		Machines: func(context.Context) ([]director.Machine, error) { return append(machines, buried), nil },
		Read: func(_ context.Context, m director.Machine, _ string) (string, error) {
			if text, ok := trusts[m.Name]; ok {
				return text, nil
			}
			return "", errors.New("no route to " + m.Name)
		},
	}
	want := func(to pki.Stage, force bool, words ...string) {
		t.Helper()
		s, err := o.Change(t.Context(), to, force)
		if len(words) == 0 && (err != nil || s.Stage != to) {
			t.Errorf("%s: %v", to, err)
		}
		if len(words) > 0 && director.KindOf(err) != director.KindConflict {
			t.Errorf("%s: %v, want a conflict", to, err)
		}
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error()+director.HintOf(err), w) {
				t.Errorf("%s: %v does not say %q", to, err, w)
			}
		}
	}
	want(pki.StageTrust, false)
	want(pki.StageUse, false, "a (trusts the former one alone), b (", "rotate pull-password demo")
	trusts["a"] = server.CA()
	delete(trusts, "b")
	want(pki.StageUse, false, "b (does not say: no route to b)", "--force")
	want(pki.StageUse, true)
	want(pki.StageUse, false) // is there already
	want(pki.StageNone, false, "b (does not say")
	trusts["b"] = server.CA()
	if s, err := o.State(t.Context(), true); err != nil || len(s.Behind) != 0 {
		t.Errorf("behind are %+v, %v", s.Behind, err)
	}
	want(pki.StageNone, false)
	o.Shared = true
	want(pki.StageTrust, false, "by hand")
}
