package libvirt

import (
	"encoding/binary"
	"fmt"

	"github.com/director-kaas/kaas/director/hypervisor"
)

// The seed is an ISO 9660 image, label cidata, with three files in its root. It is written here, in a few lines and in
// memory, because it holds the node's private host key and must not pass through a temporary file, and so that the same
// seed gives the same bytes. Names are in lower case with a dash, which the standard does not know and every Linux
// reads.

const sector = 2048

type isoFile struct {
	name string
	data []byte
}

// seedISO returns the NoCloud disk for s.
func seedISO(s hypervisor.Seed) []byte {
	return iso("cidata", []isoFile{
		{"meta-data", s.MetaData}, {"network-config", s.NetworkConfig}, {"user-data", s.UserData},
	})
}

// Sector numbers of the image.
const (
	isoDescriptor = 16
	isoEnd        = 17
	isoPathLittle = 18
	isoPathBig    = 19
	isoRoot       = 20
	isoFirst      = 21 // of the files
)

// iso returns an image with the files, which are ordered by name, in its root directory. All fits into one sector of
// directory: there are few files.
func iso(label string, files []isoFile) []byte {
	total := uint32(isoFirst)
	for _, f := range files {
		total += sectors(f.data)
	}
	image := make([]byte, int(total)*sector)
	at := func(n uint32) []byte { return image[int(n)*sector:] }

	// The path table has one entry: the root.
	table := func(order binary.ByteOrder) []byte {
		b := make([]byte, 10)
		b[0] = 1
		order.PutUint32(b[2:], isoRoot)
		order.PutUint16(b[6:], 1)
		return b
	}
	copy(at(isoPathLittle), table(binary.LittleEndian))
	copy(at(isoPathBig), table(binary.BigEndian))

	describe(at(isoDescriptor), label, total)
	copy(at(isoEnd), "\xffCD001\x01")

	directory := at(isoRoot)[:sector]
	directory = directory[copy(directory, record("\x00", isoRoot, sector, true)):]
	directory = directory[copy(directory, record("\x01", isoRoot, sector, true)):]
	next := uint32(isoFirst)
	for _, f := range files {
		entry := record(f.name+";1", next, uint32(len(f.data)), false)
		if len(entry) > len(directory) {
			panic(fmt.Sprintf("libvirt: %d files are too many for the seed", len(files)))
		}
		directory = directory[copy(directory, entry):]
		copy(at(next), f.data)
		next += sectors(f.data)
	}
	return image
}

// describe fills the primary descriptor d of an image of total sectors.
func describe(d []byte, label string, total uint32) {
	d[0] = 1
	copy(d[1:], "CD001\x01")
	pad(d[8:40], "LINUX")
	pad(d[40:72], label)
	both32(d[80:], total)
	both16(d[120:], 1)
	both16(d[124:], 1)
	both16(d[128:], sector)
	both32(d[132:], 10)
	binary.LittleEndian.PutUint32(d[140:], isoPathLittle)
	binary.BigEndian.PutUint32(d[148:], isoPathBig)
	copy(d[156:], record("\x00", isoRoot, sector, true))
	for _, field := range [][2]int{{190, 318}, {318, 446}, {446, 574}, {574, 702}, {702, 739}, {739, 776}, {776, 813}} {
		pad(d[field[0]:field[1]], "")
	}
	for _, date := range []int{813, 830, 847, 864} { // not given
		copy(d[date:], "0000000000000000\x00")
	}
	d[881] = 1
}

func sectors(data []byte) uint32 { return uint32((len(data) + sector - 1) / sector) }

// record is a directory record.
func record(name string, extent, size uint32, directory bool) []byte {
	length := 33 + len(name)
	length += length % 2
	r := make([]byte, length)
	r[0] = byte(length)
	both32(r[2:], extent)
	both32(r[10:], size)
	if directory {
		r[25] = 2
	}
	both16(r[28:], 1)
	r[32] = byte(len(name))
	copy(r[33:], name)
	return r
}

func both32(b []byte, v uint32) {
	binary.LittleEndian.PutUint32(b, v)
	binary.BigEndian.PutUint32(b[4:], v)
}

func both16(b []byte, v uint16) {
	binary.LittleEndian.PutUint16(b, v)
	binary.BigEndian.PutUint16(b[2:], v)
}

func pad(b []byte, text string) {
	for i := copy(b, text); i < len(b); i++ {
		b[i] = ' '
	}
}
