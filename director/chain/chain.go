// Package chain is the form of the audit trail: each entry holds the hash of itself and of the entry before it, and
// signed checkpoints say which hash the trail had at which entry. It is pure, so that a trail can be verified anywhere.
package chain

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Hash is the SHA-256 of an entry and of all before it.
type Hash [sha256.Size]byte

// MarshalText writes the hash as hexadecimal digits, and the zero hash as nothing.
func (h Hash) MarshalText() ([]byte, error) {
	if h == (Hash{}) {
		return nil, nil
	}
	return []byte(hex.EncodeToString(h[:])), nil
}

// UnmarshalText reads what MarshalText writes, and nothing else.
func (h *Hash) UnmarshalText(text []byte) error {
	*h = Hash{}
	if len(text) == 0 {
		return nil
	}
	if len(text) != 2*len(h) || strings.ToLower(string(text)) != string(text) {
		return fmt.Errorf("a hash has %d hexadecimal digits in lower case", 2*len(h))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// The outcomes of an attempt.
const (
	OK      = "ok"
	Refused = "refused" // the actor may not, or is not who they say
	Failed  = "failed"
)

// Entry is an entry of the audit trail. Seq is 0 for one from before the chain.
type Entry struct {
	ID      int64     `json:"id"`
	Seq     int64     `json:"seq,omitempty"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`
	Object  string    `json:"object"`
	Outcome string    `json:"outcome,omitempty"`
	Problem string    `json:"problem,omitempty"` // the kind of the error
	Source  string    `json:"source,omitempty"`  // the address that asked
	Request string    `json:"request,omitempty"` // the id of the request
	Count   int64     `json:"count,omitempty"`   // how many attempts it represents
	Diff    string    `json:"diff,omitempty"`
	Hash    Hash      `json:"hash,omitzero"`
}

// Place is an entry of the trail: its row, and its number in the chain, which is 0 for one from before it.
type Place struct{ ID, Seq int64 }

// The most bytes of an entry's fields.
const (
	maxWord = 128
	maxText = 512
	maxDiff = 8 << 10
)

// Bounded returns the entry with fields that fit into it and that every database takes.
func (e Entry) Bounded() Entry {
	for _, f := range []struct {
		text *string
		most int
	}{
		{&e.Actor, maxText},
		{&e.Action, maxText},
		{&e.Object, maxText},
		{&e.Outcome, maxWord},
		{&e.Problem, maxWord},
		{&e.Source, maxWord},
		{&e.Request, maxWord},
		{&e.Diff, maxDiff},
	} {
		*f.text = bounded(*f.text, f.most)
	}
	e.Count = max(e.Count, 1)
	e.At = e.At.UTC().Truncate(time.Microsecond)
	return e
}

func bounded(s string, most int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= most {
		return s
	}
	const cut = " [cut]"
	s = s[:most-len(cut)]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + cut
}

const form = "director audit entry 1"

// After returns the hash of the entry behind one with the hash prev. Every field is hashed with its length, so that no
// two entries have the same bytes. The id is the row's alone.
func (e Entry) After(prev Hash) Hash {
	b := make([]byte, 0, 512)
	text := func(s string) {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	number := func(n int64) {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	text(form)
	b = append(b, prev[:]...)
	number(e.Seq)
	if e.At.IsZero() {
		number(0) // as databases keep it
	} else {
		number(e.At.UnixMicro())
	}
	for _, s := range []string{e.Actor, e.Action, e.Object, e.Outcome, e.Problem, e.Source, e.Request} {
		text(s)
	}
	number(e.Count)
	text(e.Diff)
	return sha256.Sum256(b)
}

// Checkpoint is a signed statement that the trail had the hash at the entry.
type Checkpoint struct {
	Director  string    `json:"director"` // the installation
	Seq       int64     `json:"seq"`
	Hash      Hash      `json:"hash"`
	At        time.Time `json:"at"`
	Signature []byte    `json:"signature"`
}

func (c Checkpoint) signed() []byte {
	return fmt.Appendf(
		nil, "director audit checkpoint 1\n%q\n%d\n%x\n%d\n", c.Director, c.Seq, c.Hash[:], c.At.UnixMicro(),
	)
}

// Sign returns the checkpoint with its signature.
func (c Checkpoint) Sign(key ed25519.PrivateKey) Checkpoint {
	c.At = c.At.UTC().Truncate(time.Microsecond)
	c.Signature = ed25519.Sign(key, c.signed())
	return c
}

// Good reports whether the holder of the key signed the checkpoint for that installation.
func (c Checkpoint) Good(key ed25519.PublicKey, installation string) bool {
	return len(key) == ed25519.PublicKeySize && c.Director == installation &&
		ed25519.Verify(key, c.signed(), c.Signature)
}

// Line is a line of a file with entries: an entry, or a checkpoint.
type Line struct {
	Checkpoint *Checkpoint
	Entry      Entry
}

// MarshalJSON writes {"checkpoint": ...} for a checkpoint, and the entry itself for an entry.
func (l Line) MarshalJSON() ([]byte, error) {
	if l.Checkpoint != nil {
		return json.Marshal(map[string]any{"checkpoint": l.Checkpoint})
	}
	return json.Marshal(l.Entry)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *Line) UnmarshalJSON(text []byte) error {
	var c struct {
		Checkpoint *Checkpoint `json:"checkpoint"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	l.Checkpoint, l.Entry = c.Checkpoint, Entry{}
	if c.Checkpoint != nil {
		return nil
	}
	return json.Unmarshal(text, &l.Entry)
}
