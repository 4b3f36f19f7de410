package planner

import (
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// DirectorBackups is where the director's schedules make backups of the director itself.
type DirectorBackups struct {
	Targets []string // sorted
	// Copies are how many copies of the database stay on the director's own machine; zero for a database that is not
	// copied there.
	Copies int
}

// backupDraft plan backups of directors, drills and restores.
type backupDraft struct{ *draft }

func (d *draft) backups() backupDraft { return backupDraft{d} }

// ChangesKeys reports whether the plan of the request gives the cluster other keys than the director had before.
func ChangesKeys(w World, r plan.Request) bool {
	switch r.Operation {
	case plan.ClusterEncryptionKey, plan.ClusterSigningKey, plan.ClusterSSHAuthority:
		return true
	case plan.ClusterRotateCerts:
		return r.Certificates.Cold && len(w.EndedAuthorities) > 0
	}
	return slices.Contains(AuthorityOperations(), r.Operation)
}

// saveDirector makes backups of the director, which has changed keys and given them to no node yet. It returns the last
// steps. A director that is restored from the newest backup must be able to go on from what the nodes have, so plans do
// this twice:
//
//   - when the other key is made, before nodes accept it next to the former one;
//   - when the other key is chosen, before nodes use it. With the first backup alone, a restored director would put the
//     former key first again, and nodes that have given it up would refuse each other, or the director.
//
// None is needed when the former key is dropped: a director that still has it lets nodes accept it once more, which
// harms nothing, and drops it again.
func (d backupDraft) saveDirector(when, what string, needs []string) []string {
	from := d.w.DirectorBackups
	switch {
	case len(from.Targets) > 0:
		var last []string
		for _, target := range from.Targets {
			last = append(last, d.saveDirectorTo(when, what, target, needs))
		}
		return last
	case from.Copies > 0:
		d.warn("the director is backed up on its own machine alone: " + noBackupElsewhere)
		return []string{d.saveDirectorTo(when, what, "", needs)}
	}
	d.warn("this plan makes no backup of the director: " + noBackupElsewhere)
	return needs
}

const noBackupElsewhere = "if it is lost, no backup has the new keys, and the cluster " +
	"refuses a director without them; name a BackupTarget in a schedule of the job backup"

func (d backupDraft) saveDirectorTo(when, what, target string, needs []string) string {
	s := plan.Step{
		ID: step.DirectorBackup + "/" + when, Kind: step.DirectorBackup, Title: "Back up the director, which " + what,
		Needs:   needs,
		Budgets: []string{step.BudgetDirectorBackup},
		Params:  encode(step.DirectorBackupParams{Keep: d.w.DirectorBackups.Copies}),
		Effects: []plan.Effect{{
			Verb: "create", Object: "backup", Name: "director", Detail: "a copy of the database, on its own machine",
		}},
		Attempts: 3, Timeout: time.Hour, Estimate: 5 * time.Second,
	}
	if target != "" {
		s.ID += "-" + target
		s.Title = strings.Replace(s.Title, ",", " to "+target+",", 1)
		s.Budgets[0] += "/" + target
		s.Params = encode(step.DirectorBackupParams{Target: target})
		s.Effects[0].Name = target
		s.Effects[0].Detail = "all that the director is made of; encrypted, read back and compared"
	}
	return d.add(s)
}
