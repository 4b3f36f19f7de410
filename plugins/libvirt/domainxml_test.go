package libvirt

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var update = flag.Bool("update", false, "write the golden files")

// TestDomainXML keeps the golden files equal to what is written. images/node/test.sh takes its guest's processors from
// them.
func TestDomainXML(t *testing.T) {
	t.Parallel()
	s := hypervisor.Spec{
		Key: director.Stamp{Director: "d1", Machine: "m1"}, Name: "demo-master-1", CPUs: 2, Memory: 2 << 30,
		Image: "debian12", RootDisk: 10 << 30,
		DataDisks: []hypervisor.Disk{{Serial: "kaas-data", Size: 5 << 30}},
		NICs:      []hypervisor.NIC{{Network: "demo", MAC: "52:54:00:00:00:01"}},
	}
	files := &pool{dir: "/pool", kind: "dir"}
	files.disks = files
	group := &pool{dir: "/pool", kind: "dir", disks: &pool{dir: "/dev/vg0", kind: "logical"}}
	for name, tt := range map[string]struct {
		cfg  Config
		kind string
		pool *pool
	}{
		"qemu":    {Config{DiskCache: "unsafe"}, "qemu", files},
		"kvm":     {Config{Firmware: "efi", MachineType: "pc-q35-7.2"}, "kvm", files},
		"logical": {Config{CPUMode: "host-model", NoGuestAgent: true}, "kvm", group},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(&fleet{cfg: tt.cfg})
			got, err := b.domainXML(tt.kind, tt.pool, s)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".xml")
			if *update {
				if err := os.WriteFile(file, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
				t.Errorf("run with -update if this is meant (-want +got):\n%s", diff)
			}
		})
	}
}
