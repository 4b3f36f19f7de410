package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
)

type machineRow struct {
	ID, ClusterUID, Cluster, Name, Role, Pool string
	Provider, Network, Image                  string
	Address, MAC, Host, State                 string
	VMID                                      string `gorm:"column:vm_id"`
	CPUs                                      int    `gorm:"column:cpus"`
	Memory                                    int64  `gorm:"column:memory"`
	Kubernetes, KeptBy                        string
	CreatedAt, DeletedAt                      int64 `gorm:"autoCreateTime:false"`
}

func (machineRow) TableName() string { return "machines" }

func (r machineRow) toDomain() director.Machine {
	return director.Machine{
		ID: r.ID, ClusterUID: r.ClusterUID, Cluster: r.Cluster, Name: r.Name, Role: director.Role(r.Role), Pool: r.Pool,
		Provider: r.Provider, Network: r.Network, Image: r.Image, Address: r.Address, MAC: r.MAC, Host: r.Host,
		VMID: r.VMID,
		CPUs: r.CPUs, Memory: r.Memory, State: director.MachineState(r.State), Kubernetes: r.Kubernetes,
		KeptBy:  r.KeptBy,
		Created: instant(r.CreatedAt), Deleted: instant(r.DeletedAt),
	}
}

// nicRow is an adapter of a machine. The one with ord 0 is the machine's first, whose address the machine's own row has
// too: so every assigned address is in one table, and is assigned once.
type nicRow struct {
	MachineID string
	Ord       int
	Role      string
	Network   string
	Address   string
	MAC       string
	DeletedAt int64 `gorm:"autoCreateTime:false"`
}

func (nicRow) TableName() string { return "machine_nics" }

// withNICs adds to the machines their further adapters.
func withNICs(db *gorm.DB, machines []director.Machine) error {
	at := make(map[string]int, len(machines))
	ids := make([]string, len(machines))
	for i, m := range machines {
		at[m.ID], ids[i] = i, m.ID
	}
	for chunk := range slices.Chunk(ids, 500) { // databases bound the number of values
		var rows []nicRow
		if err := db.Where("ord > 0 AND machine_id IN ?", chunk).Order("machine_id, ord").Find(
			&rows,
		).Error; err != nil {
			return err
		}
		for _, r := range rows {
			m := &machines[at[r.MachineID]]
			m.NICs = append(m.NICs, director.NIC{Role: r.Role, Network: r.Network, Address: r.Address, MAC: r.MAC})
		}
	}
	return nil
}

// MachineFilter narrows Machines.
type MachineFilter struct {
	Cluster     string // name; empty for all
	Provider    string // empty for all
	Tombstones  bool   // also those that were deleted
	ClusterUID  string // empty for all
	NetworkName string // of any adapter; empty for all
	Buried      bool   // only those that were deleted
	// Around selects the living rows of Provider and all of ClusterUID, also those that were deleted.
	Around bool
	Nodes  bool // only those of clusters, and not the VMs of other directors
}

// Machines lists the ledger's rows by cluster, role and name.
func (s *machineStore) Machines(ctx context.Context, f MachineFilter) ([]director.Machine, error) {
	return listMachines(s.read.WithContext(ctx), f)
}

// Machines lists the ledger's rows by cluster, role and name.
func (t *machineTx) Machines(f MachineFilter) ([]director.Machine, error) {
	return listMachines(t.db, f)
}

// Members lists the machines that are nodes of their clusters, by name. It reads nothing else of them: it is asked
// every few seconds, of fleets of ten thousand.
func (s *machineStore) Members(ctx context.Context) ([]director.Member, error) {
	rows, err := s.read.WithContext(ctx).Model(&machineRow{}).Select("cluster_uid, cluster, name, address").
		Where("deleted_at = 0 AND cluster_uid <> '' AND kubernetes <> '' AND address <> ''").Order("name").Rows()
	if err != nil {
		return nil, dbError("store.machines", "machines", err)
	}
	defer func() { _ = rows.Close() }()
	var out []director.Member
	for rows.Next() {
		var m director.Member
		if err := rows.Scan(&m.ClusterUID, &m.Cluster, &m.Name, &m.Address); err != nil {
			return nil, dbError("store.machines", "machines", err)
		}
		out = append(out, m)
	}
	return out, dbError("store.machines", "machines", rows.Err())
}

func listMachines(db *gorm.DB, f MachineFilter) ([]director.Machine, error) {
	q := db.Order("cluster, role, name, created_at")
	if f.Around {
		q = q.Where("(cluster_uid = ? OR (provider = ? AND deleted_at = 0))", f.ClusterUID, f.Provider)
		f.ClusterUID, f.Provider, f.Tombstones = "", "", true
	}
	if f.Nodes {
		q = q.Where("role <> ?", string(director.RoleDirector))
	}
	if f.Buried {
		q, f.Tombstones = q.Where("deleted_at <> 0"), true
	}
	for column, value := range map[string]string{
		"cluster": f.Cluster, "provider": f.Provider, "cluster_uid": f.ClusterUID,
	} {
		if value != "" {
			q = q.Where(column+" = ?", value)
		}
	}
	if f.NetworkName != "" {
		q = q.Where("id IN (SELECT machine_id FROM machine_nics WHERE network = ?)", f.NetworkName)
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
	return out, dbError("store.machines", "machines", withNICs(db, out))
}

// NetworkUser returns the name of a cluster with machines on the provider's network, also such that are only reserved,
// or "".
func (s *machineStore) NetworkUser(ctx context.Context, provider, network string) (string, error) {
	var names []string
	err := s.read.WithContext(ctx).Model(&machineRow{}).Joins(
		"JOIN machine_nics ON machine_nics.machine_id = machines.id",
	).
		Where("machines.provider = ? AND machine_nics.network = ? AND machines.deleted_at = 0", provider, network).
		Order("machines.cluster").Limit(1).Pluck("machines.cluster", &names).Error
	if err != nil || len(names) == 0 {
		return "", dbError("store.network_user", "machines", err)
	}
	return names[0], nil
}

// IntendMachine reserves the machine with the addresses of all its adapters. No error if the same id is there already;
// conflict if its name or address belongs to another machine, or if the id is a tombstone's: it was used, and is never
// used for another VM.
func (t *machineTx) IntendMachine(m director.Machine, now time.Time) error {
	const op = "store.intend"
	row, there, err := t.Machine(m.ID)
	switch {
	case err != nil:
		return err
	case there && row.Deleted.IsZero():
		return nil
	case there:
		return director.Errorf(
			director.KindConflict, op, "machine %s (%s) was taken away since the plan was made", m.Name, m.ID,
		).
			WithHint("plan again: directorctl plan %s", m.Cluster)
	}
	m.State = director.MachineIntended
	return t.addMachine(op, m, now)
}

func (t *machineTx) addMachine(op string, m director.Machine, now time.Time) error {
	nics := append([]director.NIC{{Role: "internal", Network: m.Network, Address: m.Address, MAC: m.MAC}}, m.NICs...)
	if m.Deleted.IsZero() {
		if err := t.macsFree(op, m, nics); err != nil {
			return err
		}
	}
	err := t.db.Create(&machineRow{
		ID: m.ID, ClusterUID: m.ClusterUID, Cluster: m.Cluster, Name: m.Name, Role: string(m.Role), Pool: m.Pool,
		Provider: m.Provider, Network: m.Network, Image: m.Image, Address: m.Address, MAC: m.MAC, Host: m.Host,
		VMID: m.VMID,
		CPUs: m.CPUs, Memory: m.Memory, State: string(m.State), Kubernetes: m.Kubernetes, KeptBy: m.KeptBy,
		CreatedAt: micros(now), DeletedAt: micros(m.Deleted),
	}).Error
	if err != nil {
		return dbError(op, "a machine with the name "+m.Name+" or the address "+m.Address, err)
	}
	for i, n := range nics {
		err := t.db.Create(&nicRow{
			MachineID: m.ID, Ord: i, Role: n.Role, Network: n.Network, Address: n.Address, MAC: n.MAC,
			DeletedAt: micros(m.Deleted),
		}).Error
		if err != nil {
			return dbError(
				op, "a machine with the address "+n.Address+" on network "+n.Network+" or the MAC address "+n.MAC, err,
			)
		}
	}
	return nil
}

// SetMachine records the state of the machine. host and vmID are kept when empty.
func (s *machineStore) SetMachine(
	ctx context.Context, id string, state director.MachineState, host, vmID string,
) error {
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
	KeptBy     string // who keeps its VM on purpose while it is no member
}

// SetMembership records what the machine is to its cluster. No error if it is gone.
func (s *machineStore) SetMembership(ctx context.Context, id string, m Membership) error {
	set := map[string]any{"state": string(m.State), "kubernetes": m.Kubernetes, "kept_by": m.KeptBy}
	if m.Image != "" {
		set["image"] = m.Image
	}
	err := s.write.WithContext(ctx).Model(&machineRow{}).Where("id = ? AND deleted_at = 0", id).Updates(set).Error
	return dbError("store.membership", "machine "+id, err)
}

// RemoveVM records that the machine's VM is gone and another one will follow: the row keeps its name and address.
func (s *machineStore) RemoveVM(ctx context.Context, id string) error {
	set := map[string]any{"state": string(director.MachineIntended), "vm_id": "", "kubernetes": "", "kept_by": ""}
	err := s.write.WithContext(ctx).Model(&machineRow{}).Where("id = ? AND deleted_at = 0", id).Updates(set).Error
	return dbError("store.remove_vm", "machine "+id, err)
}

// SetMade records what the machine's VM was made of, and how large. No error if it is gone.
func (t *machineTx) SetMade(m director.Machine) error {
	err := t.db.Model(&machineRow{}).Where("id = ? AND deleted_at = 0", m.ID).Updates(
		map[string]any{"image": m.Image, "cpus": m.CPUs, "memory": m.Memory},
	).Error
	return dbError("store.made", "machine "+m.ID, err)
}

// SetMembers records the version that the named machines of the cluster run.
func (t *machineTx) SetMembers(clusterUID string, names []string, kubernetes string) error {
	err := t.db.Model(&machineRow{}).Where(
		"cluster_uid = ? AND name IN ? AND deleted_at = 0", clusterUID, names,
	).Update("kubernetes", kubernetes).Error
	return dbError("store.members", "the machines of cluster "+clusterUID, err)
}

// BuryMachine turns the row into a tombstone, which frees its name and its addresses. No error if it is one already.
func (s *machineStore) BuryMachine(ctx context.Context, id string, now time.Time) error {
	return s.Update(ctx, func(tx *Tx) error {
		for _, statement := range []string{
			"UPDATE machines SET deleted_at = ? WHERE id = ? AND deleted_at = 0",
			"UPDATE machine_nics SET deleted_at = ? WHERE machine_id = ? AND deleted_at = 0",
		} {
			if err := tx.db.Exec(statement, micros(now), id).Error; err != nil {
				return dbError("store.bury", "machine "+id, err)
			}
		}
		return nil
	})
}

func isNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }
