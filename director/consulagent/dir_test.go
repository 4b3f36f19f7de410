package consulagent

import (
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// served is a server of programs, and what a director knows of it.
func served(t *testing.T, handler http.HandlerFunc, program string) Source {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	return Source{
		URL: s.URL + "/consul", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(program))),
		CA:       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
		Networks: confine.Networks{netip.MustParsePrefix("127.0.0.0/8")},
	}
}

// A program is used only if it is the one that the document names, wherever it comes from.
func TestFetch(t *testing.T) {
	t.Parallel()
	const program = "#!/bin/sh\n"
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		change  func(*Source)
		want    director.Kind // empty for success
	}{
		"the program":   {handler: says(program)},
		"another one":   {handler: says("malice"), want: director.KindConflict},
		"cut off":       {handler: says(program[:4]), want: director.KindConflict},
		"nothing there": {handler: http.NotFound, want: director.KindUnavailable},
		"leads elsewhere": {
			handler: http.RedirectHandler("https://127.0.0.1:1/", http.StatusFound).ServeHTTP,
			want:    director.KindUnavailable,
		},
		"another authority": {
			handler: says(program), change: func(s *Source) { s.CA = "" }, want: director.KindUnavailable,
		},
		"a network that is not allowed": {
			handler: says(program), change: func(s *Source) { s.Networks = confine.Private() },
			want: director.KindUnavailable,
		},
		"no address": {
			handler: says(program), change: func(s *Source) { s.URL = "" }, want: director.KindNotFound,
		},
		"no sum": {handler: says(program), change: func(s *Source) { s.SHA256 = "" }, want: director.KindNotFound},
	} {
		d := At(t.TempDir())
		d.places = nil
		s := served(t, tt.handler, program)
		if tt.change != nil {
			tt.change(&s)
		}
		err := d.Fetch(t.Context(), s)
		left, _ := os.ReadDir(d.path)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (director.KindOf(err) != tt.want || director.HintOf(err) == "" || len(left) > 0):
			t.Errorf("%s: %v (%s), and %d files are left", name, err, director.HintOf(err), len(left))
		}
	}
}

// A program of the machine is used before one is fetched, and a fetched one that was changed is fetched again.
func TestProgram(t *testing.T) {
	t.Parallel()
	const program = "#!/bin/sh\n"
	d := At(t.TempDir())
	own := filepath.Join(t.TempDir(), "consul")
	d.places = []string{own}
	asked := 0
	s := served(t, func(w http.ResponseWriter, _ *http.Request) { asked++; _, _ = w.Write([]byte(program)) }, program)
	fetch := func(want int) {
		t.Helper()
		if err := d.Fetch(t.Context(), s); err != nil || asked != want {
			t.Errorf("fetched %d times, want %d: %v", asked, want, err)
		}
	}
	if err := os.WriteFile(own, []byte("of another version"), 0o755); err != nil {
		t.Fatal(err)
	}
	fetch(1)
	fetch(1)
	if got, err := d.Program(""); err != nil || got != own {
		t.Errorf("without a sum it is %s, %v", got, err)
	}
	if err := os.WriteFile(d.file(programFile), []byte("changed"), 0o755); err != nil {
		t.Fatal(err)
	}
	fetch(2)
	if err := os.WriteFile(own, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Program(s.SHA256); err != nil || got != own {
		t.Errorf("of two it is %s, %v", got, err)
	}
	if err := At("/nowhere").Tell(Told{}); director.KindOf(err) != director.KindNotFound {
		t.Errorf("without its directory: %v", err)
	}
}

// heard is a program that writes down its starts and the signals that it gets. A shell that was started with a signal
// ignored, as nohup has it, could not.
const heard = `#!/usr/bin/env -S --default-signal=HUP sh
out=$(dirname "$0")/heard
say() { echo "$1" >>"$out"; }
trap 'say reload' HUP
trap 'say leave; exit 0' INT
trap 'say stop; exit 0' TERM
say start
while :; do sleep 0.05; done
`

// The agent follows what the director writes: services without a restart, the rest with one; it leaves when none is
// wanted, and one that dies is started again.
func TestRun(t *testing.T) {
	t.Parallel()
	d := At(t.TempDir())
	bin := t.TempDir()
	d.places = []string{filepath.Join(bin, "consul")}
	if err := os.WriteFile(d.places[0], []byte(heard), 0o755); err != nil {
		t.Fatal(err)
	}
	told := Told{Agent: Agent{Name: "a"}, CA: "PEM", Token: "t", Gossip: "g"}
	tell := func() {
		t.Helper()
		if err := d.Tell(told); err != nil {
			t.Fatal(err)
		}
	}
	tell()
	done := make(chan error, 1)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- Run(ctx, d, t.TempDir(), log) }()
	until := func(want ...string) {
		t.Helper()
		limit, tick := time.After(30*time.Second), time.NewTicker(50*time.Millisecond)
		defer tick.Stop()
		for {
			text, _ := os.ReadFile(filepath.Join(bin, "heard"))
			if got := strings.Fields(string(text)); slices.Equal(got, want) {
				return
			}
			select {
			case <-limit:
				t.Fatalf("the agent heard %q, want %q", text, want)
			case <-tick.C:
			}
		}
	}
	until("start")
	told.Services = []Service{{ID: "s", Name: "s"}}
	tell()
	until("start", "reload")
	told.Gossip = "other"
	tell()
	until("start", "reload", "stop", "start")
	if err := d.Quiet(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	until("start", "reload", "stop", "start", "leave")
	if err := d.Quiet(); err != nil {
		t.Errorf("once more: %v", err)
	}
}
