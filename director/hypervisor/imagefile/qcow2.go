package imagefile

import (
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The parts of qcow2's header and tables that a reader needs; see docs/interop/qcow2.txt of QEMU.
const (
	qcowOffset     = 0x00fffffffffffe00 // of a cluster, in an L1 or L2 entry
	qcowCompressed = 1 << 62
	qcowZero       = 1 // in an L2 entry from version 3 on
	// incompatible features that a reader may ignore: dirty and corrupt marks of refcounts.
	qcowAllowed    = 1<<0 | 1<<1
	qcowMostL1     = 32 << 20 / 8    // entries, as QEMU bounds them
	qcowMostDisk   = int64(64) << 40 // what VMFS can hold, and more than any node
	deflateWindow  = 1 << 20         // more than a compressed cluster can take
	maxClusterBits = 21
)

// Disk reads the guest's disk out of a qcow2 file without a backing file. It is not safe for concurrent use.
type Disk struct {
	Size    int64
	Cluster int64

	file io.ReaderAt
	bits uint
	v3   bool
	l1   []uint64
	l2   []uint64
	l2At uint64 // where l2 was read from
}

// OpenDisk reads the header and the first table. Every error is about the file's content.
func OpenDisk(file io.ReaderAt) (*Disk, error) {
	h := make([]byte, 104)
	if _, err := file.ReadAt(h, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	be := binary.BigEndian
	version, bits, size := be.Uint32(h[4:]), be.Uint32(h[20:]), be.Uint64(h[24:])
	switch {
	case string(h[:4]) != "QFI\xfb" || version != 2 && version != 3:
		return nil, errors.New("not a qcow2 image of version 2 or 3")
	case be.Uint64(h[8:]) != 0:
		return nil, errors.New("it needs a backing file")
	case be.Uint32(h[32:]) != 0:
		return nil, errors.New("it is encrypted")
	case bits < 9 || bits > maxClusterBits:
		return nil, fmt.Errorf("%d is not a cluster size", bits)
	case size == 0 || size > uint64(qcowMostDisk):
		return nil, fmt.Errorf("%d bytes are not the size of a disk", size)
	case version == 3 && be.Uint64(h[72:])&^uint64(qcowAllowed) != 0:
		return nil, errors.New(
			"it uses features (external data file, zstd, extended L2) that only QEMU reads; rewrite it: qemu-img " +
				"convert -O qcow2 -o compat=0.10",
		)
	}
	d := &Disk{Size: int64(size), Cluster: 1 << bits, file: file, bits: uint(bits), v3: version == 3}
	perTable := uint64(d.Cluster) * uint64(d.Cluster) / 8
	need := (size + perTable - 1) / perTable
	if n := uint64(be.Uint32(h[36:])); n < need || need > qcowMostL1 {
		return nil, fmt.Errorf("its first table has %d entries and needs %d", n, need)
	}
	var err error
	d.l1, err = d.table(be.Uint64(h[40:]), int(need))
	return d, err
}

func (d *Disk) table(at uint64, n int) ([]uint64, error) {
	b := make([]byte, 8*n)
	if _, err := d.file.ReadAt(b, int64(at&qcowOffset)); err != nil {
		return nil, fmt.Errorf("a table at %d cannot be read: %w", at, err)
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = binary.BigEndian.Uint64(b[8*i:])
	}
	return out, nil
}

// ReadCluster fills p, which has the length of a cluster, with cluster n. data is false if the cluster holds only zeros
// because nothing was ever written there; p is left alone then.
func (d *Disk) ReadCluster(n int64, p []byte) (data bool, err error) {
	perTable := d.Cluster / 8
	if n < 0 || n/perTable >= int64(len(d.l1)) || int64(len(p)) != d.Cluster {
		return false, fmt.Errorf("cluster %d is outside of the disk", n)
	}
	at := d.l1[n/perTable] & qcowOffset
	if at == 0 {
		return false, nil
	}
	if at != d.l2At {
		if d.l2, err = d.table(at, int(perTable)); err != nil {
			d.l2At = 0
			return false, err
		}
		d.l2At = at
	}
	entry := d.l2[n%perTable]
	switch {
	case entry&qcowCompressed != 0:
		return true, d.unpack(entry, p)
	case entry&qcowOffset == 0 || d.v3 && entry&qcowZero != 0:
		return false, nil
	}
	// The file may end inside its last cluster; the rest is zero.
	got, err := d.file.ReadAt(p, int64(entry&qcowOffset))
	if err != nil && (!errors.Is(err, io.EOF) || got == 0) {
		return false, fmt.Errorf("cluster %d cannot be read: %w", n, err)
	}
	clear(p[got:])
	return true, nil
}

func (d *Disk) unpack(entry uint64, p []byte) error {
	// Offset and count of 512-byte sectors share the 62 bits below the flags.
	shift := 62 - (d.bits - 8)
	at := int64(entry & (1<<shift - 1))
	sectors := int64(entry>>shift)&(1<<(d.bits-8)-1) + 1
	length := min(sectors*512-at%512, deflateWindow+d.Cluster)
	r := flate.NewReader(io.NewSectionReader(d.file, at, length))
	defer r.Close()
	if _, err := io.ReadFull(r, p); err != nil {
		return fmt.Errorf("a compressed cluster at %d is damaged: %w", at, err)
	}
	return nil
}
