package imagefile

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzReadCluster reads clusters out of files whose tables point anywhere.
func FuzzReadCluster(f *testing.F) {
	image := func(bits uint32, size uint64, entry uint64) []byte {
		b := make([]byte, 4096)
		copy(b, "QFI\xfb")
		be := binary.BigEndian
		be.PutUint32(b[4:], 3)
		be.PutUint32(b[20:], bits)
		be.PutUint64(b[24:], size)
		be.PutUint32(b[36:], 4)
		be.PutUint64(b[40:], 512)
		be.PutUint64(b[512:], 1024)
		be.PutUint64(b[1024:], entry)
		return b
	}
	f.Add(image(9, 64<<10, 2048), int64(0))
	f.Add(image(9, 64<<10, 1<<62|2048), int64(0))
	f.Add(image(9, 64<<10, 1<<62|(1<<61-1)), int64(0))
	f.Add(image(21, 1<<40, 1<<55), int64(1<<40))
	f.Fuzz(func(t *testing.T, content []byte, n int64) {
		d, err := OpenDisk(bytes.NewReader(content))
		if err != nil {
			return
		}
		p := make([]byte, d.Cluster)
		if data, err := d.ReadCluster(n, p); err != nil && data && n < 0 {
			t.Errorf("cluster %d was read", n)
		}
	})
}
