package diskimage

import (
	"encoding/binary"
	"io"
)

// What a look into a file system reads at most: enough for /etc with thousands of entries, and no more than a hostile
// image should cost.
const (
	maxDirectory = 4 << 20
	maxSmallFile = 64 << 10
	maxExtents   = 64 // blocks of the tree of extents of one file
)

const (
	extMagic       = 0xef53
	extMetaGroups  = 0x10
	ext64Bit       = 0x80
	extEncrypt     = 0x10000
	extRoot        = 2
	extUsesExtents = 0x80000
	extInline      = 0x10000000
)

// ext reads single files of an ext2, ext3 or ext4 file system. Libraries for that trust the file system's own numbers
// when they allocate; here all of them are bounded, and whatever does not add up reads as absent.
type ext struct {
	r                     io.ReaderAt
	start, length         int64
	block                 int64
	perGroup, inodes      uint32
	inodeSize, descriptor int64
	table                 int64 // where the group descriptors begin
	wide                  bool
	visited               int
	le                    binary.ByteOrder
}

// openExt returns the file system in that part of the disk, or nil if there is none that is known.
func openExt(r io.ReaderAt, start, length int64) *ext {
	e := &ext{r: r, start: start, length: length, le: binary.LittleEndian}
	sb := e.read(1024, 1024)
	if sb == nil || e.le.Uint16(sb[0x38:]) != extMagic {
		return nil
	}
	shift := e.le.Uint32(sb[0x18:])
	features := e.le.Uint32(sb[0x60:])
	if shift > 6 || features&(extMetaGroups|extEncrypt) != 0 {
		return nil
	}
	e.block = 1024 << shift
	e.inodes, e.perGroup = e.le.Uint32(sb[0:]), e.le.Uint32(sb[0x28:])
	e.inodeSize, e.descriptor = 128, 32
	if e.le.Uint32(sb[0x4c:]) > 0 {
		e.inodeSize = int64(e.le.Uint16(sb[0x58:]))
	}
	if e.wide = features&ext64Bit != 0; e.wide {
		e.descriptor = int64(e.le.Uint16(sb[0xfe:]))
	}
	e.table = (int64(e.le.Uint32(sb[0x14:])) + 1) * e.block
	if e.perGroup == 0 || e.inodeSize < 128 || e.inodeSize > e.block || e.descriptor < 32 || e.descriptor > 1024 ||
		(e.wide && e.descriptor < 64) {
		return nil
	}
	return e
}

// read returns n bytes of the file system, or nil.
func (e *ext) read(off, n int64) []byte {
	if off < 0 || n < 0 || off > e.length-n {
		return nil
	}
	b := make([]byte, n)
	if _, err := e.r.ReadAt(b, e.start+off); err != nil {
		return nil
	}
	return b
}

// file returns the content of the file at the path, or nil.
func (e *ext) file(path ...string) []byte {
	at := uint32(extRoot)
	for _, name := range path {
		at = e.entry(e.content(at, maxDirectory), name)
		if at == 0 {
			return nil
		}
	}
	return e.content(at, maxSmallFile)
}

// entry finds the name in a directory. The nodes of its hash tree look like entries that are not used.
func (e *ext) entry(dir []byte, name string) uint32 {
	for len(dir) >= 8 {
		length, n := int(e.le.Uint16(dir[4:])), int(dir[6])
		if length < 8 || length > len(dir) || n > length-8 {
			return 0
		}
		if inode := e.le.Uint32(dir); inode != 0 && string(dir[8:8+n]) == name {
			return inode
		}
		dir = dir[length:]
	}
	return 0
}

// content returns what the inode holds if that is at most so much, or nil.
func (e *ext) content(inode uint32, most int64) []byte {
	if inode == 0 || inode > e.inodes {
		return nil
	}
	group, index := int64((inode-1)/e.perGroup), int64((inode-1)%e.perGroup)
	d := e.read(e.table+group*e.descriptor, e.descriptor)
	if d == nil {
		return nil
	}
	table := uint64(e.le.Uint32(d[8:]))
	if e.wide {
		table |= uint64(e.le.Uint32(d[0x28:])) << 32
	}
	i := e.read(e.place(table)+index*e.inodeSize, 128)
	if i == nil {
		return nil
	}
	size, flags := int64(e.le.Uint32(i[4:]))|int64(e.le.Uint32(i[0x6c:]))<<32, e.le.Uint32(i[0x20:])
	if size < 0 || size > most || flags&extInline != 0 {
		return nil
	}
	out := make([]byte, (size+e.block-1)/e.block*e.block)
	e.visited = 0
	if flags&extUsesExtents != 0 {
		if !e.extents(i[0x28:0x28+60], out, 5) {
			return nil
		}
	} else {
		for n := int64(0); n*e.block < int64(len(out)); n++ {
			if n >= 12 { // indirect blocks: too long for what is looked for here
				return nil
			}
			if !e.fill(out, n, 1, uint64(e.le.Uint32(i[0x28+4*n:]))) {
				return nil
			}
		}
	}
	return out[:size]
}

// place is where a block begins; -1 for one that cannot be.
func (e *ext) place(block uint64) int64 {
	if block > uint64(e.length/e.block) {
		return -1
	}
	return int64(block) * e.block
}

// extents fills out from a node of the tree.
func (e *ext) extents(node, out []byte, deepest int) bool {
	if e.visited++; e.visited > maxExtents || deepest < 0 || len(node) < 12 || e.le.Uint16(node) != 0xf30a {
		return false
	}
	entries, depth := int(e.le.Uint16(node[2:])), e.le.Uint16(node[6:])
	if 12+12*entries > len(node) {
		return false
	}
	for n := range entries {
		x := node[12+12*n:]
		if depth == 0 {
			count := int64(e.le.Uint16(x[4:]))
			start := uint64(e.le.Uint32(x[8:])) | uint64(e.le.Uint16(x[6:]))<<32
			// more: reserved and not written, which reads as zeros
			if count <= 1<<15 && !e.fill(out, int64(e.le.Uint32(x)), count, start) {
				return false
			}
			continue
		}
		below := e.place(uint64(e.le.Uint32(x[4:])) | uint64(e.le.Uint16(x[8:]))<<32)
		if !e.extents(e.read(below, e.block), out, deepest-1) {
			return false
		}
	}
	return true
}

// fill reads count blocks into out from its block first on; what is behind its end is left out. Block 0 is a hole.
func (e *ext) fill(out []byte, first, count int64, start uint64) bool {
	from := first * e.block
	if start == 0 || from >= int64(len(out)) {
		return true
	}
	n := min(count*e.block, int64(len(out))-from)
	b := e.read(e.place(start), n)
	copy(out[from:], b)
	return b != nil
}
