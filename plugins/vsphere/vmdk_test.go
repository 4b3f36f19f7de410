package vsphere

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/vmware/govmomi/vmdk"

	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
	"github.com/director-kaas/kaas/director/hypervisor/imagefile"
)

// expand reads a streamOptimized VMDK as its format describes it: from the footer over the directory and the tables to
// the grains.
func expand(t *testing.T, file []byte) []byte {
	t.Helper()
	le := binary.LittleEndian
	if len(file)%sector != 0 || string(file[:4]) != "KDMV" {
		t.Fatalf("%d bytes that begin with %q", len(file), file[:4])
	}
	footer := file[len(file)-2*sector:] // before the marker of the end
	if string(footer[:4]) != "KDMV" || len(bytes.Trim(footer[sector:], "\x00")) != 0 {
		t.Fatal("no footer before the end")
	}
	capacity, dir := le.Uint64(footer[12:])*sector, le.Uint64(footer[56:])*sector
	out := make([]byte, capacity)
	grains := (capacity + grainSize - 1) / grainSize
	for n := range grains {
		table := uint64(le.Uint32(file[dir+n/grainsPer*4:])) * sector
		if table == 0 {
			continue
		}
		at := uint64(le.Uint32(file[table+n%grainsPer*4:])) * sector
		if at == 0 {
			continue
		}
		if lba := le.Uint64(file[at:]); lba*sector != n*grainSize {
			t.Fatalf("grain %d says that it is at sector %d", n, lba)
		}
		z, err := zlib.NewReader(bytes.NewReader(file[at+12 : at+12+uint64(le.Uint32(file[at+8:]))]))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(z, out[n*grainSize:min((n+1)*grainSize, capacity)]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestVMDK(t *testing.T) {
	t.Parallel()
	image := hypervisortest.NewImage(t, []byte("boot"))
	f, err := os.Open(image.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := imagefile.OpenDisk(f)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	last := int64(0)
	if err := writeVMDK(t.Context(), &file, d, func(done int64) { last = done }); err != nil {
		t.Fatal(err)
	}
	if last != d.Size {
		t.Errorf("progress ended at %d of %d", last, d.Size)
	}
	want := make([]byte, d.Size)
	if _, err := d.ReadCluster(0, want[:d.Cluster]); err != nil {
		t.Fatal(err)
	}
	if got := expand(t, file.Bytes()); !bytes.Equal(got, want) {
		t.Error("the disk is another one after the conversion")
	}
	if file.Len() > 1<<18 {
		t.Errorf("64 MiB of zeros take %d bytes", file.Len())
	}
	// Another reader's opinion of the descriptor.
	desc, err := vmdk.ParseDescriptor(bytes.NewReader(bytes.TrimRight(file.Bytes()[sector:overhead*sector], "\x00")))
	if err != nil {
		t.Fatal(err)
	}
	if len(desc.Extent) != 1 || desc.Extent[0].Size*sector != d.Size ||
		!strings.Contains(desc.Type, "streamOptimized") {
		t.Errorf("descriptor %+v", desc)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := writeVMDK(ctx, io.Discard, d, func(int64) {}); err == nil {
		t.Error("a cancelled conversion went on")
	}
}
