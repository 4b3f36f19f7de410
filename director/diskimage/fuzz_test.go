package diskimage

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/director-kaas/kaas/director"
)

// FuzzInspect reads files that nobody has made with care. Whatever they hold, Inspect ends, within its bounds, and
// either refuses the file as invalid or tells of a disk that lies inside it.
func FuzzInspect(f *testing.F) {
	f.Add("a", []byte("QFI\xfb"))
	f.Add("a.qcow2", qcow2Header(3, 16, 2<<30, 4096))
	f.Add("a.qcow2", qcow2Header(2, 9, 1<<62, 1<<63))
	f.Add("a.vmdk", sparseHeader(4<<20, 128, 1, 512))
	f.Add("a.vmdk", sparseHeader(1<<62, 1<<40, 1<<63-1, 0))
	f.Add(
		"a.ova",
		ovaOf(
			"a.ovf", `<Envelope xmlns:ovf="x"><References><File ovf:id="f" ovf:href="d.vmdk"/></References></Envelope>`,
			"d.vmdk", string(sparseHeader(4<<20, 128, 1, 512)),
		),
	)
	f.Add("a.ova", ovaOf("../../etc/passwd", "", "a.mf", "SHA256(d.vmdk)= 00"))
	f.Add("disk.raw", append(make([]byte, 510), 0x55, 0xaa))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		size := int64(len(content))
		info, err := Inspect(t.Context(), name, bytes.NewReader(content), size)
		if err != nil {
			if kind := director.KindOf(err); kind != director.KindInvalid {
				t.Errorf("the file is refused as %s: %v", kind, err)
			}
			return
		}
		if d := info.Disk; d.Offset < 0 || d.Len < 0 || d.Offset > size || d.Len > size-d.Offset {
			t.Errorf("the disk %+v is not inside of %d bytes", d, size)
		}
		if info.Virtual < 0 || info.Virtual > MaxVirtual {
			t.Errorf("a disk of %d bytes was let through", info.Virtual)
		}
	})
}

// FuzzRelease reads /etc/kaas-release of a foreign disk: what is taken from it is shown to people, so it holds nothing
// that a terminal obeys.
func FuzzRelease(f *testing.F) {
	f.Add([]byte("KUBERNETES_VERSION=v1.37.1\nARCH=amd64\n"))
	f.Add([]byte("KUBERNETES_VERSION=\x1b[2Jv1\n=\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := ParseRelease(text)
		if r == nil {
			return
		}
		for _, c := range fmt.Sprintf("%+v", *r) {
			if c < ' ' || c == 0x7f {
				t.Errorf("a control character is left in %+q", fmt.Sprint(*r))
				return
			}
		}
	})
}

func qcow2Header(version, bits uint32, size, l1 uint64) []byte {
	h := make([]byte, 8192)
	copy(h, "QFI\xfb")
	be := binary.BigEndian
	be.PutUint32(h[4:], version)
	be.PutUint32(h[20:], bits)
	be.PutUint64(h[24:], size)
	be.PutUint32(h[36:], 8)
	be.PutUint64(h[40:], l1)
	be.PutUint32(h[100:], 104)
	return h
}

// sparseHeader is the first sector of a VMDK with a descriptor; all numbers are counts of sectors.
func sparseHeader(capacity, grain, descriptor, tables uint64) []byte {
	h := make([]byte, 4096)
	copy(h, "KDMV")
	le := binary.LittleEndian
	le.PutUint32(h[4:], 3)
	le.PutUint64(h[12:], capacity)
	le.PutUint64(h[20:], grain)
	le.PutUint64(h[28:], descriptor)
	le.PutUint64(h[36:], 2)
	le.PutUint32(h[44:], 512)
	le.PutUint64(h[56:], tables)
	copy(
		h[512:], "# Disk DescriptorFile\nversion=1\ncreateType=\"streamOptimized\"\nRDONLY 4194304 SPARSE \"d.vmdk\"\n",
	)
	return h
}

func ovaOf(entries ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i+1 < len(entries); i += 2 {
		_ = w.WriteHeader(&tar.Header{Name: entries[i], Mode: 0o644, Size: int64(len(entries[i+1]))})
		_, _ = w.Write([]byte(entries[i+1]))
	}
	_ = w.Close()
	return b.Bytes()
}
