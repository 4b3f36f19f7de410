package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/model"
)

// What was installed is recorded, and recorded again by a step that is repeated.
func TestInstalled(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		want := Installed{
			UID: "u1", Name: "demo", Generation: 1, Endpoint: "10.0.0.1:6443", At: time.Unix(7, 0).UTC(),
			Document: model.Document{
				Kind: model.KindCluster, Metadata: model.Metadata{Name: "demo"}, Cluster: &model.Cluster{Release: "r"},
			},
		}
		other := want
		other.UID, other.Name = "u2", "other"
		for _, i := range []Installed{want, other, want} {
			if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutInstalled(i) }); err != nil {
				t.Fatal(err)
			}
		}
		want.Generation, want.Endpoint = 2, "10.0.0.2:6443"
		if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutInstalled(want) }); err != nil {
			t.Fatal(err)
		}
		for name, w := range map[string]Installed{"demo": want, "other": other} {
			got, found, err := s.Installed(t.Context(), name)
			if err != nil || !found || got.UID != w.UID || got.Generation != w.Generation || !got.At.Equal(w.At) {
				t.Errorf("%s: %+v %v %v", name, got, found, err)
			}
			if diff := cmp.Diff(w.Endpoint, got.Endpoint); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		// A cluster of the same name that was deleted has left its record and its keys.
		if _, err := s.AddSecret(t.Context(), "u1", "pki", []byte("old")); err != nil {
			t.Fatal(err)
		}
		later := want
		later.UID = "u3"
		if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutInstalled(later) }); err != nil {
			t.Fatal(err)
		}
		if got, found, err := s.Installed(t.Context(), "demo"); err != nil || !found || got.UID != "u3" {
			t.Errorf("the record of a later cluster: %+v %v %v", got, found, err)
		}
		if sealed, err := s.Secret(t.Context(), "u1", "pki"); sealed != nil || err != nil {
			t.Errorf("the keys of the former cluster are left: %q %v", sealed, err)
		}
	})
}
