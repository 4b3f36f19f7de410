package diskimage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/diskimage/diskimagetest"
)

var release = &diskimage.Release{Kubernetes: "v1.37.2", Containerd: "v2.1.4", Arch: "amd64", Built: "0123456789ab"}

func TestInspectTellsWhatRealFilesAre(t *testing.T) {
	t.Parallel()
	disk := diskimagetest.Node(t, "v1.37.2")
	tests := map[string]struct {
		path string
		want diskimage.Info
	}{
		"raw": {disk, diskimage.Info{Format: diskimage.Raw, Arch: "amd64", Release: release}},
		"qcow2": {
			diskimagetest.Convert(t, disk, "qcow2"),
			diskimage.Info{Format: diskimage.QCOW2, Variant: "1.1", Arch: "amd64", Release: release},
		},
		"qcow2, old": {
			diskimagetest.Convert(t, disk, "qcow2", "-o", "compat=0.10"),
			diskimage.Info{Format: diskimage.QCOW2, Variant: "0.10", Arch: "amd64", Release: release},
		},
		"qcow2, small": {
			diskimagetest.Convert(t, disk, "qcow2", "-c", "-o", "cluster_size=4096"),
			diskimage.Info{Format: diskimage.QCOW2, Variant: "1.1", Arch: "amd64", Release: release},
		},
		"qcow2, large clusters": {
			diskimagetest.Convert(t, disk, "qcow2", "-o", "cluster_size=2M,preallocation=metadata"),
			diskimage.Info{Format: diskimage.QCOW2, Variant: "1.1", Arch: "amd64", Release: release},
		},
		// What only newer programs can look into is taken, and tells less.
		"qcow2, zstd": {
			diskimagetest.Convert(t, disk, "qcow2", "-c", "-o", "compression_type=zstd"),
			diskimage.Info{Format: diskimage.QCOW2, Variant: "1.1"},
		},
		"qcow2, extended": {
			diskimagetest.Convert(t, disk, "qcow2", "-o", "extended_l2=on"),
			diskimage.Info{Format: diskimage.QCOW2, Variant: "1.1"},
		},
		"stream": {
			diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=streamOptimized"),
			diskimage.Info{Format: diskimage.VMDK, Variant: diskimage.StreamOptimized},
		},
		"stream with a footer": {
			withFooter(t, diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=streamOptimized")),
			diskimage.Info{Format: diskimage.VMDK, Variant: diskimage.StreamOptimized},
		},
		"sparse": {
			diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=monolithicSparse"),
			diskimage.Info{Format: diskimage.VMDK, Variant: diskimage.MonolithicSparse},
		},
		"ova": {
			diskimagetest.NodeOVA(t, disk),
			diskimage.Info{Format: diskimage.OVA, Variant: diskimage.StreamOptimized, Arch: "amd64"},
		},
		"raw for arm": {
			diskimagetest.Disk(t, diskimagetest.RootARM64, map[string]string{"kaas-release": "not JSON"}),
			diskimage.Info{Format: diskimage.Raw, Arch: "arm64"},
		},
		"raw that says nothing": {
			diskimagetest.Disk(t, diskimagetest.RootAny, nil), diskimage.Info{Format: diskimage.Raw},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The name of a file says nothing.
			path := filepath.Join(t.TempDir(), "image.txt")
			if err := os.Symlink(test.path, path); err != nil {
				t.Fatal(err)
			}
			got, err := diskimage.InspectFile(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			test.want.Virtual, test.want.Size = 1<<30, got.Size
			if test.want.Format != diskimage.OVA {
				test.want.Disk.Len = got.Size
			} else if got.Disk.Name != "disk.vmdk" || got.Disk.Len == 0 {
				t.Errorf("the disk of the OVA is %+v", got.Disk)
			} else {
				test.want.Disk = got.Disk
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// changed is a copy of the file with bytes put over it.
func changed(t *testing.T, path string, edit func([]byte) []byte) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(out, edit(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

// rawChanged is a sparse copy of the disk with another length and another boot signature.
func rawChanged(t *testing.T, disk string, size int64, signature string) string {
	t.Helper()
	out := diskimagetest.Convert(t, disk, "raw")
	if err := os.Truncate(out, size); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(out, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(signature), 510); err != nil {
		t.Fatal(err)
	}
	return out
}

// withFooter is a stream as VMware's programs write it: the header does not know where the directory is, and its copy
// at the end does.
func withFooter(t *testing.T, stream string) string {
	t.Helper()
	return changed(t, stream, func(b []byte) []byte {
		end := make([]byte, 3*512) // marker, footer, end of stream
		copy(end[512:], b[:512])
		for i := range 8 {
			b[56+i] = 0xff
		}
		return append(b[:len(b)&^511], end...)
	})
}

func TestInspectRefusesWhatIsNoNodeImage(t *testing.T) {
	t.Parallel()
	disk := diskimagetest.Node(t, "v1.37.2")
	q := diskimagetest.Convert(t, disk, "qcow2")
	small := diskimagetest.Convert(t, disk, "qcow2", "-o", "cluster_size=4k")
	stream := diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=streamOptimized")
	footed := withFooter(t, stream)
	sparse := diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=monolithicSparse")
	ova := diskimagetest.NodeOVA(t, disk)
	vmdk, err := os.ReadFile(stream)
	if err != nil {
		t.Fatal(err)
	}
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	be := func(path string, at int, value uint64, n int) string {
		return changed(t, path, func(b []byte) []byte {
			for i := range n {
				b[at+i] = byte(value >> (8 * (n - 1 - i)))
			}
			return b
		})
	}
	le := func(path string, at int, value uint64, n int) string {
		return changed(t, path, func(b []byte) []byte {
			for i := range n {
				b[at+i] = byte(value >> (8 * i))
			}
			return b
		})
	}
	cut := func(path string, n int) string {
		return changed(t, path, func(b []byte) []byte { return b[:n] })
	}
	text := func(path, old, new string) string {
		return changed(t, path, func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(new), 1) })
	}
	size := func(path string) int {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return int(info.Size())
	}
	withOVF := func(ovf string) string {
		return diskimagetest.OVA(t, false, diskimagetest.File{
			Name: "n.ovf", Content: []byte(ovf),
		}, diskimagetest.File{Name: "disk.vmdk", Content: vmdk})
	}
	pad := strings.Repeat("x", 600)
	tests := map[string]struct{ path, want string }{
		"empty":      {file(""), "is not a disk image: it has 0 bytes"},
		"a web page": {file("<html>" + pad), "is not a disk image of a known format"},
		"gzip":       {file("\x1f\x8b" + pad), "is compressed by gzip"},
		"xz":         {file("\xfd7zXZ\x00" + pad), "is compressed by xz"},
		"zip":        {file("PK\x03\x04" + pad), "is a ZIP archive"},
		"vhdx":       {diskimagetest.Convert(t, disk, "vhdx"), "is a VHDX disk"},
		"vdi":        {diskimagetest.Convert(t, disk, "vdi"), "is a VDI disk"},
		"a split vmdk": {
			diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=monolithicFlat"), "whose data lies in other files",
		},
		"a tar archive": {
			diskimagetest.OVA(t, true, diskimagetest.File{Name: "disk.vmdk", Content: vmdk}),
			"is a tar archive and not an OVA",
		},
		"raw without boot": {rawChanged(t, disk, 1<<30, "\x00\x00"), "is not a disk image of a known format"},
		"raw cut in a part": {
			rawChanged(t, disk, 1<<30-100, "\x55\xaa"), "is cut off or damaged: a raw disk has whole sectors",
		},
		"raw too small":     {rawChanged(t, disk, 64<<20, "\x55\xaa"), "is too small for a node: its disk has 64 MiB"},
		"qcow2 too small":   {be(q, 24, 1<<29, 8), "is too small for a node: its disk has 512 MiB"},
		"qcow2 huge":        {be(q, 24, 1<<62, 8), "which is too large"},
		"qcow2 version":     {be(q, 4, 4, 4), "has version 4 of qcow2"},
		"backing file":      {be(q, 8, 0x200, 8), "needs a backing file"},
		"data file":         {be(q, 72, 4, 8), "keeps its data in another file"},
		"data file, hidden": {be(q, int(header(t, q)), 0x44415441_00000004, 8), "keeps its data in another file"},
		"encrypted":         {be(q, 32, 2, 4), "is encrypted"},
		"marked as damaged": {be(q, 72, 2, 8), "is marked as damaged"},
		"unknown features":  {be(q, 72, 1<<9, 8), "uses features of qcow2 that are not known: 0x200"},
		"cluster bits":      {be(q, 20, 63, 4), "clusters of 2^63 bytes"},
		"l1 too short":      {be(q, 36, 1, 4), "its first table does not fit"},
		"l1 too long":       {be(q, 36, 1<<31, 4), "its first table does not fit"},
		"l1 far away":       {be(q, 40, 1<<61, 8), "its first table lies behind its end"},
		"l2 far away":       {be(q, int(l1(t, q)), 1<<63|1<<40, 8), "a table lies behind its end"},
		"l2 twice": {
			changed(t, small, func(b []byte) []byte { at := l1(t, small); copy(b[at+8:at+16], b[at:at+8]); return b }),
			"lead to one place",
		},
		"qcow2, half":        {cut(q, size(q)/2), "is cut off or damaged"},
		"qcow2, most":        {cut(q, size(q)-200000), "is cut off or damaged"},
		"qcow2, head":        {cut(q, 600), "is cut off or damaged"},
		"qcow2 without boot": {be(q, int(firstCluster(t, q))+510, 0, 2), "holds a disk without a boot sector"},
		"stream, half":       {cut(stream, size(stream)/2), "is cut off or damaged: data lies behind its end"},
		"stream, footer":     {cut(footed, size(footed)-512), "is cut off or damaged: its footer is missing"},
		"sparse, half":       {cut(sparse, size(sparse)/2), "is cut off or damaged"},
		"vmdk elsewhere":     {le(sparse, 12, 0, 8), "keeps its data in other files"},
		"vmdk huge":          {le(sparse, 12, 1<<60, 8), "which is too large"},
		"vmdk with a parent": {
			text(sparse, "parentCID=ffffffff", "parentCID=12345678"), "is the difference to another disk",
		},
		"vmdk of two files": {
			text(sparse, "# The Disk Data Base", "RW 1 SPARSE \"other\"\n"), "keeps its data in other files",
		},
		"vmdk flat":    {text(sparse, " SPARSE ", " FLAT   "), "keeps its data in other files"},
		"vmdk kind":    {text(sparse, "monolithicSparse", "vmfsSparse\"     "), "is a VMDK of the kind"},
		"vmdk no text": {le(sparse, 28, 0, 8), "whose description lies in another file"},
		"vmdk grain":   {le(sparse, 20, 3, 8), "impossible sizes"},
		"ova, half":    {cut(ova, size(ova)/2), "is cut off or damaged: the archive ends in the middle"},
		"ova without disk": {
			diskimagetest.OVA(t, false, diskimagetest.File{Name: "n.ovf", Content: []byte(diskimagetest.OVF)}),
			"its disk disk.vmdk is missing",
		},
		"ova, other disk": {text(ova, "\x00KDMV", "\x00KDMX"), "disk.vmdk is not a disk image of a known format"},
		"ova, other content": {
			changed(t, ova, func(b []byte) []byte { b[bytes.Index(b, []byte("KDMV"))+400] ^= 1; return b }),
			"does not have the checksum of the manifest",
		},
		"ova, no xml": {withOVF("hello" + pad), "has a description that is not OVF"},
		"ova, two disks": {
			withOVF(
				strings.Replace(
					diskimagetest.OVF, "</DiskSection>", `<Disk ovf:diskId="d2" ovf:fileRef="file1"/></DiskSection>`, 1,
				),
			), "has 2 disks",
		},
		"ova, gzip": {
			withOVF(strings.Replace(diskimagetest.OVF, `ovf:id="file1"`, `ovf:id="file1" ovf:compression="gzip"`, 1)),
			"compressed",
		},
		"ova, out": {
			diskimagetest.OVA(
				t, true, diskimagetest.File{Name: "n.ovf", Content: []byte(diskimagetest.OVF)},
				diskimagetest.File{Name: "../x", Content: vmdk},
			),
			"an entry",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := diskimage.InspectFile(t.Context(), test.path)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if director.KindOf(err) != director.KindInvalid {
				t.Errorf("kind %s, want invalid", director.KindOf(err))
			}
		})
	}
}

func read(t *testing.T, path string, at int64, n int) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text[at : at+int64(n)]
}

func header(t *testing.T, q string) uint32 {
	t.Helper()
	return binary.BigEndian.Uint32(read(t, q, 100, 4))
}

func l1(t *testing.T, q string) uint64 {
	t.Helper()
	return binary.BigEndian.Uint64(read(t, q, 40, 8))
}

func firstCluster(t *testing.T, q string) uint64 {
	t.Helper()
	const mask = 0x00fffffffffffe00
	l2 := binary.BigEndian.Uint64(read(t, q, int64(l1(t, q)), 8)) & mask
	return binary.BigEndian.Uint64(read(t, q, int64(l2), 8)) & mask
}

// Whatever stands in an image, looking into it ends, and soon.
func TestInspectSurvivesDamage(t *testing.T) {
	t.Parallel()
	disk := diskimagetest.Node(t, "v1.37.2")
	for name, path := range map[string]string{
		"qcow2": diskimagetest.Convert(t, disk, "qcow2"), "compressed": diskimagetest.Convert(t, disk, "qcow2", "-c"),
		"stream": diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=streamOptimized"),
		"ova":    diskimagetest.NodeOVA(t, disk),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			seed := rand.New(rand.NewPCG(1, 2))
			refused := 0
			for range 300 {
				b := bytes.Clone(whole)
				for range 1 + seed.IntN(4) {
					at := seed.IntN(len(b))
					if seed.IntN(2) == 0 { // the tables are at the beginning
						at = seed.IntN(min(len(b), 400<<10))
					}
					b[at] = byte(seed.Uint32())
				}
				if seed.IntN(4) == 0 {
					b = b[:seed.IntN(len(b))]
				}
				if _, err := diskimage.Inspect(t.Context(), "image", bytes.NewReader(b), int64(len(b))); err != nil {
					refused++
				}
			}
			if refused == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}

func TestInspectEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := diskimage.InspectFile(ctx, diskimagetest.NodeOVA(t, diskimagetest.Node(t, "v1.37.2"))); err == nil {
		t.Error("nobody noticed")
	}
}

func TestParseRelease(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*diskimage.Release{
		`{"kubernetes": "1.37.2"}`:                   {Kubernetes: "v1.37.2"},
		`{"kubernetes": "v1.37.2", "arch": "arm64"}`: {Kubernetes: "v1.37.2", Arch: "arm64"},
		`{"kubernetes": ""}`:                         nil,
		`{"kubernetes": "latest"}`:                   nil,
		`nothing`:                                    nil,
	} {
		if d := cmp.Diff(want, diskimage.ParseRelease([]byte(text))); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}
