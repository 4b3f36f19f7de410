package store

import (
	"context"

	"github.com/director-kaas/kaas/director"
)

// livingMACs are the adapters that no other one may share its MAC address with.
const livingMACs = "deleted_at = 0 AND mac <> ''"

// MACs returns the MAC addresses of all adapters of machines that exist or are reserved.
func (s *machineStore) MACs(ctx context.Context) (map[string]bool, error) {
	var macs []string
	err := s.read.WithContext(ctx).Model(&nicRow{}).Where(livingMACs).Pluck("mac", &macs).Error
	out := make(map[string]bool, len(macs))
	for _, m := range macs {
		out[m] = true
	}
	return out, dbError("store.macs", "MAC addresses", err)
}

// SharedMAC is a MAC address that several machines have.
type SharedMAC struct {
	MAC      string
	Machines []string // by name
}

// SharedMACs returns the MAC addresses that several adapters have. New machines never share one; machines from before
// may.
func (s *machineStore) SharedMACs(ctx context.Context) ([]SharedMAC, error) {
	var rows []struct{ MAC, Name string }
	err := s.read.WithContext(ctx).Raw(`SELECT machine_nics.mac AS mac, machines.name AS name FROM machine_nics
		JOIN machines ON machines.id = machine_nics.machine_id
		WHERE machine_nics.deleted_at = 0 AND machine_nics.mac IN (
			SELECT mac FROM machine_nics WHERE ` + livingMACs + ` GROUP BY mac HAVING count(*) > 1)
		ORDER BY machine_nics.mac, machines.name`).Scan(&rows).Error
	var out []SharedMAC
	for _, r := range rows {
		if len(out) == 0 || out[len(out)-1].MAC != r.MAC {
			out = append(out, SharedMAC{MAC: r.MAC})
		}
		last := &out[len(out)-1]
		last.Machines = append(last.Machines, r.Name)
	}
	return out, dbError("store.macs", "MAC addresses", err)
}

// macsFree is a conflict if another living adapter has a MAC address of the machine. Transactions that add machines
// take turns behind this line, so that the answer is clear; the unique index holds whatever comes.
func (t *machineTx) macsFree(op string, m director.Machine, nics []director.NIC) error {
	if err := t.store.exclusive(t.db, lockMACs); err != nil {
		return dbError(op, "MAC addresses", err)
	}
	var macs []string
	for _, n := range nics {
		if n.MAC != "" {
			macs = append(macs, n.MAC)
		}
	}
	var taken []string
	err := t.db.Model(&nicRow{}).Where(livingMACs+" AND mac IN ?", macs).Order("mac").Limit(1).Pluck(
		"mac", &taken,
	).Error
	if err != nil || len(taken) == 0 {
		return dbError(op, "MAC addresses", err)
	}
	return director.Errorf(
		director.KindConflict, op,
		"the MAC address %s, which machine %s was to have, belongs to another machine by now", taken[0], m.Name,
	).
		WithHint("plan again: directorctl plan %s", m.Cluster)
}
