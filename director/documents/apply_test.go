package documents

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

const world = `
apiVersion: kaas/v1
kind: Provider
metadata: {name: p}
spec: {type: libvirt, libvirt: {hosts: [{name: h, uri: "qemu:///system"}]}}
---
apiVersion: kaas/v1
kind: Release
metadata: {name: r}
spec: {bundle: /b, kubernetes: v1.37.2}
---
apiVersion: kaas/v1
kind: Image
metadata: {name: i}
spec: {source: /i, kubernetes: v1.37.2, sha256: "` +
	"0000000000000000000000000000000000000000000000000000000000000000" + `"}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: n}
spec: {provider: p, cidr: 10.0.0.0/16, pool: {from: 10.0.1.0, to: 10.0.200.0}}
`

// manyValues returns a Cluster with nearly as many values as a document may have. Two of different seeds have no line
// of their labels in common.
func manyValues(seed string) string {
	const pools, labels = 90, 40
	var b strings.Builder
	b.WriteString(clusterHead)
	for i := range pools {
		fmt.Fprintf(&b, "  - name: p%d\n    count: 1\n    labels:\n", i)
		for j := range labels {
			fmt.Fprintf(&b, "      k%s-%03d-%02d: %s%060d\n", seed, i, j, seed, i*labels+j)
		}
	}
	return b.String()
}

// manyLines returns a Cluster with nearly as many bytes as a document may have, in scripts of short lines.
func manyLines(seed string) string {
	const pools, lines = 15, 1800
	var b strings.Builder
	b.WriteString(clusterHead)
	for i := range pools {
		fmt.Fprintf(&b, "  - name: p%d\n    count: 1\n    scripts:\n    - name: s\n      content: |\n", i)
		for j := range lines {
			fmt.Fprintf(&b, "        %s%d\n", seed, i*lines+j)
		}
	}
	return b.String()
}

const clusterHead = `apiVersion: kaas/v1
kind: Cluster
metadata: {name: c}
spec:
  release: r
  provider: p
  image: i
  network: n
  pods: {cidr: 10.128.0.0/9}
  workers:
`

func openEmpty(t testing.TB) *Service {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	o := New(Config{
		Store: db, Now: time.Now, Confine: confine.Rules{Images: confine.Dirs{"/"}, Bundles: confine.Dirs{"/"}},
	})
	if _, err := o.Apply(t.Context(), "a", []byte(world), "world", false); err != nil {
		t.Fatal(err)
	}
	return o
}

var largest = map[string]func(seed string) string{"values": manyValues, "lines": manyLines}

// The largest documents that are accepted cost less than 64 MB in apply, in a dry run and in their comparison. Not
// parallel: it counts what the whole process allocates.
func TestTheLargestDocumentIsCheap(t *testing.T) { //nolint:paralleltest // see above
	const most = 64 << 20
	for name, document := range largest {
		o := openEmpty(t)
		for _, step := range []struct {
			name, text string
			dryRun     bool
			action     string
		}{
			{"the first", document("a"), false, "created"},
			{"the same", document("a"), false, "unchanged"},
			{"a dry run with every line changed", document("b"), true, "changed"},
			{"every line changed", document("b"), false, "changed"},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			changes, err := o.Apply(t.Context(), "a", []byte(step.text), "large", step.dryRun)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, step.name, err)
			}
			if got := changes[0]; got.Action != step.action || (got.Diff != "") != (got.Action == "changed") {
				t.Errorf("%s: %s: %s with a difference of %d bytes", name, step.name, got.Action, len(got.Diff))
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > most {
				t.Errorf("%s: %s: %d MB were allocated, and %d are allowed", name, step.name, got>>20, most>>20)
			}
		}
	}
}

func BenchmarkLargestDocument(b *testing.B) {
	for name, document := range largest {
		o := openEmpty(b)
		texts := [][]byte{[]byte(document("a")), []byte(document("b"))}
		if _, err := o.Apply(b.Context(), "a", texts[1], "large", false); err != nil {
			b.Fatal(err)
		}
		n := 0
		for verb, dryRun := range map[string]bool{"apply": false, "dry-run": true} {
			b.Run(name+"/"+verb, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := o.Apply(b.Context(), "a", texts[n%2], "large", dryRun); err != nil {
						b.Fatal(err)
					}
					if !dryRun {
						n++
					}
				}
			})
		}
		b.Run(name+"/diff", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if model.Diff(string(texts[0]), string(texts[1])) == "" {
					b.Fatal("no difference")
				}
			}
		})
	}
}

// Documents that are stored while others are compared are seen: the second comparison is with them.
func TestApplyComparesAgain(t *testing.T) {
	t.Parallel()
	o := openEmpty(t)
	network := func(name, cidr string) string {
		return fmt.Sprintf(
			"apiVersion: kaas/v1\nkind: Network\nmetadata: {name: %s}\nspec: {provider: p, cidr: %s, pool: {from: "+
				"10.9.0.10, to: 10.9.0.20}}\n",
			name, cidr,
		)
	}
	// All of these overlap: whoever comes first is stored, and each other one is refused, however their comparisons
	// fall together.
	const many = 8
	errs := make([]error, many)
	var wait sync.WaitGroup
	for i := range many {
		wait.Go(func() {
			_, errs[i] = o.Apply(t.Context(), "a", []byte(network(fmt.Sprintf("n%d", i), "10.9.0.0/24")), "", false)
		})
	}
	wait.Wait()
	stored := 0
	for _, err := range errs {
		if err == nil {
			stored++
		} else if director.KindOf(err) != director.KindInvalid {
			t.Errorf("%v", err)
		}
	}
	docs, err := o.c.Store.Documents(t.Context(), model.KindNetwork)
	if err != nil || stored != 1 || len(docs) != 2 {
		t.Errorf("%d were stored, and the director has %d networks: %v", stored, len(docs), err)
	}
}
