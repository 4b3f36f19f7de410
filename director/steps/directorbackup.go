package steps

import (
	"context"
	"errors"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// DirectorBackups makes backups of the director itself.
type DirectorBackups interface {
	// Save makes one backup and says which: of all that the director is made of, in the target; or, without a target, a
	// copy of the database, of which the newest stay, as many as keep.
	Save(ctx context.Context, target string, keep int) (said string, err error)
}

// directorBackup makes a backup of the director, so that one that is restored knows the keys that nodes are given next.
// Run again, it makes another one. Without it the nodes are not touched until a person says so.
func (e backupSteps) directorBackup(ctx context.Context, r plan.Run, p step.DirectorBackupParams) error {
	if e.DirectorBackups == nil {
		return director.Errorf(director.KindConflict, step.DirectorBackup, "this director makes no backups of itself")
	}
	said, err := e.DirectorBackups.Save(ctx, p.Target, p.Keep)
	if err == nil {
		r.Note(ctx, said)
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	question := "correct what is wrong and retry the step. To give nodes keys that no backup of the director has: " +
		"directorctl skip " + r.Plan.ID + " --step " + r.Step.ID + " --reason WHY"
	_, told := errors.AsType[*director.Error](err)
	if !told || director.KindOf(err) == director.KindUnavailable {
		return plan.ParkLast(err, question)
	}
	return plan.Park(err, question)
}
