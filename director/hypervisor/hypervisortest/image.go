package hypervisortest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/director-kaas/kaas/director/hypervisor"
)

// NewImage writes a qcow2 disk of 64 MiB with that boot sector, and with some random bytes, so that no image is like
// another.
func NewImage(t testing.TB, boot []byte) hypervisor.ImageSpec {
	t.Helper()
	return NewImageOf(t, 64<<20, boot)
}

// NewImageOf is NewImage for a disk of that size, of which nearly nothing is taken.
func NewImageOf(t testing.TB, size uint64, boot []byte) hypervisor.ImageSpec {
	t.Helper()
	const cluster = 1 << 16
	disk := make([]byte, 6*cluster)
	copy(disk, "QFI\xfb")
	be := binary.BigEndian
	be.PutUint32(disk[4:], 2)                                   // version
	be.PutUint32(disk[20:], 16)                                 // cluster bits
	be.PutUint64(disk[24:], size)                               // virtual size
	be.PutUint32(disk[36:], uint32((size+512<<20-1)/(512<<20))) // entries of the L1 table
	be.PutUint64(disk[40:], 3*cluster)                          // L1 table
	be.PutUint64(disk[48:], 1*cluster)                          // refcount table
	be.PutUint32(disk[56:], 1)                                  // its clusters
	be.PutUint64(disk[cluster:], 2*cluster)
	for i := range 6 {
		be.PutUint16(disk[2*cluster+2*i:], 1)
	}
	be.PutUint64(disk[3*cluster:], 4*cluster|1<<63) // L2 table
	be.PutUint64(disk[4*cluster:], 5*cluster|1<<63) // first cluster of the disk
	copy(disk[5*cluster:], boot)
	copy(disk[5*cluster+510:], "\x55\xaa")
	_, _ = rand.Read(disk[4096:4128])
	_, _ = rand.Read(disk[5*cluster+4096 : 5*cluster+4128])
	path := filepath.Join(t.TempDir(), "image.qcow2")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(disk)
	return hypervisor.ImageSpec{Name: RandomID("img-"), Path: path, SHA256: hex.EncodeToString(sum[:]), Format: "qcow2"}
}
