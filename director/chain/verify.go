package chain

import (
	"crypto/ed25519"
	"fmt"
)

// Result is what a verification found.
type Result struct {
	First, Last int64 // sequence numbers of the entries that were read
	Entries     int64 // of the chain
	Before      int64 // entries from before the chain: nothing proves them
	Signed      int64 // the last entry that a good checkpoint covers
	Bad         int64 // the first bad sequence number; 0 if Why is empty
	Why         string
}

// Good reports whether nothing is wrong.
func (r Result) Good() bool { return r.Why == "" }

// Verifier reads the entries of a trail in their order and says where it was changed. Make one with NewVerifier.
type Verifier struct {
	prev   Hash
	signed map[int64]Hash // what good checkpoints say
	newest int64
	before int64 // rows up to this id are from before the chain
	r      Result
}

// NewVerifier returns a verifier that trusts checkpoints with the key for that installation alone. Entries that are in
// no chain are accepted up to the id before; -1 accepts them ahead of the first entry of the chain.
func NewVerifier(key ed25519.PublicKey, installation string, before int64, checkpoints []Checkpoint) *Verifier {
	v := &Verifier{signed: map[int64]Hash{}, before: before}
	for _, c := range checkpoints {
		if !c.Good(key, installation) {
			v.fail(c.Seq, fmt.Sprintf("the checkpoint at entry %d has a wrong signature", c.Seq))
			continue
		}
		if had, ok := v.signed[c.Seq]; ok && had != c.Hash {
			v.fail(c.Seq, fmt.Sprintf("two signed checkpoints at entry %d do not agree", c.Seq))
		}
		v.signed[c.Seq], v.newest = c.Hash, max(v.newest, c.Seq)
	}
	return v
}

// fail notes the first bad sequence number: the lowest one.
func (v *Verifier) fail(seq int64, why string) {
	if v.r.Why == "" || seq < v.r.Bad {
		v.r.Bad, v.r.Why = seq, why
	}
}

// Add reads the next entry.
func (v *Verifier) Add(e Entry) {
	if e.Seq == 0 {
		v.r.Before++
		if v.r.Entries > 0 || v.before >= 0 && e.ID > v.before {
			v.fail(v.r.Last+1, fmt.Sprintf("the entry with id %d is in no chain", e.ID))
		}
		return
	}
	want := v.r.Last + 1
	if v.r.Entries == 0 {
		v.r.First, want = e.Seq, e.Seq
		v.begin(e)
	}
	if e.Seq != want {
		v.fail(min(want, e.Seq), fmt.Sprintf("entry %d follows entry %d", e.Seq, want-1))
	}
	hash := e.After(v.prev)
	if hash != e.Hash {
		v.fail(e.Seq, fmt.Sprintf("entry %d, or the one before it, is not the one that was written", e.Seq))
	}
	// The rest is judged by what the trail says of itself: one change is one finding.
	v.prev = e.Hash
	if say, ok := v.signed[e.Seq]; ok && say != e.Hash {
		v.fail(e.Seq, fmt.Sprintf("entry %d or one before it was rewritten: the signed checkpoint differs", e.Seq))
	} else if ok {
		v.r.Signed = e.Seq
	}
	v.r.Last = e.Seq
	v.r.Entries++
}

// begin finds the hash ahead of the first entry: nothing, or what a checkpoint signed when older entries were archived.
func (v *Verifier) begin(e Entry) {
	if e.Seq == 1 {
		return
	}
	hash, ok := v.signed[e.Seq-1]
	if !ok {
		v.fail(1, fmt.Sprintf("entries 1 to %d are missing, and no checkpoint was signed at their end", e.Seq-1))
		return
	}
	v.prev, v.r.Signed = hash, e.Seq-1
}

// End returns what was found, once all entries are read. head is the last entry that was ever written, as far as
// the caller knows; 0 if that is unknown.
func (v *Verifier) End(head int64) Result {
	last := max(v.newest, head)
	if v.r.Entries == 0 {
		// All entries may be in archives: then a checkpoint was signed at the last one.
		if _, ok := v.signed[last]; last > 0 && !ok {
			v.fail(1, fmt.Sprintf("entries up to %d are missing", last))
		}
		return v.r
	}
	if v.r.Last < last {
		v.fail(v.r.Last+1, fmt.Sprintf("entries %d to %d are missing at the end", v.r.Last+1, last))
	}
	return v.r
}
