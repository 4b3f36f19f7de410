package daemon

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// The audit trail says who tried what, from where and with which outcome. What it tells of a document is the
// difference.
func TestAuditTrailOfRequests(t *testing.T) {
	t.Parallel()
	c := simulating(t, demoDocuments)
	_, api := opened(t, c)
	_, err := api.Login(t.Context(), "eve\x1b[2J", "wrong password")
	if director.KindOf(err) != director.KindUnauthenticated {
		t.Fatal(err)
	}
	last := demoDocuments[strings.LastIndex(demoDocuments, "---\n"):]
	if _, err := api.Apply(t.Context(), []byte(strings.Replace(last, "count: 3", "count: 4", 1)),
		"x", false); err != nil {
		t.Fatal(err)
	}
	if err := api.DeleteDocument(t.Context(), model.Ref{Kind: model.KindCluster, Name: "no-such"}); err == nil {
		t.Fatal("a cluster that does not exist was deleted")
	}
	db, err := sql.Open("sqlite3", filepath.Join(c.StateDir, "director.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, where := range map[string]string{
		"login":         "actor = 'admin' AND action = 'login' AND outcome = 'ok'",
		"refused login": "actor = '' AND action = 'login' AND object = 'User/eve??2j' AND outcome = 'refused'",
		"apply": "actor = 'admin' AND action = 'apply' AND object = 'Cluster/demo' AND outcome = 'ok' " +
			"AND diff LIKE '%count: 4%'",
		"delete": "actor = 'admin' AND object = 'Cluster/no-such' AND outcome = 'failed' AND problem = 'not_found'",
	} {
		var n int
		err := db.QueryRowContext(
			t.Context(), "SELECT count(*) FROM audit WHERE source = '127.0.0.1' AND request <> '' AND seq > 0 AND "+
				where,
		).Scan(&n)
		if err != nil || n == 0 {
			t.Errorf("%s: %d entries, %v", name, n, err)
		}
	}
	list, err := api.AuditTrail(t.Context(), client.AuditFilter{Object: "Cluster/demo", Limit: 1})
	if err != nil || len(list) != 1 || list[0].Actor != "admin" || !strings.Contains(list[0].Diff, "count: 4") {
		t.Errorf("%+v, %v", list, err)
	}
	if v, err := api.VerifyAudit(t.Context()); err != nil || !v.Good || v.Entries < 4 {
		t.Errorf("%+v, %v", v, err)
	}
	verifyExport(t, api)
	if _, err := db.ExecContext(t.Context(), "UPDATE audit SET actor = 'bob' WHERE seq = 2"); err != nil {
		t.Fatal(err)
	}
	if v, err := api.VerifyAudit(t.Context()); err != nil || v.Good || v.Bad != 2 {
		t.Errorf("after a change in the database: %+v, %v", v, err)
	}
}

// verifyExport verifies an export of the trail with the key alone. The export is in the trail, and in itself.
func verifyExport(t *testing.T, api *client.Client) {
	t.Helper()
	text, err := api.AuditKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key, err := chain.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	body, err := api.ExportAudit(t.Context(), time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	export, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := chain.VerifyLines(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(export)), nil
	}, key)
	if err != nil || !r.Good() || r.Signed != r.Last || !bytes.Contains(export, []byte(`"Audit/trail"`)) {
		t.Errorf("%+v, %v\n%s", r, err, export)
	}
	signed := 0
	for line := range bytes.Lines(export) {
		var s wire.AuditSigned
		if strictly(line, &s) == nil {
			signed++
		} else if err := strictly(line, new(wire.AuditEntry)); err != nil {
			t.Errorf("a line is not as the description says: %s: %v", line, err)
		}
	}
	if signed == 0 {
		t.Error("no line of the export is a checkpoint")
	}
	_, err = api.ExportAudit(t.Context(), time.Unix(2, 0), time.Unix(1, 0))
	if director.KindOf(err) != director.KindInvalid {
		t.Errorf("an export that ends before it begins: %v", err)
	}
}

// strictly reads JSON that has no other fields than v.
func strictly(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(v)
}
