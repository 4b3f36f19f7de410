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
		return director.Machine{
			Name: name, Cluster: "demo", ClusterUID: "u", Kubernetes: "v1.37.1",
			Address: "10.0.0.1",
		}
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
}

// common is what directors share of their authority.
type common struct {
	now      pki.Succession
	revision string
	took     map[string]string // revisions, by director
}

// of is the view of one director.
type of struct {
	*common
	name string
}

func (c of) Load(context.Context) (pki.Succession, string, error) { return c.now, c.revision, nil }

func (c of) Save(_ context.Context, former string, next pki.Succession) error {
	if former != c.revision {
		return director.Errorf(director.KindConflict, "test", "another director was quicker")
	}
	c.now, c.revision = next, next.Revision()
	return nil
}

func (c of) Followed(_ context.Context, revision string) error {
	c.took[c.name] = revision
	return nil
}

func (c of) Followers(_ context.Context, revision string) (all []Follower, _ error) {
	for name, took := range c.took {
		all = append(all, Follower{name, took == revision})
	}
	return all, nil
}

// No stage begins before all directors on the database are in the one before it, and the one that is changed from is no
// matter.
func TestDirectorsChangeTheirAuthorityTogether(t *testing.T) {
	t.Parallel()
	open := func(dir string) *pki.Server {
		t.Helper()
		s, err := pki.EnsureServer(dir, []string{"director"}, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one := open(t.TempDir())
	shared, err := one.Succession()
	if err != nil {
		t.Fatal(err)
	}
	two := open(t.TempDir())
	if err := two.Follow(shared); err != nil {
		t.Fatal(err)
	}
	c := &common{took: map[string]string{"one": "", "two": ""}}
	owned := func(s *pki.Server, name string) *OwnAuthority {
		return &OwnAuthority{
			Server: s, Log: slog.New(slog.DiscardHandler), Common: of{c, name},
			Machines: func(context.Context) ([]director.Machine, error) { return nil, nil },
		}
	}
	first, second := owned(one, "one"), owned(two, "two")
	takes := []*OwnAuthority{first, second, first}
	for i, to := range []pki.Stage{pki.StageTrust, pki.StageUse, pki.StageNone} {
		leader, other := takes[i], []*OwnAuthority{second, first, second}[i]
		if s, err := leader.Change(t.Context(), to, false); err != nil || s.Stage != to || len(s.Waiting()) != 1 {
			t.Fatalf("%s: %+v, %v", to, s, err)
		}
		next := []pki.Stage{pki.StageUse, pki.StageNone, pki.StageTrust}[i]
		_, err := leader.Change(t.Context(), next, true) // no force leaves a director behind
		if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "have not followed yet") {
			t.Errorf("%s before all are at %s: %v", next, to, err)
		}
		if err := other.Follow(t.Context()); err != nil || other.Server.CA() != leader.Server.CA() {
			t.Errorf("%s: a director does not follow: %v", to, err)
		}
		s, err := other.State(t.Context(), true)
		if err != nil || s.Stage != to || len(s.Directors) != 2 || len(s.Waiting()) > 0 {
			t.Errorf("%s: the other director says %+v, %v", to, s, err)
		}
	}
	if one.CA() == shared.CA {
		t.Error("the former authority is still there")
	}
}
