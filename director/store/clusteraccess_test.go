package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/model"
)

func TestClusterAccess(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		see := func(want clusterAccess) {
			t.Helper()
			got, err := s.clusterAccess(t.Context(), "u1")
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		see(clusterAccess{})
		group, err := s.StartKubeconfigGroup(t.Context(), "u1", "first")
		must(err)
		if group != "first" {
			t.Errorf("the group is %q", group)
		}
		if group, err = s.StartKubeconfigGroup(t.Context(), "u1", "late"); group != "first" || err != nil {
			t.Errorf("a second first group: %q %v", group, err)
		}
		must(s.StartTokenKeys(t.Context(), "u1"))
		see(clusterAccess{TokenKeys: "-", Group: "first"})
		must(s.SetTokenKeys(t.Context(), "u1", "digest"))
		must(s.StartTokenKeys(t.Context(), "u1"))
		must(s.SetKubeconfigGroup(t.Context(), "u1", "second"))
		see(clusterAccess{TokenKeys: "digest", Group: "second"})
		must(s.Update(t.Context(), func(tx *Tx) error { return tx.ForgetCluster("u1", "demo") }))
		see(clusterAccess{})
	})
}

// What is asked of all clusters again and again does not decode each of them.
func TestQuestionsAboutAllClusters(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		err := update(t, s, func(tx *Tx) error {
			for name, repair := range map[string]*model.Repair{
				"off": {}, "on": {Auto: true}, "unsaid": nil, "on-too": {Auto: true},
			} {
				d := model.Document{
					Kind: model.KindCluster, Metadata: model.Metadata{Name: name},
					Cluster: &model.Cluster{Maintenance: model.Maintenance{Repair: repair}},
				}
				if err := tx.PutDocument(d, "admin", time.Unix(1, 0)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		repairing, err := s.SelfRepairing(t.Context())
		var names []string
		for _, d := range repairing {
			names = append(names, d.Metadata.Name)
		}
		if diff := cmp.Diff([]string{"on", "on-too"}, names); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		err = update(t, s, func(tx *Tx) error {
			for i, d := range repairing {
				d.Cluster.Release = "r1"
				err := tx.PutInstalled(Installed{
					UID: d.UID, Name: d.Metadata.Name, Document: d.Document, At: time.Unix(int64(i+1), 0),
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		run, err := s.InstalledReleases(t.Context())
		if diff := cmp.Diff([]string{"r1"}, run); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if err := s.SetTokenKeys(t.Context(), repairing[0].UID, "digest"); err != nil {
			t.Fatal(err)
		}
		if err := s.SetKubeconfigGroup(t.Context(), repairing[1].UID, "group"); err != nil {
			t.Fatal(err)
		}
		keys, err := s.TokenKeys(t.Context())
		if diff := cmp.Diff(map[string]string{"on": "digest"}, keys); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
