package documents

import (
	"fmt"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// Condition is what a caller wants to be true of a document at the moment when it is changed. The zero value wants
// nothing.
type Condition struct {
	Tags   []string // one of these is its tag; "*" is any, so that it must exist
	Absent bool     // it does not exist
}

// Any reports whether there is a condition at all.
func (c Condition) Any() bool { return len(c.Tags) > 0 || c.Absent }

// Check returns nil if the stored document fulfils the condition; nil means that there is none. Otherwise stale says
// what is there now.
func (c Condition) Check(ref model.Ref, stored *model.Stored) error {
	e := &director.Error{
		Kind: director.KindStale, Op: "documents.condition",
		Hint: fmt.Sprintf("read it again: directorctl get %s %s -o yaml", strings.ToLower(string(ref.Kind)), ref.Name),
	}
	switch {
	case c.Absent && stored != nil:
		e.Msg = fmt.Sprintf("%s exists already, at generation %d by %s", ref, stored.Generation, stored.UpdatedBy)
	case len(c.Tags) > 0 && stored == nil:
		e.Msg, e.Hint = fmt.Sprintf("%s does not exist", ref), "leave the condition out to make it"
	case len(c.Tags) > 0 && !slices.Contains(c.Tags, "*") && !slices.Contains(c.Tags, ETag(*stored)):
		e.Msg = fmt.Sprintf(
			"%s has changed meanwhile: it is at generation %d, by %s at %s", ref, stored.Generation, stored.UpdatedBy,
			stored.Updated.Format("2006-01-02 15:04:05Z"),
		)
	default:
		return nil
	}
	return e
}

// ETag is the tag of a stored document. It has the generation, and the incarnation too: a document that was deleted and
// made again starts to count from zero.
func ETag(d model.Stored) string { return fmt.Sprintf("%q", fmt.Sprintf("%s-%d", d.UID, d.Generation)) }
