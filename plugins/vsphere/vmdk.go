package vsphere

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/director-kaas/kaas/director/hypervisor/imagefile"
)

// The layout of streamOptimized VMDK, the one form that vCenter takes in an upload: a header, a descriptor, compressed
// grains in the order of the disk, and behind them the tables that say where they are. VMware's "Virtual Disk Format
// 5.0" is the reference.
const (
	sector        = 512
	grainSize     = 64 << 10
	grainsPer     = 512 // in a grain table
	descriptorLen = 20  // sectors
	overhead      = 128 // sectors before the first grain
	dirAtEnd      = ^uint64(0)

	markerEnd    = 0
	markerTable  = 1
	markerDir    = 2
	markerFooter = 3
)

type vmdkHeader struct {
	Magic            [4]byte
	Version, Flags   uint32
	Capacity, Grain  uint64 // sectors
	Descriptor, Size uint64
	TableEntries     uint32
	RedundantDir     uint64
	Dir              uint64
	Overhead         uint64
	Unclean          byte
	Newlines         [4]byte
	Compression      uint16
	Pad              [433]byte
}

func newHeader(sectors, dir uint64) vmdkHeader {
	return vmdkHeader{
		// newline test, compressed grains, markers
		Magic: [4]byte{'K', 'D', 'M', 'V'}, Version: 3, Flags: 1<<0 | 1<<16 | 1<<17,
		Capacity: sectors, Grain: grainSize / sector, Descriptor: 1, Size: descriptorLen, TableEntries: grainsPer,
		Dir: dir, Overhead: overhead,
		Newlines: [4]byte{'\n', ' ', '\r', '\n'}, Compression: 1,
	}
}

func descriptor(sectors uint64) []byte {
	const heads, perTrack = 255, 63
	return fmt.Appendf(nil, `# Disk DescriptorFile
version=1
CID=7d15c0de
parentCID=ffffffff
createType="streamOptimized"

# Extent description
RDONLY %d SPARSE "disk.vmdk"

# The Disk Data Base
#DDB
ddb.adapterType = "lsilogic"
ddb.geometry.cylinders = "%d"
ddb.geometry.heads = "%d"
ddb.geometry.sectors = "%d"
ddb.virtualHWVersion = "14"
`, sectors, max(1, sectors/(heads*perTrack)), heads, perTrack)
}

// vmdkWriter writes a disk grain by grain.
type vmdkWriter struct {
	w      *bufio.Writer
	at     uint64 // sectors written
	tables []uint32
	table  []uint32 // of the current grain table; nil while it is empty
	number uint64   // of the current grain table
	packed bytes.Buffer
	zip    *zlib.Writer
	size   uint64 // of the disk, sectors
}

// pad writes b and zeros to the end of the sector.
func (v *vmdkWriter) pad(b []byte) error {
	n := (len(b) + sector - 1) / sector
	v.at += uint64(n)
	if _, err := v.w.Write(b); err != nil {
		return err
	}
	_, err := v.w.Write(make([]byte, n*sector-len(b)))
	return err
}

func (v *vmdkWriter) encode(value any) error {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, value); err != nil {
		return err
	}
	return v.pad(b.Bytes())
}

func (v *vmdkWriter) marker(sectors uint64, kind uint32) error {
	return v.encode(struct {
		Sectors    uint64
		Size, Kind uint32
	}{sectors, 0, kind})
}

func (v *vmdkWriter) begin() error {
	if err := v.encode(newHeader(v.size, dirAtEnd)); err != nil {
		return err
	}
	text := make([]byte, (overhead-1)*sector)
	copy(text, descriptor(v.size))
	return v.pad(text)
}

// grain writes grain n, which comes after all that were written before.
func (v *vmdkWriter) grain(n uint64, data []byte) error {
	if n/grainsPer != v.number {
		if err := v.flush(); err != nil {
			return err
		}
		v.number = n / grainsPer
	}
	v.packed.Reset()
	v.packed.Write(make([]byte, 12)) // place of its header
	v.zip.Reset(&v.packed)
	if _, err := v.zip.Write(data); err != nil {
		return err
	}
	if err := v.zip.Close(); err != nil {
		return err
	}
	b := v.packed.Bytes()
	binary.LittleEndian.PutUint64(b, n*grainSize/sector)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(b)-12))
	if v.table == nil {
		v.table = make([]uint32, grainsPer)
	}
	v.table[n%grainsPer] = uint32(v.at)
	return v.pad(b)
}

// flush writes the current grain table, if it has entries.
func (v *vmdkWriter) flush() error {
	if v.table == nil {
		return nil
	}
	if err := v.marker(grainsPer*4/sector, markerTable); err != nil {
		return err
	}
	v.tables[v.number] = uint32(v.at)
	err := v.encode(v.table)
	v.table = nil
	return err
}

func (v *vmdkWriter) end() error {
	if err := v.flush(); err != nil {
		return err
	}
	if err := v.marker(uint64(len(v.tables)*4+sector-1)/sector, markerDir); err != nil {
		return err
	}
	dir := v.at
	if err := v.encode(v.tables); err != nil {
		return err
	}
	if err := v.marker(1, markerFooter); err != nil {
		return err
	}
	if err := v.encode(newHeader(v.size, dir)); err != nil {
		return err
	}
	if err := v.marker(0, markerEnd); err != nil {
		return err
	}
	return v.w.Flush()
}

// writeVMDK writes the disk as streamOptimized VMDK. progress is called with the bytes of the disk that were looked at.
func writeVMDK(ctx context.Context, w io.Writer, d *imagefile.Disk, progress func(done int64)) error {
	grains := (d.Size + grainSize - 1) / grainSize
	v := &vmdkWriter{
		w: bufio.NewWriterSize(w, 1<<20), tables: make([]uint32, (grains+grainsPer-1)/grainsPer),
		zip:  zlib.NewWriter(io.Discard),
		size: uint64((d.Size + sector - 1) / sector),
	}
	if err := v.begin(); err != nil {
		return err
	}
	grain := make([]byte, grainSize)
	r := clusters{disk: d, buf: make([]byte, d.Cluster), at: -1}
	for n := range grains {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		data, err := r.read(n*grainSize, grain)
		if err != nil {
			return err
		}
		if data {
			if err := v.grain(uint64(n), grain); err != nil {
				return err
			}
		}
		progress(min((n+1)*grainSize, d.Size))
	}
	return v.end()
}

// clusters reads a disk in other pieces than its clusters.
type clusters struct {
	disk *imagefile.Disk
	buf  []byte // cluster at
	at   int64
	data bool
}

// read fills p with what is at that offset of the disk, and tells whether anything of it is not zero.
func (c *clusters) read(offset int64, p []byte) (data bool, err error) {
	clear(p)
	for done := 0; done < len(p) && offset < c.disk.Size; {
		n, in := offset/c.disk.Cluster, offset%c.disk.Cluster
		if n != c.at {
			if c.data, err = c.disk.ReadCluster(n, c.buf); err != nil {
				return false, err
			}
			c.at = n
		}
		step := int(min(c.disk.Cluster-in, int64(len(p)-done), c.disk.Size-offset))
		if c.data {
			copy(p[done:done+step], c.buf[in:])
		}
		done, offset = done+step, offset+int64(step)
	}
	return len(bytes.TrimLeft(p, "\x00")) > 0, nil
}
