package apitest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/director-kaas/kaas/director/store"
)

// empty is the file of an empty database. To make one takes a transaction for each migration.
var empty = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "apitest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "director.db")
	db, err := store.Open(context.Background(), path, slog.New(slog.DiscardHandler))
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// OpenStore opens an empty database for users, and closes it with the test.
func OpenStore(t testing.TB) *store.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "director.db")
	text, err := empty()
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
