package store

import (
	"context"
	"time"

	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
)

type lostHostRow struct {
	Provider string `gorm:"primaryKey"`
	Host     string `gorm:"primaryKey"`
	SaidBy   string
	PlanID   string
	SaidAt   int64 `gorm:"autoCreateTime:false"`
}

func (lostHostRow) TableName() string { return "lost_hosts" }

// LostHosts lists the hosts that were declared lost, of the provider or of all if it is empty, by provider and name.
func (s *machineStore) LostHosts(ctx context.Context, provider string) ([]director.LostHost, error) {
	q := s.read.WithContext(ctx).Order("provider, host")
	if provider != "" {
		q = q.Where("provider = ?", provider)
	}
	var rows []lostHostRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError("store.lost_hosts", "lost hosts", err)
	}
	out := make([]director.LostHost, len(rows))
	for i, r := range rows {
		out[i] = director.LostHost{
			Provider: r.Provider, Host: r.Host, By: r.SaidBy, Plan: r.PlanID, At: instant(r.SaidAt),
		}
	}
	return out, nil
}

// LoseHost writes down that the host is lost. Who said so first stays.
func (t *machineTx) LoseHost(h director.LostHost) error {
	row := lostHostRow{Provider: h.Provider, Host: h.Host, SaidBy: h.By, PlanID: h.Plan, SaidAt: micros(h.At)}
	return dbError(
		"store.lose_host", "host "+h.Host, t.db.Clauses(clause.OnConflict{DoNothing: true}).Create(&row).Error,
	)
}

// FindHost takes the host off the list of lost ones. It reports whether it was there.
func (t *machineTx) FindHost(provider, host string) (bool, error) {
	r := t.db.Where("provider = ? AND host = ?", provider, host).Delete(&lostHostRow{})
	return r.RowsAffected > 0, dbError("store.find_host", "host "+host, r.Error)
}

// LostMachines lists the tombstones of machines that were given up with their hosts and not seen to be gone since, of
// the provider or of all if it is empty, by name.
func (s *machineStore) LostMachines(ctx context.Context, provider string) ([]director.Machine, error) {
	q := s.read.WithContext(ctx).Where("state = ? AND deleted_at <> 0", string(director.MachineLost)).Order(
		"cluster, name, deleted_at",
	)
	if provider != "" {
		q = q.Where("provider = ?", provider)
	}
	var rows []machineRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError("store.lost_machines", "machines", err)
	}
	out := make([]director.Machine, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, dbError("store.lost_machines", "machines", withNICs(s.read.WithContext(ctx), out))
}

// LoseMachine makes the row the tombstone of a machine that was given up with its host, which may exist still. No error
// if it is a tombstone already.
func (s *machineStore) LoseMachine(ctx context.Context, id string, now time.Time) error {
	return s.Update(ctx, func(tx *Tx) error { return tx.bury(id, director.MachineLost, now) })
}

// MoveMachine makes the row of a machine a tombstone, of one that was given up with its host if lost, and reserves its
// successor in the same moment: no other machine can get the name and addresses that both have in between. It can be
// repeated. Conflict if another machine has an address of the successor by now.
func (s *machineStore) MoveMachine(
	ctx context.Context, id string, lost bool, next director.Machine, now time.Time,
) error {
	return s.Update(ctx, func(tx *Tx) error {
		state := director.MachineDeleting
		if lost {
			state = director.MachineLost
		}
		if err := tx.bury(id, state, now); err != nil {
			return err
		}
		return tx.IntendMachine(next, now)
	})
}

// ForgetLost makes the tombstone of a machine that was given up one like any other: its VM is gone, or known to be off
// for good. Disks that were held for it are free.
func (t *machineTx) ForgetLost(id string) error {
	err := t.db.Exec(
		"UPDATE machines SET state = ? WHERE id = ? AND state = ? AND deleted_at <> 0",
		string(director.MachineDeleting), id, string(director.MachineLost),
	).Error
	if err == nil {
		err = t.db.Model(&diskRow{}).Where("holder = ?", id).Update("holder", "").Error
	}
	return dbError("store.forget_lost", "machine "+id, err)
}

func (t *machineTx) bury(id string, state director.MachineState, now time.Time) error {
	err := t.db.Exec(
		"UPDATE machines SET state = ?, deleted_at = ? WHERE id = ? AND deleted_at = 0", string(state), micros(now), id,
	).Error
	if err == nil {
		err = t.db.Exec(
			"UPDATE machine_nics SET deleted_at = ? WHERE machine_id = ? AND deleted_at = 0", micros(now), id,
		).Error
	}
	return dbError("store.bury", "machine "+id, err)
}
