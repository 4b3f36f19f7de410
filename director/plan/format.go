package plan

import "github.com/director-kaas/kaas/director"

// Format is the format of the contents that this director writes. It reads all formats up to this one.
//
//	1: machines are rows of the ledger. A content of this format does not name it.
//	2: machines are MachineSpecs.
//	3: the start changes the cluster's document. Contents that do not are of format 2.
const Format = 3

// Plain is the format of contents whose start changes no document.
const Plain = 2

// Readable returns a conflict for a content of a newer format. Such a plan can be shown, cancelled and discarded, but
// no step of it runs.
func (c Content) Readable() error {
	if c.Format <= Format {
		return nil
	}
	needed := "the director that made it"
	if c.DirectorVersion != "" {
		needed = "director " + c.DirectorVersion
	}
	return director.Errorf(
		director.KindConflict, "plan.format",
		"the plan for cluster %s has the format %d, and this director reads formats up to %d", c.Cluster, c.Format,
		Format,
	).
		WithHint("upgrade this director to %s or a newer one, or discard the plan", needed)
}
