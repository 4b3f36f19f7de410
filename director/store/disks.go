package store

import (
	"context"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
)

type diskRow struct {
	ID                              string `gorm:"primaryKey"`
	Provider, Name, Host            string
	Machine, Serial                 string
	Size                            int64
	ClusterUID, Cluster, Pool, Node string
	PlanID                          string
	KeptAt                          int64
	Holder, CopyOf                  string
}

func (diskRow) TableName() string { return "kept_disks" }

func (r diskRow) toDomain() director.KeptDisk {
	return director.KeptDisk{
		ID: r.ID, Provider: r.Provider, Name: r.Name, Host: r.Host, Machine: r.Machine, Serial: r.Serial, Size: r.Size,
		ClusterUID: r.ClusterUID, Cluster: r.Cluster, Pool: r.Pool, Node: r.Node, Plan: r.PlanID,
		Kept: instant(r.KeptAt), Holder: r.Holder, CopyOf: r.CopyOf,
	}
}

// DiskFilter narrows KeptDisks; an empty field selects all.
type DiskFilter struct {
	ID, Provider, Cluster, Plan, Holder string
}

// KeptDisks lists the disks that outlived their VMs by cluster, node and id, also those that a machine took over since.
func (s *machineStore) KeptDisks(ctx context.Context, f DiskFilter) ([]director.KeptDisk, error) {
	return keptDisks(s.read.WithContext(ctx), f)
}

// KeptDisks lists them as the transaction sees them. Until it ends, no other changes them.
func (t *machineTx) KeptDisks(f DiskFilter) ([]director.KeptDisk, error) {
	return keptDisks(t.locked(), f)
}

func keptDisks(q *gorm.DB, f DiskFilter) ([]director.KeptDisk, error) {
	q = q.Order("cluster, node, id")
	for column, value := range map[string]string{
		"id": f.ID, "provider": f.Provider, "cluster": f.Cluster, "plan_id": f.Plan, "holder": f.Holder,
	} {
		if value != "" {
			q = q.Where(column+" = ?", value)
		}
	}
	var rows []diskRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError("store.kept_disks", "kept disks", err)
	}
	out := make([]director.KeptDisk, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, nil
}

// KeepDisks writes the disks down before their VM goes, or before a copy is made. A step that is tried again changes
// nothing: a disk keeps the time at which its plan first kept it. It has the holder that is written: one that was taken
// over is free again without.
func (s *machineStore) KeepDisks(ctx context.Context, disks []director.KeptDisk) error {
	const op = "store.keep_disks"
	if len(disks) == 0 {
		return nil
	}
	return s.Update(ctx, func(tx *Tx) error {
		for _, d := range disks {
			had, err := tx.KeptDisks(DiskFilter{ID: d.ID})
			if err != nil {
				return err
			}
			if len(had) == 1 && had[0].Plan == d.Plan {
				d.Kept = had[0].Kept
			}
			row := diskRow{
				ID: d.ID, Provider: d.Provider, Name: d.Name, Host: d.Host, Machine: d.Machine, Serial: d.Serial,
				Size:       d.Size,
				ClusterUID: d.ClusterUID, Cluster: d.Cluster, Pool: d.Pool, Node: d.Node, PlanID: d.Plan,
				KeptAt: micros(d.Kept), Holder: d.Holder, CopyOf: d.CopyOf,
			}
			if err := tx.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error; err != nil {
				return dbError(op, "disk "+d.ID, err)
			}
		}
		return nil
	})
}

// TakeDisk gives a kept disk to the machine. No error if it has it already. Errors: not_found if no such disk is kept,
// conflict if it is another machine's by now or someone else attached it.
func (s *machineStore) TakeDisk(ctx context.Context, id, machine string) error {
	return s.Update(ctx, func(tx *Tx) error { return tx.SetDiskHolder(id, machine) })
}

// SetDiskHolder is TakeDisk in a transaction. The holder director.DiskGoing keeps others from a disk that is about to
// be deleted.
func (t *machineTx) SetDiskHolder(id, holder string) error {
	const op = "store.take_disk"
	rows, err := t.KeptDisks(DiskFilter{ID: id})
	switch {
	case err != nil:
		return err
	case len(rows) == 0:
		return director.Errorf(director.KindNotFound, op, "no disk %q is kept", id).
			WithHint("see: directorctl disks list")
	case rows[0].Holder == holder:
		return nil
	case rows[0].Foreign() && holder != director.DiskGoing:
		return director.Errorf(director.KindConflict, op, "the director did not make the disk %s", id).
			WithHint("attach it with the hypervisor's own tools")
	case rows[0].CopyOf != "" && holder != director.DiskGoing:
		return director.Errorf(
			director.KindConflict, op, "the disk %s is a copy that plan %s made", id, rows[0].Plan,
		).WithHint("see: directorctl disks list")
	case rows[0].Holder == director.DiskGoing:
		return director.Errorf(director.KindConflict, op, "the disk %s is being deleted", id)
	case rows[0].Holder != "":
		return director.Errorf(director.KindConflict, op, "machine %s has taken over the disk %s", rows[0].Holder, id).
			WithHint("see: directorctl disks list")
	}
	return dbError(op, "disk "+id, t.db.Model(&diskRow{}).Where("id = ?", id).Update("holder", holder).Error)
}

// ForgetDisk takes the disk off the list. No error if it is not on it.
func (s *machineStore) ForgetDisk(ctx context.Context, id string) error {
	return s.Update(ctx, func(tx *Tx) error {
		return dbError("store.forget_disk", "disk "+id, tx.db.Where("id = ?", id).Delete(&diskRow{}).Error)
	})
}

// DisksOf lists the disks that the machine took over.
func (s *machineStore) DisksOf(ctx context.Context, machine string) ([]director.KeptDisk, error) {
	return s.KeptDisks(ctx, DiskFilter{Holder: machine})
}
