package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func TestProviderImages(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) { testProviderImages(t, open()) })
}

func testProviderImages(t *testing.T, s *Store) {
	ctx := t.Context()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	old := director.ProviderImage{
		Provider: "lab", Name: "node-aaaaaaaaaaaa", Image: "node", SHA256: "aaaaaaaaaaaa", At: at,
	}
	moved := director.ProviderImage{
		Provider: "lab", Name: "node-bbbbbbbbbbbb", Image: "node", SHA256: "bbbbbbbbbbbb", At: at,
	}
	other := director.ProviderImage{
		Provider: "attic", Name: "node-bbbbbbbbbbbb", Image: "node", SHA256: "bbbbbbbbbbbb", At: at,
	}
	for _, i := range []director.ProviderImage{old, moved, other} {
		for range 2 {
			if err := s.NoteImage(ctx, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := func(want ...director.ProviderImage) {
		t.Helper()
		got, err := s.ProviderImages(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	want(other, old, moved)
	for range 2 {
		if err := s.ForgetImage(ctx, "lab", old.Name); err != nil {
			t.Fatal(err)
		}
	}
	want(other, moved)
}
