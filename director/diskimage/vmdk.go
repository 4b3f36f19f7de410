package diskimage

import (
	"bytes"
	"context"
	"encoding/binary"
	"regexp"
	"strings"
)

const (
	vmdkMagic      = "KDMV"
	vmdkCompressed = 1 << 16
	vmdkMarkers    = 1 << 17
	vmdkAtEnd      = 1<<64 - 1 // of the directory of grains: the footer knows
	sector         = 512
)

// An extent line of the description: access, sectors, kind, file and what only flat extents have.
var vmdkExtent = regexp.MustCompile(`^(RW|RDONLY|NOACCESS)\s+[0-9]+\s+([A-Z0-9]+)`)

// vmdk checks the header, the description in the file, and that all tables and grains lie inside the file.
func (f file) vmdk(ctx context.Context, info *Info) error {
	h, err := f.at(0, sector, "its header")
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	flags, capacity := le.Uint32(h[8:]), le.Uint64(h[12:])
	switch {
	case le.Uint32(h[4:]) < 1 || le.Uint32(h[4:]) > 3:
		return f.bad(hintFormat, "has version %d of VMDK, and 1 to 3 are known", le.Uint32(h[4:]))
	case capacity == 0: // readers then follow the description to other files
		return f.bad(
			"export the VM as OVA, or convert it into one file: qemu-img convert -f vmdk -O qcow2 OLD NEW",
			"keeps its data in other files",
		)
	case capacity > MaxVirtual/sector:
		return f.sized(MaxVirtual + 1)
	}
	info.Virtual = int64(capacity) * sector
	if err := f.vmdkDescription(h, info); err != nil {
		return err
	}
	compressed := flags&vmdkCompressed != 0
	if compressed != (info.Variant == StreamOptimized) {
		return f.cut("its header and its description do not agree")
	}
	if le.Uint64(h[56:]) == vmdkAtEnd {
		// The footer is a copy of the header before the marker that ends the stream.
		foot, err := f.at(f.size-2*sector, sector, "its footer")
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(foot, []byte(vmdkMagic)) || le.Uint64(foot[12:]) != capacity {
			return f.cut("its footer is missing")
		}
		h = foot
	}
	return f.vmdkGrains(ctx, h, info, compressed)
}

// vmdkDescription reads the text in the file.
func (f file) vmdkDescription(h []byte, info *Info) error {
	le := binary.LittleEndian
	at, n := le.Uint64(h[28:]), le.Uint64(h[36:])
	if at == 0 || n == 0 {
		return f.bad("export the VM as OVA", "is a part of a VMDK disk whose description lies in another file")
	}
	if at > MaxVirtual/sector || n > 2048 {
		return f.cut("its description lies behind its end")
	}
	text, err := f.at(int64(at)*sector, int(n)*sector, "its description")
	if err != nil {
		return err
	}
	extents := 0
	for line := range strings.Lines(string(bytes.TrimRight(text, "\x00"))) {
		line = strings.TrimSpace(line)
		if m := vmdkExtent.FindStringSubmatch(line); m != nil {
			if extents++; m[2] != "SPARSE" || extents > 1 {
				return f.bad(
					"export the VM as OVA, or convert it into one file: qemu-img convert -f vmdk -O qcow2 OLD NEW",
					"keeps its data in other files",
				)
			}
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		value = strings.Trim(strings.TrimSpace(value), `"`)
		switch strings.TrimSpace(key) {
		case "createType":
			info.Variant = value
		case "parentCID":
			if !strings.EqualFold(value, "ffffffff") {
				return f.bad("give a disk without a parent: export the VM as OVA", "is the difference to another disk")
			}
		case "parentFileNameHint":
			return f.bad("give a disk without a parent: export the VM as OVA", "is the difference to another disk")
		}
	}
	if info.Variant != StreamOptimized && info.Variant != MonolithicSparse {
		return f.bad(hintFormat, "is a VMDK of the kind %q", info.Variant)
	}
	if extents != 1 {
		return f.cut("its description names no data")
	}
	return nil
}

// vmdkGrains walks the directory, the tables and the grains.
func (f file) vmdkGrains(ctx context.Context, h []byte, info *Info, compressed bool) error {
	le := binary.LittleEndian
	grain, perTable, dir := le.Uint64(h[20:]), int64(le.Uint32(h[44:])), le.Uint64(h[56:])
	if grain == 0 || grain > 1<<16 || grain&(grain-1) != 0 || perTable == 0 || perTable > 4096 {
		return f.cut("its header has impossible sizes")
	}
	reach := int64(grain) * sector * perTable
	tables := (info.Virtual + reach - 1) / reach
	if tables > 8<<20 || dir > MaxVirtual/sector {
		return f.cut("its header has impossible sizes")
	}
	directory, err := f.at(int64(dir)*sector, int(tables)*4, "the directory of its tables")
	if err != nil {
		return err
	}
	seen := map[uint32]bool{}
	for i := range int(tables) {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := le.Uint32(directory[4*i:])
		if at == 0 {
			continue
		}
		if seen[at] { // each table is read once, so that all reading is bounded by the size of the file
			return f.cut("two entries of its directory lead to one place")
		}
		seen[at] = true
		table, err := f.at(int64(at)*sector, int(perTable)*4, "a table")
		if err != nil {
			return err
		}
		for j := 0; j < len(table); j += 4 {
			// 0 and 1 are a grain that is not there, or of zeros.
			g := int64(le.Uint32(table[j:])) * sector
			if g > sector && g >= f.size {
				return f.cut("data lies behind its end")
			}
			if compressed && g > sector {
				if err := f.vmdkMarker(g, grain); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// vmdkMarker checks that a compressed grain is whole.
func (f file) vmdkMarker(at int64, grain uint64) error {
	b, err := f.at(at, 12, "data")
	if err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(b[8:]))
	if n == 0 || n > 2*int64(grain)*sector || at+12+n > f.size {
		return f.cut("a compressed part has an impossible length")
	}
	return nil
}
