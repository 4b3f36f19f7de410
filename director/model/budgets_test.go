package model

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func schedule(spec string) string {
	return "apiVersion: kaas/v1\nkind: Schedule\nmetadata: {name: s}\nspec:\n  cron: '@daily'\n  job: {name: prune}\n" +
		spec
}

func worker(fields string) string {
	return "apiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: c}\nspec:\n  release: r\n  provider: p\n  image: " +
		"i\n  network: n\n  workers:\n  - name: w\n    count: 1\n    " + fields + "\n"
}

// many repeats the text with a number for %d.
func many(n int, text, between string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = strings.ReplaceAll(text, "%d", fmt.Sprint(i))
	}
	return strings.Join(parts, between)
}

// What is too large is told with its place, before it costs anything.
func TestBudgets(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"bytes": {schedule("#" + strings.Repeat("x", maxBytes)), "f:1: document: has 524"},
		"a later one": {
			schedule("") + "---\n" + schedule("#"+strings.Repeat("x", maxBytes)), "f:7: document: has 524",
		},
		"flow":  {"a: [" + strings.Repeat("[],", 100_000) + "]", "f:1: document: has more than 8000 values"},
		"json":  {`{"a":{` + many(40_000, `"k%d":1`, ",") + `}}`, "f:1: document: has more than 8000 values"},
		"block": {"a:\n" + strings.Repeat("- \n", 50_000), "f:1: document: has more than 8000 values"},
		"values": {
			schedule("  x: [" + strings.Repeat("1,", 10_000) + "]\n"),
			"f:7: document: has more than 8000 values (make several documents of it)",
		},
		"values by alias": {
			"a: &a [" + strings.Repeat("1,", 500) + "]\nb: [" + strings.Repeat("*a,", 50) + "]",
			"has more than 8000 values",
		},
		"aliases": {
			"a: &a 1\nb: [" + strings.Repeat("*a,", 200) + "]",
			"f:2: document: has more than 100 aliases (write the values out)",
		},
		"itself": {"a: &a [*a]", "is nested more than 32 levels deep"},
		"depth": {
			"a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40),
			"f:1: document: is nested more than 32 levels deep",
		},
		"key": {
			"? " + strings.Repeat("k", 2000) + "\n: 1", "f:1: document: has a key of 2000 bytes, and 1024 are allowed",
		},
		"key of a list": {"? [a]\n: 1", "has a key that is a list"},
		"address": {
			strings.Replace(
				worker("interfaces: [{role: service, addresses: ['fe80::1%X']}]"), "X", strings.Repeat("x", 300), 1,
			),
			"addresses[0]: is 308 bytes long (at most 200 bytes)",
		},
		"problems": {schedule(many(500, "  bad%d: 1", "\n")), "f: has 400 more problems"},
		"labels": {
			worker("labels: {" + many(65, "k%d: v", ", ") + "}"),
			"Cluster/c: spec.workers[0].labels: has 65 entries (at most 64)",
		},
		"a label": {
			worker("labels: {k: " + strings.Repeat("v", 318) + "}"),
			"Cluster/c: spec.workers[0].labels.k: is 318 bytes long (at most 317 bytes)",
		},
		"a label's key": {
			worker("labels: {" + strings.Repeat("k", 318) + ": v}"),
			"Cluster/c: spec.workers[0].labels: has a key that is 318 bytes long (at most 317 bytes)",
		},
		"metadata": {
			strings.Replace(schedule(""), "{name: s}", "{name: s, labels: {"+many(65, "k%d: v", ", ")+"}}", 1),
			"Schedule/s: metadata.labels: has 65 entries (at most 64)",
		},
		"name": {
			strings.Replace(schedule(""), "name: s", "name: "+strings.Repeat("s", 2000), 1),
			"metadata.name: is 2000 bytes long (at most 1024 bytes)",
		},
		"list": {
			worker("taints: [" + many(257, "k%d:NoSchedule", ", ") + "]"),
			"Cluster/c: spec.workers[0].taints: has 257 entries (at most 256)",
		},
		"text": {
			worker("packages: [" + strings.Repeat("p", 1025) + "]"),
			"Cluster/c: spec.workers[0].packages[0]: is 1025 bytes long (at most 1024 bytes)",
		},
		"free text": {schedule("") + "  #\n", ""},
		"free": {
			strings.Replace(schedule(""), "prune}", "prune, params: {a: {b: ["+strings.Repeat("x", 70_000)+"]}}}", 1),
			"spec.job.params.a.b[0]: is 70000 bytes long (at most 65536 bytes)",
		},
		"free key": {
			strings.Replace(schedule(""), "prune}", "prune, params: {a: {1: b}}}", 1),
			"params.a: holds a mapping with a key that is not text",
		},
		"free number": {
			strings.Replace(schedule(""), "prune}", "prune, params: {a: [.inf]}}", 1), "params.a: holds +Inf",
		},
		"free bytes": {
			strings.Replace(schedule(""), "prune}", "prune, params: {a: !!binary gIGC}}", 1),
			"params.a: holds a text that is not UTF-8",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			docs, err := Parse([]byte(tt.text), "f")
			if err == nil {
				_, err = Validate(&docs[0])
			}
			got := problems(err)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %.500s\nwant %s", got, tt.want)
			}
			if len(got) > 64<<10 {
				t.Errorf("the answer has %d bytes", len(got))
			}
		})
	}
}

// What was stored before there were budgets is still read.
func TestStoredDocumentsHaveNoBudgets(t *testing.T) {
	t.Parallel()
	text := `{"apiVersion":"kaas/v1","kind":"Release","metadata":{"name":"r","labels":{` +
		many(30_000, `"k%d":"v"`, ",") +
		`}},"spec":{"bundle":"/b","kubernetes":"v1.37.2"}}`
	docs, err := ParseStored([]byte(text))
	if err != nil || len(docs[0].Metadata.Labels) != 30_000 {
		t.Errorf("%v", err)
	}
}

// The difference of texts that have nothing in common needs memory for their lines alone. Not parallel: it counts what
// the whole process allocates.
func TestDiffIsLinear(t *testing.T) { //nolint:paralleltest // see above
	for _, n := range []int{9_000, 100_000} {
		a, b := many(n, "a%d\n", ""), many(n, "b%d\n", "")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := Diff(a, b)
		runtime.ReadMemStats(&after)
		if used := (after.TotalAlloc - before.TotalAlloc) / uint64(2*n); used > 600 {
			t.Errorf("%d lines: %d bytes were allocated for each", n, used)
		}
		if lines := strings.Count(
			got, "\n",
		); lines != maxShown+1 || !strings.HasSuffix(got, fmt.Sprintf("  ... %d more lines\n", 2*n-maxShown)) {
			t.Errorf("%d lines: %d are shown, and the last is %q", n, lines, got[len(got)-40:])
		}
	}
}

func TestDiffOfLongTexts(t *testing.T) {
	t.Parallel()
	text := many(50_000, "line %d\n", "")
	// What both share is not aligned, so that a change in a long text stays small.
	if got, want := Diff(text, strings.Replace(text, "line 777\n", "other\n", 1)),
		"  line 776\n- line 777\n+ other\n  line 778\n"; got != want {
		t.Errorf("got %.300s", got)
	}
	if got, want := Diff("a\nb\nc\n", "a\nc\nd\n"), "  a\n- b\n  c\n+ d\n"; got != want {
		t.Errorf("got %s", got)
	}
	if got := Diff(strings.Repeat("x", 2000), "y"); len(got) > 600 {
		t.Errorf("a long line is shown whole: %d bytes", len(got))
	}
}

// FuzzParseDocuments gives Parse what people could send. Whatever is accepted is within the budgets, can be stored and
// shown, and reads back as the same document.
func FuzzParseDocuments(f *testing.F) {
	text, err := os.ReadFile("testdata/demo.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(worker("labels: {a: b}")))
	f.Fuzz(func(t *testing.T, in []byte) {
		docs, err := Parse(in, "fuzz")
		if err != nil {
			return
		}
		for i := range docs {
			d := &docs[i]
			_, invalid := Validate(d)
			if invalid == nil {
				_ = Check(d, SetOf(docs))
			}
			stored, err := EncodeJSON(*d)
			if err != nil {
				t.Fatalf("it cannot be stored: %v", err)
			}
			back, err := ParseStored(stored)
			if err != nil {
				t.Fatalf("what was stored cannot be read: %v\n%s", err, stored)
			}
			if again, err := EncodeJSON(back[0]); err != nil || string(again) != string(stored) {
				t.Fatalf("it is stored otherwise the second time: %v\n%s\n%s", err, stored, again)
			}
			if invalid != nil {
				continue
			}
			shown, err := Encode(*d)
			if err != nil {
				t.Fatalf("it cannot be shown: %v", err)
			}
			read, err := ParseStored(shown)
			if err != nil {
				t.Fatalf("what is shown cannot be read: %v\n%s", err, shown)
			}
			if diff := cmp.Diff(
				*d, read[0], cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(),
			); diff != "" {
				t.Fatalf("what is shown is another document:\n%s", diff)
			}
		}
	})
}
