package chain

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

func public() ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

func written(n int64) (entries []Entry, checkpoints []Checkpoint) {
	var prev Hash
	for i := int64(1); i <= n; i++ {
		e := Entry{
			ID: 100 + i, Seq: i, At: time.Unix(i, 0), Actor: "ann", Action: "apply",
			Object:  fmt.Sprintf("Cluster/c%d", i),
			Outcome: OK, Source: "192.0.2.1", Request: "r1", Diff: "-1\n+2",
		}.Bounded()
		e.Hash = e.After(prev)
		prev = e.Hash
		entries = append(entries, e)
		if i%5 == 0 {
			checkpoints = append(checkpoints, Checkpoint{Director: "d1", Seq: i, Hash: prev, At: e.At}.Sign(key))
		}
	}
	return entries, checkpoints
}

func verify(entries []Entry, checkpoints []Checkpoint, head int64) Result {
	v := NewVerifier(public(), "d1", 100, checkpoints)
	for _, e := range entries {
		v.Add(e)
	}
	return v.End(head)
}

func rehash(entries []Entry, from int) []Entry {
	prev := entries[from-1].Hash
	for i := from; i < len(entries); i++ {
		entries[i].Hash = entries[i].After(prev)
		prev = entries[i].Hash
	}
	return entries
}

// Every change to a trail is found, with the first bad sequence number.
func TestVerifyFindsChanges(t *testing.T) {
	t.Parallel()
	whole := func(e []Entry) []Entry { return e }
	for name, c := range map[string]struct {
		change func([]Entry) []Entry
		bad    int64
	}{
		"untouched":          {whole, 0},
		"before the chain":   {func(e []Entry) []Entry { return slices.Insert(e, 0, Entry{ID: 3}) }, 0},
		"outside the chain":  {func(e []Entry) []Entry { return slices.Insert(e, 7, Entry{ID: 150}) }, 8},
		"removed":            {func(e []Entry) []Entry { return slices.Delete(e, 5, 6) }, 6},
		"swapped":            {func(e []Entry) []Entry { e[3], e[4] = e[4], e[3]; return e }, 4},
		"inserted twice":     {func(e []Entry) []Entry { return slices.Insert(e, 8, e[7]) }, 8},
		"tail is cut":        {func(e []Entry) []Entry { return e[:11] }, 12},
		"tail is cut a bit":  {func(e []Entry) []Entry { return e[:16] }, 17},
		"all is cut":         {func([]Entry) []Entry { return nil }, 1},
		"begins too late":    {func(e []Entry) []Entry { return e[2:] }, 1},
		"begins at a signed": {func(e []Entry) []Entry { return e[5:] }, 0},
		"rewritten to the end": {func(e []Entry) []Entry {
			e[6].Actor = "eve"
			return rehash(e, 6)
		}, 10},
	} {
		entries, checkpoints := written(17)
		got := verify(c.change(entries), checkpoints, 17)
		if got.Bad != c.bad || got.Good() != (c.bad == 0) {
			t.Errorf("%s: got %d (%s), want %d", name, got.Bad, got.Why, c.bad)
		}
	}
}

// One flipped byte in any field of any entry or checkpoint is found at that entry.
func TestVerifyFindsOneByte(t *testing.T) {
	t.Parallel()
	for i := range 12 {
		for name, change := range map[string]func(*Entry){
			"at":      func(e *Entry) { e.At = e.At.Add(time.Microsecond) },
			"actor":   func(e *Entry) { e.Actor = "aNn" },
			"action":  func(e *Entry) { e.Action = "bpply" },
			"object":  func(e *Entry) { e.Object += "x" },
			"outcome": func(e *Entry) { e.Outcome = Failed },
			"problem": func(e *Entry) { e.Problem = "x" },
			"source":  func(e *Entry) { e.Source = "192.0.2.2" },
			"request": func(e *Entry) { e.Request = "r2" },
			"count":   func(e *Entry) { e.Count++ },
			"diff":    func(e *Entry) { e.Diff = "-1\n+3" },
			"hash":    func(e *Entry) { e.Hash[31] ^= 1 },
			"moved":   func(e *Entry) { e.Actor, e.Action = "annap", "ply" },
		} {
			entries, checkpoints := written(12)
			change(&entries[i])
			if got := verify(entries, checkpoints, 12); got.Bad != int64(i+1) {
				t.Errorf("%s of entry %d: got %d (%s)", name, i+1, got.Bad, got.Why)
			}
		}
	}
	for i := range ed25519.SignatureSize {
		entries, checkpoints := written(12)
		checkpoints[1].Signature[i] ^= 1
		if got := verify(entries, checkpoints, 12); got.Bad != 10 {
			t.Errorf("byte %d of a signature: got %d (%s)", i, got.Bad, got.Why)
		}
	}
}

// A checkpoint of another installation or another key proves nothing.
func TestForeignCheckpoints(t *testing.T) {
	t.Parallel()
	_, checkpoints := written(5)
	c := checkpoints[0]
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
	if c.Good(public(), "d2") || c.Good(other.Public().(ed25519.PublicKey), "d1") || c.Good(nil, "d1") {
		t.Error("a foreign checkpoint is good")
	}
	if !c.Good(public(), "d1") {
		t.Error("its own checkpoint is not good")
	}
}

// What goes through a file verifies as before.
func TestLinesRoundTrip(t *testing.T) {
	t.Parallel()
	entries, checkpoints := written(5)
	for _, want := range []Line{
		{Entry: entries[4]},
		{Checkpoint: &checkpoints[0]},
		{Entry: Entry{ID: 1, Actor: "ann"}},
	} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Line
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// Whatever a stranger typed fits into an entry and into both databases.
func TestBounded(t *testing.T) {
	t.Parallel()
	e := Entry{Actor: "a\x00b\xff", Object: strings.Repeat("é", 600), Diff: strings.Repeat("x", 1<<20)}.Bounded()
	if e.Actor != "a\uFFFDb\uFFFD" || len(e.Object) > maxText || len(e.Diff) > maxDiff || e.Count != 1 {
		t.Errorf("got %q, %d and %d bytes, count %d", e.Actor, len(e.Object), len(e.Diff), e.Count)
	}
	if !strings.HasSuffix(e.Object, "é [cut]") {
		t.Errorf("got %q", e.Object[len(e.Object)-12:])
	}
}
