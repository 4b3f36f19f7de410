// Package director_test tests the pieces of the appliance's image that need no build of it.
package director_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/ovf"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director/appliance"
)

// makeOVA runs ova.py on a small disk, and returns the files of the OVA in their order.
func makeOVA(t *testing.T) (names []string, files map[string][]byte) {
	t.Helper()
	for _, program := range []string{"/usr/bin/python3", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	dir := t.TempDir()
	disk, out := filepath.Join(dir, "director.vmdk"), filepath.Join(dir, "director.ova")
	text, err := exec.Command(
		"qemu-img", "create", "-q", "-f", "vmdk", "-o", "subformat=streamOptimized", disk, "64M",
	).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	properties, err := json.Marshal(appliance.Properties())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "ova.py", "1.2.3 <&>", disk, "67108864", out)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1750000000")
	cmd.Stdin = bytes.NewReader(properties)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files = map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

var blankDisk = regexp.MustCompile(`<Disk [^>]*diskId="data"[^>]*/>|<Item>.*ovf:/disk/data.*</Item>`)

// The descriptor asks for every property, and vCenter's simulator reads a VM of it.
func TestOVA(t *testing.T) {
	t.Parallel()
	names, files := makeOVA(t)
	if strings.Join(names, " ") != "director.ovf director.mf director.vmdk" {
		t.Fatalf("the OVA has %v", names)
	}
	for _, name := range []string{"director.ovf", "director.vmdk"} {
		if want := fmt.Sprintf("SHA256(%s)= %x\n", name,
			sha256.Sum256(files[name])); !strings.Contains(string(files["director.mf"]), want) {
			t.Errorf("the manifest has no %q:\n%s", want, files["director.mf"])
		}
	}
	envelope, err := ovf.Unmarshal(bytes.NewReader(files["director.ovf"]))
	if err != nil {
		t.Fatal(err)
	}
	vm := envelope.VirtualSystem
	if len(envelope.Disk.Disks) != 2 || envelope.Disk.Disks[1].FileRef != nil {
		t.Errorf("disks: %+v; want the root disk and a blank one", envelope.Disk.Disks)
	}
	if got := *vm.VirtualHardware[0].Transport; !strings.Contains(got, "com.vmware.guestInfo") ||
		!strings.Contains(got, "iso") {
		t.Errorf("transports: %s", got)
	}
	asked := map[string]ovf.Property{}
	for _, p := range vm.Product[0].Property {
		asked[p.Key] = p
	}
	for _, want := range appliance.Properties() {
		got, ok := asked[want.Key]
		if !ok || !*got.UserConfigurable || (got.Password != nil && *got.Password) != want.Secret {
			t.Errorf("%s: %+v", want.Key, got)
		}
	}
	simulator.Test(func(ctx context.Context, c *vim25.Client) {
		finder := find.NewFinder(c)
		pool, err1 := finder.ResourcePool(ctx, "/DC0/host/DC0_C0/Resources")
		store, err2 := finder.DefaultDatastore(ctx)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		// The simulator of govmomi 0.54 does not know disks without a file (DSP0243, 9.1), which vCenter makes blank.
		text := blankDisk.ReplaceAllString(string(files["director.ovf"]), "")
		spec, err := ovf.NewManager(c).CreateImportSpec(ctx, text, pool, store, &types.OvfCreateImportSpecParams{
			EntityName:      "director",
			PropertyMapping: []types.KeyValue{{Key: "director.hostname", Value: "d1"}},
		})
		if err != nil || len(spec.Error) > 0 {
			t.Fatalf("%v, %+v", err, spec)
		}
		config := spec.ImportSpec.(*types.VirtualMachineImportSpec).ConfigSpec
		disks := 0
		for _, change := range config.DeviceChange {
			if _, ok := change.GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk); ok {
				disks++
			}
		}
		if disks != 1 || config.NumCPUs != 2 || config.MemoryMB != 4096 {
			t.Errorf("%d disks, %d CPUs, %d MB", disks, config.NumCPUs, config.MemoryMB)
		}
	})
}
