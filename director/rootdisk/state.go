package rootdisk

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/director-kaas/kaas/director"
)

// StateFile is in the directory of upgrades, on the data disk: written by root, read by the director.
const StateFile = "state.json"

// Inbox is the directory in the director's state directory in which it asks root for something. It is on the same mount
// as uploads, so that one can be linked there.
const (
	Inbox       = "upgrade"
	RequestFile = "request" // a Request
	UploadFile  = "upload"  // the archive of an upgrade, if one is asked for
)

// RestoredFile is in the director's state directory if its database was restored to what a former root had saved. It
// keeps when that was saved.
const RestoredFile = "restored-data"

// Slot names one of the two partitions for roots.
type Slot string

// The slots.
const (
	A Slot = "a"
	B Slot = "b"
)

// Other returns the other slot.
func (s Slot) Other() Slot {
	if s == B {
		return A
	}
	return B
}

// Stage is how far a change of the root is.
type Stage string

// The stages, in their order. Failed and Done end a change.
const (
	Checking Stage = "checking" // signature and version
	Writing  Stage = "writing"  // the other root
	Draining Stage = "draining" // steps of plans run to their ends
	Saving   Stage = "saving"   // the database, before it is migrated
	Trying   Stage = "trying"   // the VM restarts with the other root, which has to become healthy
	Done     Stage = "done"     // it did
	Failed   Stage = "failed"   // nothing has changed, or the former root and database are back
)

// Ended reports whether nothing happens any more.
func (s Stage) Ended() bool { return s == "" || s == Done || s == Failed }

// Held is a root with its slot.
type Held struct {
	Slot Slot `json:"slot"`
	Root
}

// State is how the appliance's roots are, for people and for what continues after a restart.
type State struct {
	Running Held   `json:"running"`
	Kept    *Held  `json:"kept,omitempty"`  // in the other slot
	Change  Change `json:"change,omitzero"` // the last one
	// Packages are those of the running root. They have a file of their own.
	Packages *Packages `json:"-"`
}

// Verbs of changes.
const (
	VerbUpgrade  = "upgrade"
	VerbRollback = "rollback"
)

// Change is one change of the root.
type Change struct {
	Verb     string    `json:"verb,omitempty"`
	Task     string    `json:"task,omitempty"` // of an outer plan that asked for it
	By       string    `json:"by,omitempty"`
	Stage    Stage     `json:"stage,omitempty"`
	From     Held      `json:"from,omitzero"`
	To       Held      `json:"to,omitzero"`
	Done     int64     `json:"done,omitempty"` // bytes of Total, while it is written
	Total    int64     `json:"total,omitempty"`
	Began    time.Time `json:"began,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	Reason   string    `json:"reason,omitempty"` // why it failed
	Hint     string    `json:"hint,omitempty"`
	Restores bool      `json:"restores,omitempty"` // the new root takes the data that was saved when it was left
	Restored bool      `json:"restored,omitempty"` // and has it
	Within   int       `json:"within,omitempty"`   // seconds for the new root to become healthy
}

// Request is what the director asks root for.
type Request struct {
	Verb   string `json:"verb"`
	By     string `json:"by"`               // the user
	Task   string `json:"task,omitempty"`   // of an outer plan that asks for it
	Within int    `json:"within,omitempty"` // seconds for the new root to become healthy
	Drain  int    `json:"drain"`            // seconds for running steps to end
	// LoseChanges agrees that a rollback restores the database of before the upgrade.
	LoseChanges bool `json:"lose_changes,omitempty"`
}

// Bounds of a request, in seconds.
const (
	LeastWithin = 60   // of Within
	UsualWithin = 900  // of Within, if it is left out
	MostWithin  = 7200 // of Within
	UsualDrain  = 900  // of Drain, if it is left out
	MostDrain   = 7200 // of Drain
)

// ParseRequest reads a request, and fills in what it leaves out. It comes from a process with fewer rights: nothing of
// it is taken unchecked. Errors: invalid.
func ParseRequest(text []byte) (Request, error) {
	var r Request
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	bad := director.Errorf(director.KindInvalid, "rootdisk.request", "the request is not right")
	if err := dec.Decode(&r); err != nil {
		return r, bad
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return r, bad
	}
	if r.Within == 0 {
		r.Within = UsualWithin
	}
	if r.Verb != VerbUpgrade && r.Verb != VerbRollback || len(r.By) > 256 || len(r.Task) > 128 ||
		r.Within < LeastWithin || r.Within > MostWithin || r.Drain < 0 || r.Drain > MostDrain {
		return r, bad
	}
	return r, nil
}
