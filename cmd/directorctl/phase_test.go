package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

// No director that simulates runs on an appliance, so a server in its place tells how the upgrade of one goes on.
func TestPhaseOfADirectorOnAnAppliance(t *testing.T) {
	t.Parallel()
	const upload = "3fab"
	var asked wire.PhaseRequest
	tasks := []wire.PhaseTask{
		{State: "running", Message: "it is written", Progress: &wire.PhaseUpgrade{
			Host: "d1", To: "v2", Stage: "writing", Done: 1, Total: 4,
		}},
		{State: "done", Message: "v2 runs"},
	}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
				t.Error(err)
			}
		}
		next := tasks[0]
		tasks = tasks[1:]
		next.PhaseRequest = asked
		if err := json.NewEncoder(w).Encode(next); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	conf := filepath.Join(dir, "config.yaml")
	c := config{Server: srv.URL, Fingerprint: client.Fingerprint(srv.Certificate()), User: "ann"}
	if err := saveConfig(conf, c, "kaas_of_ann"); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	code := run([]string{
		"phase", "director", "--config", conf, "--task-id", "up7-director", "--upload", upload, "--within", "5m",
		"--wait",
	}, streams{in: os.Stdin, out: out, err: &said})
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := wire.PhaseRequest{
		TaskID: "up7-director", Phase: "director", Upgrade: &wire.ApplianceUpgrade{
			Upload: upload, ApplianceWaits: wire.ApplianceWaits{Drain: 900, Within: 300},
		},
	}
	if diff := cmp.Diff(want, asked); diff != "" || code != 0 {
		t.Errorf("exit code %d, %s, asked (-want +got):\n%s", code, said.String(), diff)
	}
	shown := regexp.MustCompile(`(?m)^[0-9:]+ `).ReplaceAllString(string(text), "")
	const wanted = ` d1: 25% of version v2 are written
 task up7-director: running: it is written
 task up7-director: done: v2 runs
Task up7-director is done.
`
	if diff := cmp.Diff(wanted, shown); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
