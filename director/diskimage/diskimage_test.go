package diskimage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
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

type refusal struct {
	path string
	want string // part of the error
}

func TestInspectRefusesWhatIsNoNodeImage(t *testing.T) {
	t.Parallel()
	disk := diskimagetest.Node(t, "v1.37.2")
	stream := diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=streamOptimized")
	vmdk, err := os.ReadFile(stream)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]refusal{}
	maps.Copy(tests, refusedFormats(t, disk, vmdk))
	maps.Copy(tests, refusedQCOW2(t, disk))
	maps.Copy(tests, refusedVMDK(t, disk, stream))
	maps.Copy(tests, refusedOVA(t, disk, vmdk))
	if len(tests) != 50 {
		t.Errorf("%d files, two have one name", len(tests))
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

func refusedFormats(t *testing.T, disk string, vmdk []byte) map[string]refusal {
	pad := strings.Repeat("x", 600)
	return map[string]refusal{
		"empty":      {path: file(t, ""), want: "is not a disk image: it has 0 bytes"},
		"a web page": {path: file(t, "<html>"+pad), want: "is not a disk image of a known format"},
		"gzip":       {path: file(t, "\x1f\x8b"+pad), want: "is compressed by gzip"},
		"xz":         {path: file(t, "\xfd7zXZ\x00"+pad), want: "is compressed by xz"},
		"zip":        {path: file(t, "PK\x03\x04"+pad), want: "is a ZIP archive"},
		"vhdx":       {path: diskimagetest.Convert(t, disk, "vhdx"), want: "is a VHDX disk"},
		"vdi":        {path: diskimagetest.Convert(t, disk, "vdi"), want: "is a VDI disk"},
		"a split vmdk": {
			path: diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=monolithicFlat"),
			want: "whose data lies in other files",
		},
		"a tar archive": {
			path: diskimagetest.OVA(t, true, diskimagetest.File{Name: "disk.vmdk", Content: vmdk}),
			want: "is a tar archive and not an OVA",
		},
		"raw without boot": {
			path: rawChanged(t, disk, 1<<30, "\x00\x00"),
			want: "is not a disk image of a known format",
		},
		"raw cut in a part": {
			path: rawChanged(t, disk, 1<<30-100, "\x55\xaa"),
			want: "is cut off or damaged: a raw disk has whole sectors",
		},
		"raw too small": {
			path: rawChanged(t, disk, 64<<20, "\x55\xaa"),
			want: "is too small for a node: its disk has 64 MiB",
		},
	}
}

func refusedQCOW2(t *testing.T, disk string) map[string]refusal {
	q := diskimagetest.Convert(t, disk, "qcow2")
	small := diskimagetest.Convert(t, disk, "qcow2", "-o", "cluster_size=4k")
	return map[string]refusal{
		"qcow2 too small": {path: be(t, q, 24, 1<<29, 8), want: "is too small for a node: its disk has 512 MiB"},
		"qcow2 huge":      {path: be(t, q, 24, 1<<62, 8), want: "which is too large"},
		"qcow2 version":   {path: be(t, q, 4, 4, 4), want: "has version 4 of qcow2"},
		"backing file":    {path: be(t, q, 8, 0x200, 8), want: "needs a backing file"},
		"data file":       {path: be(t, q, 72, 4, 8), want: "keeps its data in another file"},
		"data file, hidden": {
			path: be(t, q, int(header(t, q)), 0x44415441_00000004, 8),
			want: "keeps its data in another file",
		},
		"encrypted":         {path: be(t, q, 32, 2, 4), want: "is encrypted"},
		"marked as damaged": {path: be(t, q, 72, 2, 8), want: "is marked as damaged"},
		"unknown features":  {path: be(t, q, 72, 1<<9, 8), want: "uses features of qcow2 that are not known: 0x200"},
		"cluster bits":      {path: be(t, q, 20, 63, 4), want: "clusters of 2^63 bytes"},
		"l1 too short":      {path: be(t, q, 36, 1, 4), want: "its first table does not fit"},
		"l1 too long":       {path: be(t, q, 36, 1<<31, 4), want: "its first table does not fit"},
		"l1 far away":       {path: be(t, q, 40, 1<<61, 8), want: "its first table lies behind its end"},
		"l2 far away":       {path: be(t, q, int(l1(t, q)), 1<<63|1<<40, 8), want: "a table lies behind its end"},
		"l2 twice": {
			path: changed(t, small, func(b []byte) []byte {
				at := l1(t, small)
				copy(b[at+8:at+16],
					b[at:at+8])
				return b
			}),
			want: "lead to one place",
		},
		"qcow2, half": {path: cut(t, q, size(t, q)/2), want: "is cut off or damaged"},
		"qcow2, most": {path: cut(t, q, size(t, q)-200000), want: "is cut off or damaged"},
		"qcow2, head": {path: cut(t, q, 600), want: "is cut off or damaged"},
		"qcow2 without boot": {
			path: be(t, q, int(firstCluster(t, q))+510, 0, 2),
			want: "holds a disk without a boot sector",
		},
	}
}

func refusedVMDK(t *testing.T, disk, stream string) map[string]refusal {
	footed := withFooter(t, stream)
	sparse := diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=monolithicSparse")
	return map[string]refusal{
		"stream, half": {
			path: cut(t, stream, size(t, stream)/2),
			want: "is cut off or damaged: data lies behind its end",
		},
		"stream, footer": {
			path: cut(t, footed, size(t, footed)-512),
			want: "is cut off or damaged: its footer is missing",
		},
		"sparse, half":   {path: cut(t, sparse, size(t, sparse)/2), want: "is cut off or damaged"},
		"vmdk elsewhere": {path: le(t, sparse, 12, 0, 8), want: "keeps its data in other files"},
		"vmdk huge":      {path: le(t, sparse, 12, 1<<60, 8), want: "which is too large"},
		"vmdk with a parent": {
			path: replaced(t, sparse, "parentCID=ffffffff", "parentCID=12345678"),
			want: "is the difference to another disk",
		},
		"vmdk of two files": {
			path: replaced(t, sparse, "# The Disk Data Base", "RW 1 SPARSE \"other\"\n"),
			want: "keeps its data in other files",
		},
		"vmdk flat": {path: replaced(t, sparse, " SPARSE ", " FLAT   "), want: "keeps its data in other files"},
		"vmdk kind": {
			path: replaced(t, sparse, "monolithicSparse", "vmfsSparse\"     "),
			want: "is a VMDK of the kind",
		},
		"vmdk no text": {path: le(t, sparse, 28, 0, 8), want: "whose description lies in another file"},
		"vmdk grain":   {path: le(t, sparse, 20, 3, 8), want: "impossible sizes"},
	}
}

func refusedOVA(t *testing.T, disk string, vmdk []byte) map[string]refusal {
	ova := diskimagetest.NodeOVA(t, disk)
	pad := strings.Repeat("x", 600)
	return map[string]refusal{
		"ova, half": {path: cut(t, ova, size(t, ova)/2), want: "is cut off or damaged: the archive ends in the middle"},
		"ova without disk": {
			path: diskimagetest.OVA(t, false, diskimagetest.File{Name: "n.ovf", Content: []byte(diskimagetest.OVF)}),
			want: "its disk disk.vmdk is missing",
		},
		"ova, other disk": {
			path: replaced(t, ova, "\x00KDMV", "\x00KDMX"),
			want: "disk.vmdk is not a disk image of a known format",
		},
		"ova, other content": {
			path: changed(t, ova, func(b []byte) []byte { b[bytes.Index(b, []byte("KDMV"))+400] ^= 1; return b }),
			want: "does not have the checksum of the manifest",
		},
		"ova, no xml": {path: withOVF(t, vmdk, "hello"+pad), want: "has a description that is not OVF"},
		"ova, two disks": {
			path: withOVF(t, vmdk,
				strings.Replace(
					diskimagetest.OVF, "</DiskSection>", `<Disk ovf:diskId="d2" ovf:fileRef="file1"/></DiskSection>`, 1,
				),
			),
			want: "has 2 disks",
		},
		"ova, gzip": {
			path: withOVF(t, vmdk, strings.Replace(diskimagetest.OVF, `ovf:id="file1"`,
				`ovf:id="file1" ovf:compression="gzip"`, 1)),
			want: "compressed",
		},
		"ova, out": {
			path: diskimagetest.OVA(
				t, true, diskimagetest.File{Name: "n.ovf", Content: []byte(diskimagetest.OVF)},
				diskimagetest.File{Name: "../x", Content: vmdk},
			),
			want: "an entry",
		},
	}
}

func file(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// be returns the file with an integer of n bytes in big endian.
func be(t *testing.T, path string, at int, value uint64, n int) string {
	return changed(t, path, func(b []byte) []byte {
		for i := range n {
			b[at+i] = byte(value >> (8 * (n - 1 - i)))
		}
		return b
	})
}

// le returns the file with an integer of n bytes in little endian.
func le(t *testing.T, path string, at int, value uint64, n int) string {
	return changed(t, path, func(b []byte) []byte {
		for i := range n {
			b[at+i] = byte(value >> (8 * i))
		}
		return b
	})
}

func cut(t *testing.T, path string, n int) string {
	return changed(t, path, func(b []byte) []byte { return b[:n] })
}

func replaced(t *testing.T, path, old, new string) string {
	return changed(t, path, func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(new), 1) })
}

func size(t *testing.T, path string) int {
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size())
}

// withOVF returns an OVA with this description.
func withOVF(t *testing.T, vmdk []byte, ovf string) string {
	return diskimagetest.OVA(t, false,
		diskimagetest.File{Name: "n.ovf", Content: []byte(ovf)},
		diskimagetest.File{Name: "disk.vmdk", Content: vmdk},
	)
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
