package diskimage

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	qcow2Magic = "QFI\xfb"

	qcow2Dirty       = 1 << 0
	qcow2Corrupt     = 1 << 1
	qcow2DataFile    = 1 << 2
	qcow2Compression = 1 << 3
	qcow2ExtendedL2  = 1 << 4

	qcow2MaxL1      = 32 << 20 >> 3 // entries; what QEMU allows
	qcow2OffsetMask = 0x00fffffffffffe00
	qcow2Compressed = 1 << 62
	qcow2Zero       = 1 << 0
)

// qcow2 is the file as a disk. It reads what is compressed by deflate or not at all; the rest is unreadable and not
// wrong.
type qcow2 struct {
	file
	bits     uint
	virtual  int64
	l1       []byte
	extended bool // entries of 16 bytes, for clusters in parts
	zstd     bool

	tableAt int64 // the table that was read last, and where it lies
	table   []byte
}

// qcow2 checks the header, that all tables and clusters lie inside the file, and looks into the disk.
func (f file) qcow2(ctx context.Context, info *Info) error {
	h, err := f.at(0, 104, "its header")
	if err != nil {
		return err
	}
	q, err := f.header(h, info)
	if err != nil {
		return err
	}
	if err := q.tables(h); err != nil {
		return err
	}
	if err := q.walk(ctx); err != nil {
		return err
	}
	if q.zstd || q.extended {
		return nil
	}
	return f.guest(info, q)
}

// header checks everything in the header but the places of the tables.
func (f file) header(h []byte, info *Info) (*qcow2, error) {
	be := binary.BigEndian
	version, features := be.Uint32(h[4:]), uint64(0)
	switch version {
	case 2:
		info.Variant = "0.10"
	case 3:
		info.Variant, features = "1.1", be.Uint64(h[72:])
	default:
		return nil, f.bad(hintFormat, "has version %d of qcow2, and 2 and 3 are known", version)
	}
	const known = qcow2Dirty | qcow2Corrupt | qcow2DataFile | qcow2Compression | qcow2ExtendedL2
	switch {
	case be.Uint64(h[8:]) != 0 || be.Uint32(h[16:]) != 0:
		return nil, f.bad(hintAlone, "needs a backing file")
	case features&qcow2DataFile != 0:
		return nil, f.bad(hintAlone, "keeps its data in another file")
	case be.Uint32(h[32:]) != 0:
		return nil, f.bad("give an image that is not encrypted", "is encrypted")
	case features&qcow2Corrupt != 0:
		return nil, f.bad("repair it where it came from: qemu-img check -r all FILE", "is marked as damaged")
	case features&^known != 0:
		return nil, f.bad(
			"convert it with options of QEMU 8 or older: qemu-img convert -O qcow2 OLD NEW",
			"uses features of qcow2 that are not known: %#x", features&^known,
		)
	}
	q := &qcow2{file: f, bits: uint(be.Uint32(h[20:])), extended: features&qcow2ExtendedL2 != 0, tableAt: -1}
	if q.bits < 9 || q.bits > 21 {
		return nil, f.cut(fmt.Sprintf("clusters of 2^%d bytes are not possible", q.bits))
	}
	size := be.Uint64(h[24:])
	if size > MaxVirtual {
		return nil, f.sized(MaxVirtual + 1)
	}
	q.virtual, info.Virtual = int64(size), int64(size)
	if version == 3 {
		if err := q.extensions(h); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// tables reads the first table, and checks where the table of references lies.
func (q *qcow2) tables(h []byte) error {
	be := binary.BigEndian
	entries := int64(be.Uint32(h[36:]))
	if entries > qcow2MaxL1 || entries*q.reach() < q.virtual {
		return q.cut("its first table does not fit to its size")
	}
	var err error
	if q.l1, err = q.at(int64(be.Uint64(h[40:])), int(entries)*8, "its first table"); err != nil {
		return err
	}
	refs := int64(be.Uint32(h[56:])) << q.bits
	if at := int64(be.Uint64(h[48:])); at <= 0 || at > q.size || refs > q.size-at {
		return q.cut("its table of references lies behind its end")
	}
	return nil
}

// extensions looks for what the version 3 header adds.
func (q *qcow2) extensions(h []byte) error {
	at := int64(binary.BigEndian.Uint32(h[100:]))
	if at < 104 || at > 1<<q.bits {
		return q.cut("its header has an impossible length")
	}
	if at > 104 {
		more, err := q.at(104, 1, "its header")
		if err != nil {
			return err
		}
		if q.zstd = more[0] == 1; more[0] > 1 {
			return q.bad(hintAlone, "is compressed in a way that is not known")
		}
	}
	for at < 1<<q.bits {
		b, err := q.at(at, 8, "its header")
		if err != nil {
			return err
		}
		kind, length := binary.BigEndian.Uint32(b), int64(binary.BigEndian.Uint32(b[4:]))
		switch kind {
		case 0:
			return nil
		case 0x44415441:
			return q.bad(hintAlone, "keeps its data in another file")
		}
		at += 8 + (length+7)&^7
	}
	return nil
}

// entry is the length of an entry of a second table.
func (q *qcow2) entry() int64 {
	if q.extended {
		return 16
	}
	return 8
}

// reach is how many bytes of the disk an entry of the first table covers.
func (q *qcow2) reach() int64 { return (1 << q.bits) / q.entry() << q.bits }

// walk checks that every table and cluster begins inside the file. The last cluster may end behind it: QEMU leaves
// zeros there out.
func (q *qcow2) walk(ctx context.Context) error {
	seen := map[int64]bool{}
	for i := 0; i < len(q.l1); i += 8 {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := int64(binary.BigEndian.Uint64(q.l1[i:]) & qcow2OffsetMask)
		if at == 0 {
			continue
		}
		if seen[at] { // each table is read once, so that all reading is bounded by the size of the file
			return q.cut("two entries of its first table lead to one place")
		}
		seen[at] = true
		table, err := q.at(at, 1<<q.bits, "a table")
		if err != nil {
			return err
		}
		for j := int64(0); j < int64(len(table)); j += q.entry() {
			start, _, _ := q.cluster(binary.BigEndian.Uint64(table[j:]))
			if start >= q.size {
				return q.cut("data lies behind its end")
			}
		}
	}
	return nil
}

// cluster returns where an entry of a second table leads: 0 for nothing, and the length of what is compressed.
func (q *qcow2) cluster(e uint64) (start, length int64, compressed bool) {
	if e&qcow2Compressed == 0 {
		return int64(e & qcow2OffsetMask), 1 << q.bits, false
	}
	x := 62 - (q.bits - 8)
	start = int64(e & (1<<x - 1))
	sectors := int64(e >> x & (1<<(q.bits-8) - 1))
	return start, (sectors+1)*512 - start&511, true
}

// ReadAt reads from the disk.
func (q *qcow2) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		pos := off + int64(n)
		if pos < 0 || pos >= q.virtual {
			return n, io.EOF
		}
		inside := pos & (1<<q.bits - 1)
		part := p[n:min(len(p), n+int(1<<q.bits-inside))]
		if err := q.readCluster(part, pos>>q.bits, inside); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

func (q *qcow2) readCluster(p []byte, cluster, inside int64) error {
	clear(p)
	per := int64(1) << q.bits / q.entry()
	at := int64(binary.BigEndian.Uint64(q.l1[cluster/per*8:]) & qcow2OffsetMask)
	if at == 0 {
		return nil
	}
	if q.tableAt != at {
		table, err := q.at(at, 1<<q.bits, "a table")
		if err != nil {
			return err
		}
		q.table, q.tableAt = table, at
	}
	e := binary.BigEndian.Uint64(q.table[cluster%per*8:])
	start, length, compressed := q.cluster(e)
	switch {
	case compressed:
		raw := make([]byte, min(length, q.size-start))
		if _, err := q.r.ReadAt(raw, start); err != nil {
			return err
		}
		data := make([]byte, 1<<q.bits)
		if _, err := io.ReadFull(flate.NewReader(bytes.NewReader(raw)), data); err != nil {
			return fmt.Errorf("a compressed cluster is damaged: %w", err)
		}
		copy(p, data[inside:])
	case start != 0 && e&qcow2Zero == 0:
		if _, err := q.r.ReadAt(p, start+inside); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}
