package libvirt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director/hypervisor"
)

// What a person would look up with virsh, also what VMs cannot use now, with why.
func TestDiscover(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	stopped, err := f.keep.StoragePoolDefineXML(
		"<pool type='dir'><name>stopped</name><target><path>/srv/stopped</path></target></pool>", 0,
	)
	if err != nil {
		t.Fatal(err)
	}
	iscsi, err := f.keep.StoragePoolDefineXML(
		"<pool type='iscsi'><name>blocks</name><source><host name='san'/><device path='iqn.x'/></source>"+
			"<target><path>/dev/disk/by-path</path></target></pool>", 0,
	)
	if err != nil {
		t.Fatal(err)
	}
	bridged, err := f.keep.NetworkDefineXML(
		"<network><name>office</name><forward mode='bridge'/><bridge name='br7'/></network>",
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range []*virt.StoragePool{stopped, iscsi} {
			_ = p.Undefine()
			_ = p.Free()
		}
		_ = bridged.Undefine()
		_ = bridged.Free()
	})
	b := f.open(t)
	defer b.Close()
	d, err := b.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(d.Version, "libvirt ") {
		t.Errorf("version %q", d.Version)
	}
	got := map[string]hypervisor.Discovered{}
	for _, i := range d.Items {
		i.Size, i.Free = 0, 0
		got[string(i.Kind)+" "+i.Name] = i
	}
	for _, want := range []hypervisor.Discovered{
		{
			Kind: hypervisor.FoundStoragePool, In: "h1", Name: "stopped", About: "dir at /srv/stopped",
			Problem: "it is not started",
		},
		{
			Kind: hypervisor.FoundStoragePool, In: "h1", Name: "blocks", About: "iscsi at /dev/disk/by-path",
			Problem: "VMs need a pool of type dir, fs, netfs, logical",
		},
		{
			Kind: hypervisor.FoundNetwork, In: "h1", Name: "office", About: "bridge, on br7",
			Problem: "it is not started",
		},
		{Kind: hypervisor.FoundBridge, In: "h1", Name: "br7", About: "of the network office"},
	} {
		if diff := cmp.Diff(want, got[string(want.Kind)+" "+want.Name]); diff != "" {
			t.Error(diff)
		}
	}
}
