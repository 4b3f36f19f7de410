package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/webhook"
)

// receiver is the endpoint of a hook, which agrees to everything and keeps what it was asked.
type receiver struct {
	url, ca string

	mu     sync.Mutex
	key    string              // that verifies; empty before it is known
	ids    map[string]bool     // of events that it has
	asked  map[string][]string // phases by node, in their order, since they were looked at last
	broken []string            // what is wrong with requests
}

// receive starts one at the lab's address. It ends with the play.
func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{ids: map[string]bool{}, asked: map[string][]string{}}
	secured, ca := secure(t)
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute, TLSConfig: secured}
	r.url, r.ca = "https://"+serve(t, server, true)+"/hook", ca
	return r
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, webhook.MostEvent))
	var event struct {
		ID   string
		Data struct{ Phase, Node string }
	}
	if err == nil {
		err = json.Unmarshal(body, &event)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.key != "" {
		err = webhook.Verify(r.key, req.Header, body, time.Now())
	}
	if err != nil {
		r.broken = append(r.broken, err.Error())
		http.Error(w, "it is not signed", http.StatusUnauthorized)
		return
	}
	if !r.ids[event.ID] {
		r.ids[event.ID] = true
		r.asked[event.Data.Node] = append(r.asked[event.Data.Node], event.Data.Phase)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"decision": "continue"}`)
}

func (f found) asksAHook(t *testing.T) {
	f.ctl(t, "apply", "-f", f.write("models/hook.yaml", fmt.Sprintf(`apiVersion: kaas/v1
kind: Hook
metadata: {name: watch}
spec:
  url: %s
  phases: [%s]
  select: {roles: [worker]}
  deadline: 5m
  tls:
    ca: |
      %s
`, f.hook.url, strings.Join(model.HookPhases(), ", "), indented(f.hook.ca, 6)), 0o644))
	key := regexp.MustCompile(`whpk_\S+`).FindString(f.ctl(t, "hooks", "key", "watch"))
	if key == "" {
		t.Fatal("the hook has no key")
	}
	f.hook.mu.Lock()
	f.hook.key = key
	f.hook.mu.Unlock()
	f.ctl(t, "hooks", "test", "watch")
}

// wantAsked wants these phases of the node to have been asked, in this order, since it was looked at last.
func (f found) wantAsked(t *testing.T, node string, phases ...string) {
	t.Helper()
	f.hook.mu.Lock()
	defer f.hook.mu.Unlock()
	left := phases
	for _, phase := range f.hook.asked[node] {
		if len(left) > 0 && phase == left[0] {
			left = left[1:]
		}
	}
	if len(left) > 0 || len(f.hook.broken) > 0 {
		t.Errorf("of %s the hook was asked %v, and should be %v; wrong were %v", node, f.hook.asked[node], phases,
			slices.Compact(f.hook.broken))
	}
	f.hook.asked = map[string][]string{}
}
