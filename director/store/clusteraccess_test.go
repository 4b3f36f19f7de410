package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClusterAccess(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		see := func(want ClusterAccess) {
			t.Helper()
			got, err := s.ClusterAccess(t.Context(), "u1")
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
		see(ClusterAccess{})
		group, err := s.StartKubeconfigGroup(t.Context(), "u1", "first")
		must(err)
		if group != "first" {
			t.Errorf("the group is %q", group)
		}
		if group, err = s.StartKubeconfigGroup(t.Context(), "u1", "late"); group != "first" || err != nil {
			t.Errorf("a second first group: %q %v", group, err)
		}
		must(s.StartTokenKeys(t.Context(), "u1"))
		see(ClusterAccess{TokenKeys: "-", Group: "first"})
		must(s.SetTokenKeys(t.Context(), "u1", "digest"))
		must(s.StartTokenKeys(t.Context(), "u1"))
		must(s.SetKubeconfigGroup(t.Context(), "u1", "second"))
		see(ClusterAccess{TokenKeys: "digest", Group: "second"})
		must(s.Update(t.Context(), func(tx *Tx) error { return tx.ForgetCluster("u1", "demo") }))
		see(ClusterAccess{})
	})
}
