package director

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// DataDiskSerial is how a node finds its data disk.
const DataDiskSerial = "kaas-data"

// KeptDisk is a disk that outlived its VM, or a copy of one that a plan makes, as the ledger knows it.
type KeptDisk struct {
	ID       string // what people name it by: DiskID or ForeignDiskID
	Provider string
	Name     string // on the hypervisor
	Host     string // empty if every host of the provider reaches it
	Machine  string // whose stamp it carries; empty for a disk that someone else attached
	Serial   string
	Size     int64 // bytes; zero if unknown
	// The node that it was kept of.
	ClusterUID string
	Cluster    string
	Pool       string
	Node       string
	Plan       string // that kept it
	Kept       time.Time
	Holder     string // id of the machine that took it over; DiskGoing while it is deleted; empty otherwise
	CopyOf     string // id of the data disk that it is a copy of; empty for a disk that a node left behind
}

// DiskGoing is the holder of a disk whose deletion a person has asked for.
const DiskGoing = "-"

// Foreign reports whether someone else attached the disk: the director never deletes it.
func (d KeptDisk) Foreign() bool { return d.Machine == "" }

// Free tells whether a new node can take the disk over.
func (d KeptDisk) Free() bool { return !d.Foreign() && d.Holder == "" && d.CopyOf == "" }

// DiskID is the id of the data disk with that serial of the machine. It stays when another machine takes the disk over.
func DiskID(machine, serial string) string { return machine + "." + serial }

// ForeignDiskID is the id of a disk that the director did not make.
func ForeignDiskID(provider, name string) string {
	sum := sha256.Sum256([]byte(provider + "/" + name))
	return "foreign." + hex.EncodeToString(sum[:8])
}
