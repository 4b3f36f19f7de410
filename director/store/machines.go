package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/director-kaas/kaas/director"
)

type machineRow struct {
	ID, ClusterUID, Cluster, Name, Role, Pool string
	Provider, Network, Image                  string
	Address, MAC, Host, State                 string
	VMID                                      string `gorm:"column:vm_id"`
	CPUs                                      int    `gorm:"column:cpus"`
	Memory                                    int64  `gorm:"column:memory"`
	Kubernetes                                string
	CreatedAt, DeletedAt                      int64 `gorm:"autoCreateTime:false"`
}

func (machineRow) TableName() string { return "machines" }

func (r machineRow) toDomain() director.Machine {
	return director.Machine{
		ID: r.ID, ClusterUID: r.ClusterUID, Cluster: r.Cluster, Name: r.Name, Role: director.Role(r.Role), Pool: r.Pool,
		Provider: r.Provider, Network: r.Network, Image: r.Image, Address: r.Address, MAC: r.MAC, Host: r.Host, VMID: r.VMID,
		CPUs: r.CPUs, Memory: r.Memory, State: director.MachineState(r.State), Kubernetes: r.Kubernetes,
		Created: instant(r.CreatedAt), Deleted: instant(r.DeletedAt),
	}
}

// MachineFilter narrows Machines.
type MachineFilter struct {
	Cluster     string // name; empty for all
	Provider    string // empty for all
	Tombstones  bool   // also those that were deleted
	ClusterUID  string // empty for all
	NetworkName string // empty for all
}

// Machines lists the ledger's rows by cluster, role and name.
func (s *Store) Machines(ctx context.Context, f MachineFilter) ([]director.Machine, error) {
	q := s.read.WithContext(ctx).Order("cluster, role, name, created_at")
	for column, value := range map[string]string{"cluster": f.Cluster, "provider": f.Provider, "cluster_uid": f.ClusterUID, "network": f.NetworkName} {
		if value != "" {
			q = q.Where(column+" = ?", value)
		}
	}
	if !f.Tombstones {
		q = q.Where("deleted_at = 0")
	}
	var rows []machineRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError("store.machines", "machines", err)
	}
	out := make([]director.Machine, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, nil
}

// NetworkUser returns the name of a cluster with machines on the provider's network, also such that are only reserved, or "".
func (s *Store) NetworkUser(ctx context.Context, provider, network string) (string, error) {
	var names []string
	err := s.read.WithContext(ctx).Model(&machineRow{}).Where("provider = ? AND network = ? AND deleted_at = 0", provider, network).
		Order("cluster").Limit(1).Pluck("cluster", &names).Error
	if err != nil || len(names) == 0 {
		return "", dbError("store.network_user", "machines", err)
	}
	return names[0], nil
}

// IntendMachine reserves the machine with its address. No error if the same id is there already; conflict if its name or address
// belongs to another machine, or if the id is a tombstone's: it was used, and is never used for another VM.
func (t *Tx) IntendMachine(m director.Machine, now time.Time) error {
	const op = "store.intend"
	row, there, err := t.Machine(m.ID)
	switch {
	case err != nil:
		return err
	case there && row.Deleted.IsZero():
		return nil
	case there:
		return director.Errorf(director.KindConflict, op, "machine %s (%s) was taken away since the plan was made", m.Name, m.ID).
			WithHint("plan again: directorctl plan %s", m.Cluster)
	}
	m.State = director.MachineIntended
	return t.addMachine(op, m, now)
}

func (t *Tx) addMachine(op string, m director.Machine, now time.Time) error {
	err := t.db.Create(&machineRow{
		ID: m.ID, ClusterUID: m.ClusterUID, Cluster: m.Cluster, Name: m.Name, Role: string(m.Role), Pool: m.Pool,
		Provider: m.Provider, Network: m.Network, Image: m.Image, Address: m.Address, MAC: m.MAC, Host: m.Host, VMID: m.VMID,
		CPUs: m.CPUs, Memory: m.Memory, State: string(m.State), Kubernetes: m.Kubernetes, CreatedAt: micros(now), DeletedAt: micros(m.Deleted),
	}).Error
	return dbError(op, "a machine with the name "+m.Name+" or the address "+m.Address, err)
}

// SetMachine records where the machine stands. host and vmID are kept when empty.
func (s *Store) SetMachine(ctx context.Context, id string, state director.MachineState, host, vmID string) error {
	set := map[string]any{"state": string(state)}
	if host != "" {
		set["host"] = host
	}
	if vmID != "" {
		set["vm_id"] = vmID
	}
	err := s.write.WithContext(ctx).Model(&machineRow{}).Where("id = ? AND deleted_at = 0", id).Updates(set).Error
	return dbError("store.machine", "machine "+id, err)
}

// Membership is what a machine is to its cluster.
type Membership struct {
	State      director.MachineState
	Kubernetes string // version that it runs as a member; empty for a machine that is none
	Image      string // that its VM was made from; empty if that stays as it is
}

// SetMembership records what the machine is to its cluster. No error if it is gone.
func (s *Store) SetMembership(ctx context.Context, id string, m Membership) error {
	set := map[string]any{"state": string(m.State), "kubernetes": m.Kubernetes}
	if m.Image != "" {
		set["image"] = m.Image
	}
	err := s.write.WithContext(ctx).Model(&machineRow{}).Where("id = ? AND deleted_at = 0", id).Updates(set).Error
	return dbError("store.membership", "machine "+id, err)
}

// RemoveVM records that the machine's VM is gone and another one will follow: the row keeps its name and address.
func (s *Store) RemoveVM(ctx context.Context, id string) error {
	set := map[string]any{"state": string(director.MachineIntended), "vm_id": "", "kubernetes": ""}
	err := s.write.WithContext(ctx).Model(&machineRow{}).Where("id = ? AND deleted_at = 0", id).Updates(set).Error
	return dbError("store.remove_vm", "machine "+id, err)
}

// SetMembers records the version that the named machines of the cluster run.
func (t *Tx) SetMembers(clusterUID string, names []string, kubernetes string) error {
	err := t.db.Model(&machineRow{}).Where("cluster_uid = ? AND name IN ? AND deleted_at = 0", clusterUID, names).Update("kubernetes", kubernetes).Error
	return dbError("store.members", "the machines of cluster "+clusterUID, err)
}

// BuryMachine turns the row into a tombstone, which frees its name and address. No error if it is one already.
func (s *Store) BuryMachine(ctx context.Context, id string, now time.Time) error {
	err := s.write.WithContext(ctx).Exec("UPDATE machines SET deleted_at = ? WHERE id = ? AND deleted_at = 0", micros(now), id).Error
	return dbError("store.bury", "machine "+id, err)
}

func isNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }
