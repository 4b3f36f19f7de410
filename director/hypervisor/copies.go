package hypervisor

import (
	"context"

	"github.com/director-kaas/kaas/director"
)

// DiskCopier is implemented by back ends that can copy a data disk, and give it the content of its copy again.
//
// A copy is a data disk of its own with a stamp of its own and the serial of the disk: ListVolumes lists it,
// DeleteVolume deletes it, and Disk.Of attaches it. A disk or a copy that was cut off while it was written is known as
// such: Ensure and Adopt refuse a VM with it, it is no source of another copy, and the same call writes it again.
type DiskCopier interface {
	// CopyDisk copies the owner's data disk with the serial. A copy that is whole stays as it is. The VM that has the
	// disk must be off. Errors: not_found if there is no such disk, conflict if a VM that is on has it or it is not
	// whole itself, exhausted if there is no space for the copy.
	CopyDisk(ctx context.Context, owner director.Stamp, serial string, to director.Stamp) error
	// RestoreDisk replaces the owner's data disk with the serial, which may be missing, by the content of its copy. The
	// copy stays, so the call can be repeated until a VM has the disk. Errors: not_found if there is no such copy,
	// conflict if the copy is not whole, a VM that is on has it, or a VM has the disk, exhausted if there is no space.
	RestoreDisk(ctx context.Context, owner director.Stamp, serial string, from director.Stamp) error
}

// ValidCopy returns nil, or an invalid error of op with everything that is wrong with a copy of the owner's disk in
// itself. Back ends call it before they act.
func ValidCopy(op string, owner director.Stamp, serial string, to director.Stamp) error {
	fields := append(ValidStamp("owner", owner), ValidStamp("copy", to)...)
	if !diskSerial.MatchString(serial) {
		fields = append(fields, director.Field{Path: "serial", Msg: "is not 1 to 20 letters, digits and dashes"})
	}
	switch {
	case owner == to:
		fields = append(fields, director.Field{Path: "copy", Msg: "has the stamp of the disk"})
	case owner.Director != to.Director:
		fields = append(fields, director.Field{Path: "copy", Msg: "belongs to another director"})
	}
	return director.Invalid(op, "the copy of the data disk is wrong", fields)
}

// NotWhole is the error for a data disk whose copying was cut off.
func NotWhole(op, disk string) error {
	return director.Errorf(director.KindConflict, op, "the data disk %s is not written to its end", disk).
		WithHint("continue the plan that copies it, or delete the disk and use the other one")
}

// NoCopy is the error for a data disk that is to be copied or restored from, and is not there.
func NoCopy(op string, owner director.Stamp, serial string) error {
	return director.Errorf(
		director.KindNotFound, op, "there is no data disk %s of machine %s to copy", serial, owner.Machine,
	).WithHint("see where it is: directorctl disks list")
}
