package consulsync

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// The kinds of removals that are guarded, each by itself.
const (
	HoldExport   = "entries"   // of Consul
	HoldImport   = "endpoints" // of imported Services
	HoldServices = "services"  // that were imported
)

// Hold is a set of removals that waits for a person.
type Hold struct {
	What   string   `json:"what"`  // entries, endpoints or services
	ID     string   `json:"id"`    // of exactly this set
	Count  int      `json:"count"` // how many would go
	Total  int      `json:"total"` // of how many
	Sample []string `json:"sample"`
}

const sampleSize = 10

// Check returns nil if the removals may go ahead, and otherwise what has to be confirmed. gone names what would be
// removed, in any order; total counts what is there. confirmed are the ids that a person has confirmed. An id holds for
// the same set alone: one more removal is a new question.
func (g Guard) Check(what string, gone []string, total int, confirmed []string) *Hold {
	n := len(gone)
	if n <= g.Minimum || n*100 <= g.Percent*total {
		return nil
	}
	sorted := slices.Sorted(slices.Values(gone))
	sum := sha256.Sum256([]byte(what + "\n" + strings.Join(sorted, "\n")))
	id := hex.EncodeToString(sum[:6])
	if slices.Contains(confirmed, id) {
		return nil
	}
	return &Hold{What: what, ID: id, Count: n, Total: total, Sample: sorted[:min(n, sampleSize)]}
}
