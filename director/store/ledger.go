package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Machine returns the ledger's row of that id, also a tombstone; false if there is none.
func (s *machineStore) Machine(ctx context.Context, id string) (director.Machine, bool, error) {
	return machineOf(s.read.WithContext(ctx), id)
}

// Machine returns the row as the transaction sees it, also a tombstone. Until the transaction ends, no other changes
// the row.
func (t *machineTx) Machine(id string) (director.Machine, bool, error) {
	return machineOf(t.locked(), id)
}

func machineOf(db *gorm.DB, id string) (director.Machine, bool, error) {
	var rows []machineRow
	if err := db.Where("id = ?", id).Limit(1).Find(&rows).Error; err != nil || len(rows) == 0 {
		return director.Machine{}, false, dbError("store.machine", "machine "+id, err)
	}
	out := []director.Machine{rows[0].toDomain()}
	err := withNICs(db.Session(&gorm.Session{NewDB: true}), out)
	return out[0], true, dbError("store.machine", "machine "+id, err)
}

// AdoptMachine writes the row of a VM that exists: a new one, or the tombstone of its id comes to life again. Conflict
// if a living row has the id, the name or the address.
func (t *machineTx) AdoptMachine(m director.Machine, now time.Time) error {
	const op = "store.adopt"
	row, there, err := t.Machine(m.ID)
	switch {
	case err != nil:
		return err
	case there && row.Deleted.IsZero():
		return director.Errorf(director.KindConflict, op, "machine %s is in the ledger", m.ID)
	case there:
		err := errors.Join(
			t.db.Where("machine_id = ?", m.ID).Delete(&nicRow{}).Error,
			t.db.Where("id = ?", m.ID).Delete(&machineRow{}).Error,
		)
		if err != nil {
			return dbError(op, "machine "+m.ID, err)
		}
		now = row.Created
	}
	m.Deleted = time.Time{}
	return t.addMachine(op, m, now)
}

// DisownMachine leaves a tombstone for a VM without a living row, so that its id is never used again. No error if there
// is one already. Conflict if a living row has the id.
func (t *machineTx) DisownMachine(m director.Machine, now time.Time) error {
	row, there, err := t.Machine(m.ID)
	switch {
	case err != nil:
		return err
	case there && row.Deleted.IsZero():
		return director.Errorf(
			director.KindConflict, "store.disown", "machine %s (%s) of cluster %s is in the ledger", m.ID, row.Name,
			row.Cluster,
		)
	case there:
		return nil
	}
	m.State, m.Deleted = director.MachineDeleting, now
	return t.addMachine("store.disown", m, now)
}

// IntendAgain makes sure, before a VM is made, that the ledger has a living row of it: a plan that is retried after its
// undo finds a tombstone. Conflict if the name or the address belongs to another machine by now.
func (s *machineStore) IntendAgain(ctx context.Context, m director.Machine, now time.Time) error {
	if row, there, err := s.Machine(ctx, m.ID); err != nil || there && row.Deleted.IsZero() {
		return err
	}
	return s.Update(ctx, func(tx *Tx) error {
		row, there, err := tx.Machine(m.ID)
		if err != nil || there && row.Deleted.IsZero() {
			return err
		}
		if there && row.State == director.MachineLost {
			return director.Errorf(
				director.KindConflict, "store.intend",
				"machine %s (%s) was given up with host %s, and never runs again", m.Name, m.ID, row.Host,
			).
				WithHint("discard this plan and plan again: directorctl plan %s", m.Cluster)
		}
		m.State, m.VMID, m.Kubernetes = director.MachineIntended, "", ""
		return tx.AdoptMachine(m, now)
	})
}

// over reports whether a plan with the status can never continue.
func over(p plan.Status) bool { return slices.Contains(finishedStatuses, p) }

// unfinished are the statuses of plans that may still make what they name.
func unfinished() []string {
	var out []string
	for _, p := range plan.Statuses() {
		if !over(p) {
			out = append(out, string(p))
		}
	}
	return out
}
