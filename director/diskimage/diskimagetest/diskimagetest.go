// Package diskimagetest makes real disk images for tests, with sfdisk, mke2fs and qemu-img.
package diskimagetest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Types of the root partition in GPT.
const (
	RootAMD64 = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"
	RootARM64 = "B921B045-1DF0-41C3-AF44-4C6F280D3FAE"
	RootAny   = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
)

// Release is the text of /etc/kaas-release for a version.
func Release(kubernetes, arch string) string {
	return fmt.Sprintf(
		"{\n  \"image\": \"debian12\",\n  \"kubernetes\": %q,\n  \"containerd\": \"v2.1.4\",\n  \"arch\": %q,\n  "+
			"\"built_from\": \"0123456789ab\"\n}\n",
		kubernetes, arch,
	)
}

// Need skips the test where the programs that make images are missing, or fails it where KAAS_REQUIRE_REAL is set.
func Need(t testing.TB) {
	t.Helper()
	for _, program := range []string{"qemu-img", "sfdisk", "mke2fs", "prlimit"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("KAAS_REQUIRE_REAL") != "" {
				t.Fatalf("%s is not installed: run test/lab/need.sh qemu-utils fdisk e2fsprogs util-linux", program)
			}
			t.Skipf("%s is not installed: run test/lab/need.sh qemu-utils fdisk e2fsprogs util-linux", program)
		}
	}
}

// Disk makes a sparse raw disk of 1 GiB with a boot sector, and a root partition of that GPT type with files in /etc,
// by name.
func Disk(t testing.TB, kind string, etc map[string]string) string {
	t.Helper()
	Need(t)
	dir := t.TempDir()
	root := filepath.Join(dir, "root", "etc")
	must(t, os.MkdirAll(root, 0o755))
	for i := range 200 { // so that the directory has several blocks
		must(
			t,
			os.WriteFile(filepath.Join(root, fmt.Sprintf("a-file-with-a-rather-long-name-%03d.conf", i)), nil, 0o644),
		)
	}
	for name, text := range etc {
		must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	disk, part := filepath.Join(dir, "disk.raw"), filepath.Join(dir, "part")
	must(t, os.WriteFile(disk, nil, 0o644))
	must(t, os.Truncate(disk, 1<<30))
	run(
		t,
		"label: gpt\nstart=2048, size=2048, type=21686148-6449-6E6F-744E-656564454649\nstart=4096, size=131072, type="+
			kind+"\n",
		"sfdisk", "-q", disk,
	)
	run(t, "", "mke2fs", "-q", "-t", "ext4", "-O", "metadata_csum,64bit", "-d", filepath.Dir(root), part, "65536k")
	run(t, "", "dd", "if="+part, "of="+disk, "bs=1M", "seek=2", "conv=notrunc,sparse", "status=none")
	return disk
}

// Node is a Disk for amd64 that says which Kubernetes it carries.
func Node(t testing.TB, kubernetes string) string {
	t.Helper()
	return Disk(t, RootAMD64, map[string]string{"kaas-release": Release(kubernetes, "amd64")})
}

// Convert makes another image of a raw disk with qemu-img: format and arguments such as -o compat=0.10.
func Convert(t testing.TB, disk, format string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "disk."+format)
	all := append([]string{"convert", "-f", "raw", "-O", format}, args...)
	run(t, "", "qemu-img", append(all, disk, out)...)
	return out
}

// OVF is a description of a VM with the one disk.
const OVF = `<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:vmw="http://www.vmware.com/schema/ovf">
  <References><File ovf:href="disk.vmdk" ovf:id="file1"/></References>
  <DiskSection><Info>disks</Info>
    <Disk ovf:capacity="1073741824" ovf:diskId="vmdisk1" ovf:fileRef="file1"/></DiskSection>
  <VirtualSystem ovf:id="node"><Info>a node</Info>
    <OperatingSystemSection ovf:id="96" vmw:osType="debian12_64Guest"><Info>os</Info></OperatingSystemSection>
  </VirtualSystem>
</Envelope>
`

// File is an entry of an OVA.
type File struct {
	Name    string
	Content []byte
}

// OVA packs the files, in order. A manifest of SHA-256 is put behind the first one unless bare.
func OVA(t testing.TB, bare bool, files ...File) string {
	t.Helper()
	if !bare {
		var m strings.Builder
		for _, f := range files {
			sum := sha256.Sum256(f.Content)
			fmt.Fprintf(&m, "SHA256(%s)= %s\n", f.Name, hex.EncodeToString(sum[:]))
		}
		files = append([]File{files[0], {"node.mf", []byte(m.String())}}, files[1:]...)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		must(
			t,
			w.WriteHeader(&tar.Header{
				Name: f.Name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.Content)), Format: tar.FormatUSTAR,
			}),
		)
		_, err := w.Write(f.Content)
		must(t, err)
	}
	must(t, w.Close())
	out := filepath.Join(t.TempDir(), "node.ova")
	must(t, os.WriteFile(out, b.Bytes(), 0o644))
	return out
}

// NodeOVA is a disk as an OVA with its description and manifest.
func NodeOVA(t testing.TB, disk string) string {
	t.Helper()
	text, err := os.ReadFile(Convert(t, disk, "vmdk", "-o", "subformat=streamOptimized"))
	must(t, err)
	return OVA(t, false, File{"node.ovf", []byte(OVF)}, File{"disk.vmdk", text})
}

// SHA256 returns the checksum of a file in hex.
func SHA256(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func run(t testing.TB, in, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Stdin = strings.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
