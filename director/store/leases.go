package store

import (
	"context"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Lease says that owner runs the step until the given time, unless it renews.
func (t *planTx) Lease(planID, step, owner string, until time.Time) error {
	err := t.db.Model(&stepRow{}).Where("plan_id = ? AND step_id = ?", planID, step).
		Updates(map[string]any{"lease_owner": owner, "lease_until": micros(until)}).Error
	return dbError("store.lease", "step "+step, err)
}

// heldSteps selects the steps that an engine holds. Its first half is that of the index plan_steps_moving: without it,
// SQLite reads the steps of all plans there ever were.
const heldSteps = "status IN ('running', 'waiting', 'undo_due', 'undoing') AND status IN ('running', 'undoing')"

// Renew extends every lease of owner. It returns the attempts that owner holds then, and those of them that a person
// wants to end now.
func (s *planStore) Renew(ctx context.Context, owner string, until time.Time) (held, stop []plan.StepRef, err error) {
	var rows []stepRow
	err = s.retried(ctx, func() error {
		rows = nil
		return s.write.WithContext(ctx).Raw(
			"UPDATE plan_steps SET lease_until = ? WHERE "+heldSteps+" AND lease_owner = ? "+
				"RETURNING plan_id, step_id, attempt, stop_asked", micros(until), owner,
		).Scan(&rows).Error
	})
	for _, r := range rows {
		held = append(held, r.ref())
		if r.StopAsked != 0 {
			stop = append(stop, r.ref())
		}
	}
	return held, stop, dbError("store.renew", "leases", err)
}

const lapsed = heldSteps + " AND (lease_until < ? OR (lease_owner LIKE ? AND lease_owner <> ?))"

// Lost returns the running steps whose lease has ended, or whose owner's name begins with prefix but is not owner: the
// steps of an earlier process of the same instance.
func (s *planStore) Lost(ctx context.Context, now time.Time, prefix, owner string) ([]plan.StepRef, error) {
	var rows []stepRow
	err := s.read.WithContext(ctx).Where(lapsed, micros(now), prefix+"%", owner).Order("plan_id, ord").Find(&rows).Error
	return refs(rows), dbError("store.lost", "leases", err)
}

// Lapsed says whether Lost would still name the attempt, and keeps its holder from renewing until the transaction ends.
func (t *planTx) Lapsed(ref plan.StepRef, now time.Time, prefix, owner string) (bool, error) {
	var rows []stepRow
	err := t.locked().Where("plan_id = ? AND step_id = ? AND attempt = ?", ref.Plan, ref.Step, ref.Attempt).
		Where(lapsed, micros(now), prefix+"%", owner).Find(&rows).Error
	return len(rows) > 0, dbError("store.lost", "step "+ref.Step, err)
}

// Stop asks the holders of the plan's running steps to end them now. They learn of it from Renew.
func (t *planTx) Stop(planID string) error {
	t.look = true
	err := t.db.Model(&stepRow{}).Where("plan_id = ? AND status IN ('running', 'undoing')", planID).Update(
		"stop_asked", 1,
	).Error
	return dbError("store.stop", "plan "+planID, err)
}

// Beat notes that the process of the instance was alive at the time. A zero time takes the sign of life back: its peers
// then see to what it left.
func (s *instanceStore) Beat(ctx context.Context, instance, host string, started, now time.Time) error {
	err := s.retried(ctx, func() error {
		return s.write.WithContext(ctx).
			Exec(`INSERT INTO instances (id, host, started_at, seen_at, binds, address) VALUES (?, ?, ?, ?, 1, ?)
			ON CONFLICT (id) DO UPDATE SET host = excluded.host, started_at = excluded.started_at,
				seen_at = excluded.seen_at, binds = 1, address = excluded.address`,
				instance, host, micros(started), micros(now), s.address()).Error
	})
	return dbError("store.beat", "instance "+instance, err)
}

// Advertise has the signs of life say where other directors reach this one.
func (s *instanceStore) Advertise(address string) { s.advertised.Store(&address) }

func (s *instanceStore) address() string {
	if a := s.advertised.Load(); a != nil {
		return *a
	}
	return ""
}

// Peer returns where the director with the instance says that it can be reached, and its host. The address is empty if
// it does not say. Errors: not_found if no such director gives signs of life.
func (s *instanceStore) Peer(ctx context.Context, instance string) (address, host string, err error) {
	var rows []struct{ Address, Host string }
	err = s.read.WithContext(ctx).Raw(
		"SELECT address, host FROM instances WHERE id = ? AND seen_at > 0", instance,
	).Scan(&rows).Error
	if err != nil {
		return "", "", dbError("store.peer", "instance "+instance, err)
	}
	if len(rows) == 0 {
		return "", "", director.Errorf(director.KindNotFound, "store.peer", "no director %s is there", instance)
	}
	return rows[0].Address, rows[0].Host, nil
}

// Instance is a director that gives signs of life.
type Instance struct{ ID, Host string }

// Instances returns the directors that give signs of life, by their hosts.
func (s *instanceStore) Instances(ctx context.Context) ([]Instance, error) {
	var out []Instance
	err := s.read.WithContext(ctx).Raw(
		"SELECT id, host FROM instances WHERE seen_at > 0 ORDER BY host, id",
	).Scan(&out).Error
	return out, dbError("store.instances", "instances", err)
}

// Gone removes the instances that were not seen since the time, other than instance itself, and returns them. Of
// several callers one gets each.
func (s *instanceStore) Gone(ctx context.Context, since time.Time, instance string) ([]string, error) {
	var ids []string
	err := s.retried(ctx, func() error {
		ids = nil
		return s.write.WithContext(ctx).Raw(
			"DELETE FROM instances WHERE seen_at < ? AND id <> ? RETURNING id", micros(since), instance,
		).Scan(&ids).Error
	})
	return ids, dbError("store.gone", "instances", err)
}

// locked keeps the rows that are read next from other transactions. SQLite has one writer anyway, and no such clause.
func (t *txn) locked() *gorm.DB {
	if t.conn == nil {
		return t.db
	}
	return t.db.Clauses(forUpdate)
}

func (r stepRow) ref() plan.StepRef {
	return plan.StepRef{Plan: r.PlanID, Step: r.StepID, Attempt: r.Attempt}
}

func refs(rows []stepRow) []plan.StepRef {
	out := make([]plan.StepRef, len(rows))
	for i, r := range rows {
		out[i] = r.ref()
	}
	return out
}
