package imagefile

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"strings"
	"testing"
)

const cluster = 1 << 16

// disk returns a qcow2 file of five clusters: written, never written, compressed, written as zeros, and one that lies
// beyond the end of the file's last full cluster.
func disk(t *testing.T, version uint32) []byte {
	t.Helper()
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(bytes.Repeat([]byte("squeeze "), cluster/8)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5*cluster)
	copy(b, "QFI\xfb")
	be := binary.BigEndian
	be.PutUint32(b[4:], version)
	be.PutUint32(b[20:], 16)
	be.PutUint64(b[24:], 5*cluster)
	be.PutUint32(b[36:], 1)
	be.PutUint64(b[40:], 1*cluster) // L1 table
	be.PutUint64(b[cluster:], 2*cluster|1<<63)
	l2 := b[2*cluster:]
	be.PutUint64(l2, 3*cluster|1<<63)
	copy(b[3*cluster:], "written")
	sectors := uint64((packed.Len()+511)/512 - 1)
	be.PutUint64(l2[16:], 1<<62|sectors<<(62-8)|4*cluster)
	copy(b[4*cluster:], packed.Bytes())
	if version == 3 {
		be.PutUint64(l2[24:], 3*cluster|1)
	}
	be.PutUint64(l2[32:], 5*cluster|1<<63)
	return append(b, "short"...)
}

func TestDisk(t *testing.T) {
	t.Parallel()
	for _, version := range []uint32{2, 3} {
		d, err := OpenDisk(bytes.NewReader(disk(t, version)))
		if err != nil {
			t.Fatal(err)
		}
		for n, want := range []string{"written\x00", "", "squeeze squeeze ", "", "short\x00\x00"} {
			p := bytes.Repeat([]byte{0xff}, cluster)
			data, err := d.ReadCluster(int64(n), p)
			if err != nil || data != (want != "") {
				t.Errorf("version %d: cluster %d: %t, %v", version, n, data, err)
			}
			if data && !bytes.HasPrefix(p, []byte(want)) {
				t.Errorf("version %d: cluster %d begins with %q", version, n, p[:16])
			}
			if data && n == 4 && len(bytes.TrimRight(p, "\x00")) != 5 {
				t.Errorf("version %d: what lies behind the file's end is not zero", version)
			}
		}
		if _, err := d.ReadCluster(5<<20, make([]byte, cluster)); err == nil {
			t.Errorf("version %d: read outside of the disk", version)
		}
	}
}

func TestBadDisks(t *testing.T) {
	t.Parallel()
	be := binary.BigEndian
	for name, tt := range map[string]struct {
		change func(b []byte) []byte
		want   string
	}{
		"magic":       {func(b []byte) []byte { b[0] = 'X'; return b }, "not a qcow2"},
		"version":     {func(b []byte) []byte { be.PutUint32(b[4:], 4); return b }, "not a qcow2"},
		"backing":     {func(b []byte) []byte { be.PutUint64(b[8:], 100); return b }, "backing file"},
		"encrypted":   {func(b []byte) []byte { be.PutUint32(b[32:], 1); return b }, "encrypted"},
		"clusters":    {func(b []byte) []byte { be.PutUint32(b[20:], 60); return b }, "cluster size"},
		"size":        {func(b []byte) []byte { be.PutUint64(b[24:], 1<<60); return b }, "size of a disk"},
		"features":    {func(b []byte) []byte { be.PutUint64(b[72:], 1<<3); return b }, "features"},
		"table":       {func(b []byte) []byte { be.PutUint32(b[36:], 0); return b }, "first table"},
		"table's end": {func(b []byte) []byte { be.PutUint64(b[40:], 1<<40); return b }, "cannot be read"},
		"empty":       {func([]byte) []byte { return nil }, "not a qcow2"},
	} {
		_, err := OpenDisk(bytes.NewReader(tt.change(disk(t, 3))))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	b := disk(t, 3)
	clear(b[4*cluster : 5*cluster])
	d, err := OpenDisk(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadCluster(2, make([]byte, cluster)); err == nil {
		t.Error("a damaged compressed cluster was read")
	}
}
