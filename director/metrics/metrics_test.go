package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/plan"
)

// busy is a director to which everything has happened once.
func busy() *Metrics {
	m := New(Config{
		Version: "v1", Commit: "abc", Go: "go1", Forks: 10, Log: slog.New(slog.DiscardHandler),
		Counts: func(context.Context) (Counts, error) {
			return Counts{
				Queue: 3, Held: 2, Machines: map[string]int{"present": 7}, Plans: map[string]int{"running": 1},
				Steps: map[string]int{"waiting": 4}, Unsent: new(5), Free: new(1 << 40), Bucket: new(true),
				Packages: &Packages{Of: time.Unix(1779294492, 0), Missing: new(2)},
			}, nil
		},
	})
	m.StepStarted("vm.ensure")
	m.StepEnded("vm.ensure", plan.Succeeded, time.Second)
	m.LeaseLost()
	m.RunWaits()
	m.RunWaited()
	m.RunStarted(5)
	m.RunStarted(4)
	m.RunEnded(4, "ok", time.Minute)
	m.Request("GET", "/api/v1/plans", 200, time.Millisecond)
	m.Stream()
	m.Stream()()
	return m
}

func show(m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	b, _ := io.ReadAll(w.Body) // a recorder's body does not fail
	return string(b)
}

func TestWhatIsShown(t *testing.T) {
	t.Parallel()
	text := show(busy())
	for _, want := range []string{
		`director_build_info{commit="abc",go="go1",version="v1"} 1`,
		`director_queue_length 3`, `director_leases_held 2`, `director_leases_lost_total 1`,
		`director_steps_ended_total{kind="vm.ensure",outcome="succeeded"} 1`,
		`director_step_duration_seconds_sum{kind="vm.ensure"} 1`,
		`director_ansible_runs 1`, `director_ansible_forks_used 5`, `director_ansible_forks_limit 10`,
		`director_ansible_runs_waiting 0`,
		`director_ansible_runs_ended_total{how="ok"} 1`,
		`director_http_requests_total{method="GET",route="/api/v1/plans",status="200"} 1`, `director_http_streams 1`,
		`director_machines{state="present"} 7`, `director_plans{status="running"} 1`,
		`director_steps{status="waiting"} 4`, `director_audit_unsent 5`,
		`director_disk_free_bytes 1.099511627776e+12`, `director_registry_bucket_up 1`,
		`director_root_packages_timestamp_seconds 1.779294492e+09`, `director_root_security_updates_missing 2`,
		`process_resident_memory_bytes`, `go_goroutines`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not shown: %s", want)
		}
	}
}

func TestALookupThatFailsTakesNothingWithIt(t *testing.T) {
	t.Parallel()
	m := busy()
	m.cfg.Counts = func(context.Context) (Counts, error) { return Counts{}, errors.New("no database") }
	first, second := show(m), show(m) // what is counted during a look may be seen only at the next
	if !strings.Contains(first, "director_http_requests_total") || strings.Contains(first, "director_machines") ||
		strings.Contains(second, "director_metrics_lookup_failures_total 0") {
		t.Errorf("shown: %s", second)
	}
}

// Every metric that the dashboard names is one that the director shows, and every one of the director's own is on it.
func TestDashboard(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/operate/grafana/director.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &board); err != nil || len(board.Panels) == 0 {
		t.Fatalf("%v, %d panels", err, len(board.Panels))
	}
	shown := map[string]bool{}
	for name := range strings.FieldsFuncSeq(show(busy()), func(r rune) bool { return r == '\n' }) {
		if !strings.HasPrefix(name, "#") {
			shown[regexp.MustCompile(`^\w+`).FindString(name)] = true
		}
	}
	named := map[string]bool{}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`\b(director|go|process)_\w+`).FindAllString(target.Expr, -1) {
				if named[name] = true; !shown[name] {
					t.Errorf("panel %q asks for %s, which nobody shows", p.Title, name)
				}
			}
		}
	}
	for name := range shown {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if strings.HasPrefix(name, namespace+"_") && !named[name] && !named[base+"_bucket"] {
			t.Errorf("%s is on no panel", name)
		}
	}
}
