package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

func TestEveryKindHasACode(t *testing.T) {
	t.Parallel()
	listed := map[int]bool{}
	for _, row := range exitTable {
		if listed[row.code] {
			t.Errorf("the code %d is there twice in the table", row.code)
		}
		listed[row.code] = true
	}
	seen := map[int]director.Kind{}
	for _, k := range director.Kinds() {
		code, ok := kindCodes[k]
		if !ok || code == 0 {
			t.Errorf("%s has no code", k)
		}
		if other, twice := seen[code]; twice {
			t.Errorf("%s and %s have the same code", k, other)
		}
		seen[code] = k
		if !listed[code] {
			t.Errorf("the code of %s is not in the table", k)
		}
		if got := exitCode(&director.Error{Kind: k}); got != code {
			t.Errorf("exit code of %s is %d", k, got)
		}
	}
	for code, err := range map[int]error{
		0: nil, 1: errors.New("x"), codePlanFailed: &planError{code: codePlanFailed},
		codeInterrupted: fmt.Errorf("x: %w", context.Canceled),
		codeDiffers:     differsError{},
	} {
		if got := exitCode(err); got != code {
			t.Errorf("exit code of %v is %d, want %d", err, got, code)
		}
		if !listed[code] {
			t.Errorf("%d is not in the table", code)
		}
	}
}

func TestPlacesAreTranslated(t *testing.T) {
	t.Parallel()
	s := &sources{}
	s.add("a.yaml", []byte("a: 1\nb: 2")) // without a line end
	s.add("b.yaml", []byte("c: 3\n"))
	s.add("c.yaml", []byte("d: 4\n"))
	if got := strings.Count(s.text.String(), "\n"); got != 6 {
		t.Fatalf("%d lines:\n%s", got, &s.text)
	}
	err := s.translate(&director.Error{Kind: director.KindInvalid, Fields: []director.Field{
		{Path: "input:2: spec.b"},
		{Path: "input:4: spec.c"},
		{Path: "input:6: d"},
		{Path: "Cluster/x: spec.y"},
		{Path: "input", Msg: "line 4: did not find expected key"},
		{Path: "input", Msg: "holds no document"},
	}})
	var got []string
	translated, _ := errors.AsType[*director.Error](err)
	for _, f := range translated.Fields {
		got = append(got, f.String())
	}
	want := "a.yaml:2: spec.b: |b.yaml:1: spec.c: |c.yaml:1: d: |Cluster/x: spec.y: |b.yaml:1: did not find " +
		"expected key|a.yaml: holds no document"
	if strings.Join(got, "|") != want {
		t.Errorf("%q, want %q", strings.Join(got, "|"), want)
	}
}

func TestLogLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, want string }{
		{``, ""},
		{`not JSON`, "not JSON"},
		{`{"a":1}`, `{"a":1}`},
		{`{"msg":"made","vm":"x","n":2,"level":"INFO"}`, "          made n=2 vm=x"},
		{`{"msg":"made","level":"WARN"}`, "          warn: made"},
		{`{"type":"task_start","role":"node","task":"Install"}`, "          task node: Install"},
		{`{"type":"host","host":"h","status":"changed","seconds":3.51}`, "            h: changed in 3.5 s"},
		{
			`{"type":"host","host":"h","status":"failed","msg":"bad","stderr":"line 1\nline 2\n"}`,
			"            h: failed: bad\n              line 1\n              line 2",
		},
		{`{"type":"stats"}`, ""},
		{`{"type":"run_end","status":"failed","msg":"one host"}`, "          run ended: failed: one host"},
		{`{"type":"new_thing","host":"h","msg":"m"}`, "          new_thing h m"},
	} {
		if got := logLine([]byte(tt.line)); got != tt.want {
			t.Errorf("%s\n got %q\nwant %q", tt.line, got, tt.want)
		}
	}
}

// Services of several clusters are named once each. The director's own, and what is not there, are of no cluster.
func TestSharedServices(t *testing.T) {
	t.Parallel()
	of := func(cluster, service, drift string) wire.ConsulService {
		return wire.ConsulService{Cluster: cluster, Service: service, Drift: drift}
	}
	got := sharedServices([]wire.ConsulService{
		of("", "web", ""), of("b", "web", ""), of("b", "web", "surplus"), of("a", "web", ""), of("a", "db", ""),
		of("b", "db", "missing"), of("c", "kaas-api-c", ""),
	})
	if diff := cmp.Diff([]sharedService{{"web", []string{"a", "b"}}}, got); diff != "" {
		t.Error(diff)
	}
}
