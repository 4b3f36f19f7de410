package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// clustersNamed stores clusters, and returns their uids by their names.
func clustersNamed(t *testing.T, s *Store, names ...string) map[string]string {
	t.Helper()
	uids := map[string]string{}
	err := update(t, s, func(tx *Tx) error {
		for _, name := range names {
			d := model.Document{
				Kind: model.KindCluster, Metadata: model.Metadata{Name: name}, Cluster: &model.Cluster{},
			}
			if err := tx.PutDocument(d, "admin", time.Unix(1, 0)); err != nil {
				return err
			}
		}
		docs, err := tx.Documents()
		for _, d := range docs {
			uids[d.Metadata.Name] = d.UID
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return uids
}

func TestUnlooked(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		uids := clustersNamed(t, s, "a", "b", "c")
		unlooked := func(since int64, want ...string) {
			t.Helper()
			var got []string
			all, err := s.Unlooked(t.Context(), time.Unix(since, 0))
			for _, u := range all {
				if got = append(got, u.Name); u.UID != uids[u.Name] {
					t.Errorf("%+v", u)
				}
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%d: %v, %v, want %v", since, got, err, want)
			}
		}
		claim := func(names string, since, now int64, want string) {
			t.Helper()
			var asked, got []string
			for _, name := range strings.Fields(names) {
				asked = append(asked, uids[name])
			}
			mine, err := s.ClaimSights(t.Context(), asked, time.Unix(since, 0), time.Unix(now, 0))
			for _, name := range strings.Fields(names) {
				if mine[uids[name]] {
					got = append(got, name)
				}
			}
			if err != nil || strings.Join(got, " ") != want || len(mine) != len(got) {
				t.Errorf("of %q: %v, %v, want %q", names, mine, err, want)
			}
		}
		unlooked(100, "a", "b", "c")
		claim("b", 100, 160, "b")
		claim("b", 100, 161, "")
		claim("", 100, 161, "")
		unlooked(100, "a", "c")
		claim("a b", 150, 210, "a")
		unlooked(220, "c", "b", "a")
		unlooked(200, "c", "b")
	})
}

// Directors that claim the same clusters in different orders at once share them out.
func TestClaimsAtOnce(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		var uids []string
		for i := range 200 {
			uids = append(uids, fmt.Sprintf("u%03d", i))
		}
		var mu sync.Mutex
		claimed := map[string]int{}
		for round := range int64(5) {
			now := time.Unix(100*(round+1), 0)
			var all sync.WaitGroup
			for d := range 4 {
				order := slices.Clone(uids)
				if d%2 == 1 {
					slices.Reverse(order)
				}
				all.Go(func() {
					for some := range slices.Chunk(order, 50) {
						mine, err := s.ClaimSights(t.Context(), some, now.Add(-time.Minute), now)
						if err == nil {
							err = s.SeenAgain(t.Context(), some, now)
						}
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						for uid := range mine {
							claimed[uid]++
						}
						mu.Unlock()
					}
				})
			}
			all.Wait()
			for _, uid := range uids {
				if claimed[uid] != int(round)+1 {
					t.Fatalf("round %d: %s was claimed %d times in all", round, uid, claimed[uid])
				}
			}
		}
	})
}

// A cluster that answered as before is seen again; one that could not be asked is not.
func TestSeenAgain(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		uids := clustersNamed(t, s, "a", "b")
		err := update(t, s, func(tx *Tx) (err error) {
			for name, uid := range uids {
				err = errors.Join(err, tx.IntendMachine(director.Machine{
					ID: name, ClusterUID: uid, Cluster: name, Name: name + "-1", Role: director.RoleWorker,
					Network: "n", Address: name,
				}, time.Unix(1, 0)), tx.SaveSights(
					uid, []NodeSight{{Machine: name, State: "ready"}}, nil, time.Unix(100, 0),
					map[string]string{"b": "it does not answer"}[name],
				))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{160, 150} { // the second is late
			if err := s.SeenAgain(t.Context(), []string{uids["a"], uids["b"]}, time.Unix(at, 0)); err != nil {
				t.Fatal(err)
			}
		}
		nodes, _, err := s.NodePage(t.Context(), NodeQuery{}, director.Page{Sort: "name"})
		if err != nil || len(nodes) != 2 || !nodes[0].Seen.Equal(time.Unix(160, 0)) || !nodes[1].Seen.IsZero() {
			t.Errorf("%+v, %v", nodes, err)
		}
		sights, unseen, err := s.Sights(t.Context(), uids["b"])
		if err != nil || unseen != "it does not answer" || sights["b"].State != "ready" {
			t.Errorf("%+v, %q, %v", sights, unseen, err)
		}
	})
}

func TestMembers(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		if got, err := s.Members(t.Context()); err != nil || len(got) > 0 {
			t.Errorf("an empty ledger: %v, %v", got, err)
		}
		err := update(t, s, func(tx *Tx) error {
			for i := range 4 {
				if err := tx.IntendMachine(director.Machine{
					ID: fmt.Sprintf("m%d", i), ClusterUID: "u1", Cluster: "c1", Name: fmt.Sprintf("c1-%d", 9-i),
					Role: director.RoleWorker, Network: "n", Address: fmt.Sprintf("10.0.0.%d", i),
				}, time.Unix(1, 0)); err != nil {
					return err
				}
			}
			return tx.SetMembers("u1", []string{"c1-9", "c1-8", "c1-7"}, "v1.37.1")
		})
		if err == nil {
			err = s.BuryMachine(t.Context(), "m0", time.Unix(2, 0))
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Members(t.Context())
		if diff := cmp.Diff([]director.Member{
			{ClusterUID: "u1", Cluster: "c1", Name: "c1-7", Address: "10.0.0.2"},
			{ClusterUID: "u1", Cluster: "c1", Name: "c1-8", Address: "10.0.0.1"},
		}, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
	})
}
