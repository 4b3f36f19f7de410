package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func noEnv(string) string { return "" }

func TestServeAndGet(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- serve(ctx, listener) }()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/": host + "\n", "/from": "127.0.0.1\n", "/healthz": "ok\n"} {
		var out bytes.Buffer
		if err := run(ctx, []string{"get", listener.Addr().String() + path}, noEnv, &out, &out); err != nil {
			t.Fatalf("get %s: %v", path, err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("get %s (-want +got):\n%s", path, diff)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

func TestGetFailsForStatus(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	var out bytes.Buffer
	err := run(t.Context(), []string{"get", server.URL}, noEnv, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("error = %v, want one that names the status", err)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"resolve", "127.0.0.1"}, noEnv, &out, &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != "127.0.0.1\n" {
		t.Errorf("resolve printed %q", out.String())
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"get"}, {"get", "a", "b"}, {"resolve"}, {"serve", "a", "b"}, {"dance"}} {
		var stdout, stderr bytes.Buffer
		if err := run(t.Context(), args, noEnv, &stdout, &stderr); !errors.Is(err, errUsage) {
			t.Errorf("%q: error = %v, want errUsage", args, err)
		}
		if !strings.HasPrefix(stderr.String(), "usage:") || stdout.Len() != 0 {
			t.Errorf("%q: usage not on stderr", args)
		}
	}
	bad := func(string) string { return "soon" }
	if err := run(t.Context(), []string{"resolve", "x"}, bad, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
		t.Error("a timeout of \"soon\" was accepted")
	}
}

func TestAllInsists(t *testing.T) {
	t.Parallel()
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls < 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"all", "resolve 127.0.0.1", "get " + server.URL}, noEnv, &out, &out); err != nil {
		t.Fatal(err)
	}
	if want := "ok resolve 127.0.0.1\nok get " + server.URL + "\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestAllNamesWhatIsUnanswered(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	env := func(name string) string { return map[string]string{"TOOLBOX_PATIENCE": "0.01"}[name] }
	var out bytes.Buffer
	err := run(t.Context(), []string{"all", "get " + server.URL, "resolve 127.0.0.1"}, env, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "404") || out.String() != "ok resolve 127.0.0.1\n" {
		t.Errorf("error %v after %q", err, out.String())
	}
	if err := run(t.Context(), []string{"all", "dance"}, env, &out, &out); !errors.Is(err, errUsage) {
		t.Errorf("error = %v, want errUsage", err)
	}
}
