package libvirt

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kdomanski/iso9660"

	"github.com/director-kaas/kaas/director/hypervisor"
)

func TestSeedISO(t *testing.T) {
	t.Parallel()
	seed := hypervisor.Seed{
		MetaData: []byte("instance-id: m1\n"), UserData: bytes.Repeat([]byte("#cloud-config\n"), 1000),
		NetworkConfig: nil,
	}
	image := seedISO(seed)
	if !bytes.Equal(image, seedISO(seed)) {
		t.Error("the same seed gives other bytes")
	}
	if len(image)%sector != 0 {
		t.Errorf("%d bytes are not whole sectors", len(image))
	}
	disk, err := iso9660.OpenImage(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	if label, err := disk.Label(); err != nil || label != "cidata" {
		t.Errorf("label %q, %v", label, err)
	}
	root, err := disk.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	children, err := root.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range children {
		text, err := io.ReadAll(c.Reader())
		if err != nil {
			t.Fatal(err)
		}
		got[c.Name()] = string(text)
	}
	want := map[string]string{
		"meta-data": string(seed.MetaData), "user-data": string(seed.UserData), "network-config": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	// What cloud-init asks to find the disk.
	if blkid, err := exec.LookPath("/usr/sbin/blkid"); err == nil {
		path := filepath.Join(t.TempDir(), "seed.iso")
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(blkid, "-p", "-o", "export", path).CombinedOutput()
		if err != nil ||
			!bytes.Contains(out, []byte("\nLABEL=cidata\n")) && !bytes.HasPrefix(out, []byte("LABEL=cidata\n")) ||
			!bytes.Contains(out, []byte("TYPE=iso9660\n")) {
			t.Errorf("blkid: %v\n%s", err, out)
		}
	}
}
