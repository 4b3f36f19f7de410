package daemon

import (
	"database/sql"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// The audit trail says who tried what, from where and with which outcome. What it tells of a document is the
// difference.
func TestAuditTrailOfRequests(t *testing.T) {
	t.Parallel()
	c := simulating(t, demoDocuments)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	api := connect(t, c, d)
	_, err = api.Login(t.Context(), "eve\x1b[2J", "wrong password")
	if director.KindOf(err) != director.KindUnauthenticated {
		t.Fatal(err)
	}
	last := demoDocuments[strings.LastIndex(demoDocuments, "---\n"):]
	if _, err := api.Apply(t.Context(), []byte(strings.Replace(last, "count: 3", "count: 4", 1)), "x", false); err != nil {
		t.Fatal(err)
	}
	if err := api.DeleteDocument(
		t.Context(), model.Ref{Kind: model.KindCluster, Name: "no-such"},
	); err == nil {
		t.Fatal("a cluster that does not exist was deleted")
	}
	db, err := sql.Open("sqlite3", filepath.Join(c.StateDir, "director.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, where := range map[string]string{
		"login":         "actor = 'admin' AND action = 'login' AND outcome = 'ok'",
		"refused login": "actor = '' AND action = 'login' AND object = 'User/eve??2J' AND outcome = 'refused'",
		"apply": "actor = 'admin' AND action = 'apply' AND object = 'Cluster/demo' AND outcome = 'ok' " +
			"AND diff LIKE '%count: 4%'",
		"delete": "actor = 'admin' AND object = 'Cluster/no-such' AND outcome = 'failed' AND problem = 'not_found'",
	} {
		var n int
		err := db.QueryRowContext(
			t.Context(), "SELECT count(*) FROM audit WHERE source = '127.0.0.1' AND request <> '' AND seq > 0 AND "+where,
		).Scan(&n)
		if err != nil || n == 0 {
			t.Errorf("%s: %d entries, %v", name, n, err)
		}
	}
	if r, err := d.services.audit.Verify(t.Context()); err != nil || !r.Good() || r.Entries < 4 {
		t.Errorf("%+v, %v", r, err)
	}
}
