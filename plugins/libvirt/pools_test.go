package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// newPool defines and starts a pool of the type.
func (f *fixture) newPool(t *testing.T, kind string) string {
	t.Helper()
	name := hypervisortest.RandomID(kind + "-")
	xml := map[string]string{
		"dir": "<pool type='dir'><name>%[1]s</name><target><path>/pools/%[1]s</path></target></pool>",
		"logical": "<pool type='logical'><name>%[1]s</name><source><name>%[1]s</name></source>" +
			"<target><path>/dev/%[1]s</path></target></pool>",
		"netfs": "<pool type='netfs'><name>%[1]s</name><source><host name='nfs.example.org'/>" +
			"<dir path='/%[1]s'/></source><target><path>/pools/%[1]s</path></target></pool>",
	}[kind]
	p, err := f.keep.StoragePoolDefineXML(fmt.Sprintf(xml, name), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Create(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the fixture forgets the hypervisor, and after its image is gone
		if err := p.Free(); err != nil {
			t.Error(err)
		}
	})
	return name
}

// withPools is a fixture of libvirt's test driver with other pools.
func withPools(t *testing.T, files, disks string) *fixture {
	t.Helper()
	f := newFixture(t, "test:///default", "default-pool")
	f.cfg.Hosts = slices.Clone(f.cfg.Hosts)
	if files != "" {
		f.cfg.Hosts[0].Pool = f.newPool(t, files)
		b := f.open(t)
		image := newImage(t)
		if err := b.EnsureImage(t.Context(), image, nil); err != nil {
			t.Fatal(err)
		}
		f.image = image.Name
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if disks != "" {
		f.cfg.Hosts[0].DiskPool = f.newPool(t, disks)
	}
	return f
}

// TestRoom asks a pool whether disks fit into it.
func TestRoom(t *testing.T) {
	t.Parallel()
	p := &pool{
		h: &host{HostConfig: HostConfig{Name: "lab"}}, name: "default", op: "libvirt.ensure", free: 1 << 30,
		all: 4 << 30,
	}
	tests := []struct {
		name  string
		need  int64
		disks []int64
		want  string // of the error
	}{
		{name: "nothing"},
		{name: "as much as keeps the reserve", need: 1<<30 - minFree, disks: []int64{4 << 30}},
		{name: "less than what it replaces", need: -512 << 10},
		{name: "one byte too much", need: 1<<30 - minFree + 1, want: "has 1.0 GiB free, and 1.0 GiB are needed"},
		{name: "a disk that never fits", disks: []int64{4<<30 + 1}, want: "a disk of 4.0 GiB does not fit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := p.room(tt.need, tt.disks...)
			if tt.want == "" {
				if err != nil {
					t.Errorf("there is room, but: %v", err)
				}
				return
			}
			if director.KindOf(err) != director.KindExhausted || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestPoolConformance holds the back end to the contract with disks in a volume group, in a pool of files of their own,
// and on NFS.
func TestPoolConformance(t *testing.T) {
	t.Parallel()
	for name, pools := range map[string][2]string{
		"logical": {"", "logical"}, "dir beside dir": {"", "dir"}, "nfs": {"netfs", ""},
		"logical beside nfs": {"netfs", "logical"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hypervisortest.Exercise(t, withPools(t, pools[0], pools[1]).subject)
		})
	}
}

// A disk in a volume group is a block device of its full size, whose ends are overwritten once, before the VM is there;
// the copy of the image is made once, and anew if it was cut off.
func TestVolumeGroup(t *testing.T) {
	t.Parallel()
	f := withPools(t, "", "logical")
	b := f.open(t)
	t.Cleanup(func() { b.Close() })
	copies, wiped := spyOnCopies(t, b)
	s := f.spec(t, b)
	ensure := func() hypervisor.VM {
		t.Helper()
		vm, err := b.Ensure(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return vm
	}
	cut := func(at string) {
		t.Helper()
		b.at = func(point string) error {
			if point == at {
				return errors.New("cut off")
			}
			return nil
		}
		if _, err := b.Ensure(t.Context(), s); err == nil {
			t.Fatalf("nothing was cut off at %s", at)
		}
		b.at = func(string) error { return nil }
	}
	cut("copied")
	cut("blanking")
	vm := ensure()
	if *copies != 2 || !slices.Equal(*wiped, []uint64{0, 12 << 20}) {
		t.Errorf("the image was copied %d times, and zeros written at %v", *copies, *wiped)
	}
	wantBlockDevices(t, f, vm.ID)
	// The kept disk is kept as it is.
	if err := b.Delete(t.Context(), vm.ID, hypervisor.DeleteOptions{Owner: s.Key}); err != nil {
		t.Fatal(err)
	}
	volumes, err := b.ListVolumes(t.Context(), s.Key.Director)
	if err != nil || len(volumes) != 1 || volumes[0].Host != "h1" || volumes[0].Size != 16<<20 {
		t.Fatalf("kept are %+v, %v", volumes, err)
	}
	ensure()
	if len(*wiped) != 2 || *copies != 3 {
		t.Errorf("a kept disk was overwritten: %v; %d copies", *wiped, *copies)
	}
	// One that nobody has cleaned yet is not kept.
	if err := b.Delete(t.Context(), vm.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}); err != nil {
		t.Fatal(err)
	}
	cut("blanking")
	if err := b.Delete(t.Context(), hypervisor.ID(
		domainUUID(s.Key),
	), hypervisor.DeleteOptions{Owner: s.Key}); err != nil {
		t.Fatal(err)
	}
	if volumes, err = b.ListVolumes(t.Context(), s.Key.Director); err != nil || len(volumes) > 0 {
		t.Errorf("a disk with another's data was kept: %+v, %v", volumes, err)
	}
}

// spyOnCopies counts the copies of the image, and notes where zeros are written.
func spyOnCopies(t *testing.T, b *Backend) (copies *int, wiped *[]uint64) {
	t.Helper()
	copies, wiped = new(int), new([]uint64)
	clone, upload := b.clone, b.upload
	b.clone = func(p *pool, xml string, image *virt.StorageVol) (*virt.StorageVol, error) {
		*copies++
		return clone(p, xml, image)
	}
	b.upload = func(ctx context.Context, c *virt.Connect, v *virt.StorageVol, src source) error {
		if name, err := v.GetName(); err == nil && dataVolume.MatchString(name) {
			text, err := io.ReadAll(src.r)
			if err != nil || len(strings.Trim(string(text), "\x00")) > 0 || int64(len(text)) != src.size {
				t.Errorf("%d bytes were written over %s, %v", len(text), name, err)
			}
			*wiped = append(*wiped, src.offset)
			return err
		}
		return upload(ctx, c, v, src)
	}
	return copies, wiped
}

// wantBlockDevices checks that the disks of the VM are in the volume group, and that its seed is not.
func wantBlockDevices(t *testing.T, f *fixture, id hypervisor.ID) {
	t.Helper()
	d, err := f.keep.LookupDomainByUUIDString(string(id))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Free() }()
	text, err := d.GetXMLDesc(0)
	if err != nil {
		t.Fatal(err)
	}
	var def virtxml.Domain
	if err := def.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"root.raw", "data.kaas-data.raw"} {
		disk := def.Devices.Disks[i]
		if disk.Source.Block == nil || disk.Driver.Type != "raw" ||
			!strings.HasPrefix(disk.Source.Block.Dev, "/dev/logical-") ||
			!strings.HasSuffix(disk.Source.Block.Dev, want) {
			t.Errorf("disk %d is %+v %+v", i, disk.Source.Block, disk.Driver)
		}
	}
	if seed := def.Devices.Disks[2]; seed.Source.File == nil || strings.HasPrefix(seed.Source.File.File, "/dev/") {
		t.Errorf("the seed is %+v", seed.Source)
	}
}

// Two hosts that share a pool have one image and one data disk, and a VM may come back on the other host.
func TestSharedPool(t *testing.T) {
	t.Parallel()
	f := withPools(t, "netfs", "")
	// the test driver is one hypervisor for all of a process
	f.cfg.Hosts = append(f.cfg.Hosts, HostConfig{Name: "h2", URI: f.uri, Pool: f.cfg.Hosts[0].Pool})
	b := f.open(t)
	t.Cleanup(func() { b.Close() })
	uploads := 0
	upload := b.upload
	b.upload = func(ctx context.Context, c *virt.Connect, v *virt.StorageVol, src source) error {
		uploads++
		return upload(ctx, c, v, src)
	}
	image := newImage(t)
	last := int64(0)
	if err := b.EnsureImage(t.Context(), image, func(done, total int64) {
		if done < last || done > total {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		last = done
	}); err != nil || uploads != 1 {
		t.Errorf("%d uploads, %v", uploads, err)
	}
	s := f.spec(t, b)
	s.Host = "h1"
	vm, err := b.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(t.Context(), vm.ID, hypervisor.DeleteOptions{Owner: s.Key}); err != nil {
		t.Fatal(err)
	}
	volumes, err := b.ListVolumes(t.Context(), s.Key.Director)
	if err != nil || len(volumes) != 1 || volumes[0].Host != "" {
		t.Errorf("kept are %+v, %v", volumes, err)
	}
	s.Host = "h2"
	if vm, err = b.Ensure(t.Context(), s); err != nil {
		t.Fatalf("on the other host: %v", err)
	}
	wantError(t, b.DeleteVolume(t.Context(), s.Key), director.KindConflict, s.Name)
	if err := errors.Join(
		b.Delete(t.Context(), vm.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}),
		b.DeleteImage(t.Context(), image.Name),
	); err != nil {
		t.Error(err)
	}
}

// A volume group alone cannot hold what is files, and the person is told where to name it.
func TestLogicalPoolForFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	f.cfg.Hosts = []HostConfig{{Name: "h1", URI: f.uri, Pool: f.newPool(t, "logical")}}
	b := f.open(t)
	t.Cleanup(func() { b.Close() })
	_, err := b.Capacity(t.Context())
	wantError(t, err, director.KindInvalid, "logical", "diskPool")
	f.cfg.Hosts[0].Pool, f.cfg.Hosts[0].DiskPool = "default-pool", "nowhere"
	x := f.open(t)
	t.Cleanup(func() { x.Close() })
	_, err = x.Capacity(t.Context())
	wantError(t, err, director.KindNotFound, "nowhere", "pool-define-as")
}

// What libvirt or QEMU of a host cannot do is said before a VM is made, with the version that could.
func TestLacking(t *testing.T) {
	t.Parallel()
	caps := func(firmware, passthrough string) *virtxml.DomainCaps {
		return &virtxml.DomainCaps{
			OS: &virtxml.DomainCapsOS{
				Enums: []virtxml.DomainCapsEnum{{Name: "firmware", Values: strings.Fields(firmware)}},
			},
			CPU: &virtxml.DomainCapsCPU{
				Modes: []virtxml.DomainCapsCPUMode{
					{Name: "host-passthrough", Supported: passthrough}, {Name: "maximum", Supported: "yes"},
				},
			},
		}
	}
	for name, tt := range map[string]struct {
		cfg     Config
		version uint32
		kind    string
		caps    *virtxml.DomainCaps
		want    []string
	}{
		"plain":    {Config{}, 1_000_000, "qemu", nil, nil},
		"efi":      {Config{Firmware: "efi"}, 9_000_000, "kvm", caps("bios efi", "yes"), nil},
		"efi, old": {Config{Firmware: "efi"}, 5_001_000, "kvm", nil, []string{"libvirt 5.1.0", "5.2.0"}},
		"efi, not installed": {
			Config{Firmware: "efi"}, 9_000_000, "kvm", caps("bios", "yes"), []string{"no UEFI firmware", "ovmf"},
		},
		"maximum": {Config{CPUMode: "maximum"}, 7_001_000, "qemu", caps("", "no"), nil},
		"maximum, old": {
			Config{CPUMode: "maximum"}, 7_000_000, "qemu", nil, []string{"libvirt 7.0.0", "7.1.0"},
		},
		"passthrough": {Config{CPUMode: "host-passthrough"}, 9_000_000, "kvm", caps("", "yes"), nil},
		"passthrough, emulated": {
			Config{CPUMode: "host-passthrough"}, 9_000_000, "qemu", nil, []string{"emulates", "KVM"},
		},
		"passthrough, refused": {
			Config{CPUMode: "host-passthrough"},
			9_000_000, "kvm", caps("", "no"),
			[]string{"cannot give VMs", "cpuMode"},
		},
		"host-model, unknown": {Config{CPUMode: "host-model"}, 9_000_000, "kvm", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(&fleet{cfg: tt.cfg})
			err := b.lacking("test", "h1", tt.version, tt.kind, tt.caps)
			if len(tt.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, director.KindInvalid, tt.want...)
		})
	}
}

// The checksum is compared while a file is sent: what turns out to be another one must not stay.
func TestWrongImageLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	b := f.open(t)
	t.Cleanup(func() { b.Close() })
	image := newImage(t)
	image.SHA256 = strings.Repeat("0", 64)
	err := b.EnsureImage(t.Context(), image, nil)
	wantError(t, err, director.KindInvalid, "does not have the SHA-256")
	if left := f.remains(t, image.Name); len(left) > 0 {
		t.Errorf("the pool still has %v", left)
	}
}
