package libvirt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// fixture is a hypervisor under test with an image and a network that all cases share.
type fixture struct {
	cfg     Config
	uri     string
	keep    *virt.Connect // the test driver forgets everything with its last connection
	image   string
	network string
	test    bool // it is libvirt's test driver
}

var subnets atomic.Int64

func newFixture(t *testing.T, uri, pool string) *fixture {
	t.Helper()
	keep, err := virt.NewConnect(uri)
	if err != nil {
		if strings.Contains(err.Error(), "dlopen") {
			t.Skip("libvirt's client library is not installed: run test/lab/need.sh libvirt0")
		}
		t.Fatalf("cannot connect to %s: %v", uri, err)
	}
	f := &fixture{
		cfg: Config{
			Hosts: []HostConfig{{Name: "h1", URI: uri, Pool: pool}}, DiskCache: "unsafe",
			Doors: Doors{Sockets: confine.Dirs{"/nonexistent", "/run"}}, testDriver: true,
		},
		uri: uri, keep: keep, test: strings.HasPrefix(uri, "test:"),
	}
	b := f.open(t)
	image, network := newImage(t), f.newNetwork(t)
	network.Owner = director.Stamp{Director: hypervisortest.RandomID("d"), Machine: "setup"}
	if err := errors.Join(b.EnsureImage(t.Context(), image, nil), b.EnsureNetwork(t.Context(), network)); err != nil {
		t.Fatal(err)
	}
	f.image, f.network = image.Name, network.Name
	t.Cleanup(func() { // after all parallel cases
		ctx := context.Background()
		if err := errors.Join(
			b.DeleteImage(ctx, image.Name), b.DeleteNetwork(ctx, network.Name, network.Owner), b.Close(),
		); err != nil {
			t.Error(err)
		}
		if _, err := keep.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// open returns a back end of its own. The test driver cannot upload, so there the bytes are only read.
func (f *fixture) open(t *testing.T) *Backend {
	t.Helper()
	cfg := f.cfg
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	b, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if f.test {
		b.upload = func(_ context.Context, _ *virt.Connect, _ *virt.StorageVol, src source) error {
			n, err := io.Copy(io.Discard, src.r)
			if src.progress != nil {
				src.progress(n)
			}
			return err
		}
		b.clone = func(p *pool, xml string, _ *virt.StorageVol) (*virt.StorageVol, error) {
			return p.StorageVolCreateXML(xml, 0)
		} // nor copy between pools
	}
	return b
}

// greeting is what a VM of newImage prints on its serial console.
const greeting = "hello from the boot sector\r\n"

// newImage writes a qcow2 disk of 64 MiB whose boot sector prints the greeting and halts, with some unused random
// bytes.
func newImage(t *testing.T) hypervisor.ImageSpec {
	t.Helper()
	return hypervisortest.NewImage(t, append([]byte{
		0xfc,       // cld
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xbe, 0x16, 0x7c, // mov si, text
		0xba, 0xf8, 0x03, // mov dx, 0x3f8
		0xac,       // next: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x03, // jz end
		0xee,       // out dx, al
		0xeb, 0xf8, // jmp next
		0xf4,       // end: hlt
		0xeb, 0xfd, // jmp end
	}, greeting...))
}

func (f *fixture) newNetwork(*testing.T) hypervisor.NetworkSpec {
	n := subnets.Add(1)
	return hypervisor.NetworkSpec{
		Name: hypervisortest.RandomID("net-"), Mode: []string{"isolated", "open"}[n%2],
		CIDR:    netip.MustParsePrefix(fmt.Sprintf("10.77.%d.0/24", n)),
		Gateway: netip.MustParseAddr(fmt.Sprintf("10.77.%d.1", n)),
	}
}

func (f *fixture) stranger(t *testing.T, name string) hypervisor.ID {
	t.Helper()
	kind := "qemu"
	if f.test {
		kind = "test"
	}
	dom, err := f.keep.DomainDefineXML(fmt.Sprintf(
		`<domain type='%s'><name>%s</name><memory unit='MiB'>32</memory><os><type `+
			`arch='x86_64'>hvm</type></os></domain>`, kind, name))
	if err != nil {
		t.Fatal(err)
	}
	id, err := dom.GetUUIDString()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := dom.Undefine()
		if virErr, ok := errors.AsType[virt.Error](err); ok && virErr.Code == virt.ERR_NO_DOMAIN {
			err = nil // it was adopted, and then deleted
		}
		if err := errors.Join(err, dom.Free()); err != nil {
			t.Error(err)
		}
	})
	return hypervisor.ID(id)
}

// attach gives the VM a disk of a volume that is not the director's, for its next start and where possible at once.
func (f *fixture) attach(t *testing.T, vm hypervisor.VM) func() bool {
	t.Helper()
	p, err := f.keep.LookupStoragePoolByName(f.cfg.Hosts[0].Pool)
	if err != nil {
		t.Fatal(err)
	}
	name := hypervisortest.RandomID("pv-") + ".raw"
	v, err := p.StorageVolCreateXML(
		"<volume><name>"+name+"</name><capacity>1048576</capacity><target><format type='raw'/></target></volume>",
		0,
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(v.Delete(0), v.Free(), p.Free()); err != nil {
			t.Error(err)
		}
	})
	where, err := v.GetPath()
	if err != nil {
		t.Fatal(err)
	}
	dom, err := f.keep.LookupDomainByUUIDString(string(vm.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dom.Free() }()
	text, err := dom.GetXMLDesc(virt.DOMAIN_XML_INACTIVE | virt.DOMAIN_XML_SECURE)
	if err != nil {
		t.Fatal(err)
	}
	disk := "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='" + where +
		"'/><target dev='vdx' bus='virtio'/></disk>"
	if _, err := f.keep.DomainDefineXML(strings.Replace(text, "</devices>", disk+"</devices>", 1)); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		_ = p.Refresh(0)
		found, err := p.LookupStorageVolByName(name)
		if err == nil {
			_ = found.Free()
		}
		return err == nil
	}
}

func (f *fixture) foreignNetwork(t *testing.T) hypervisor.NetworkSpec {
	t.Helper()
	s := f.newNetwork(t)
	n, err := f.keep.NetworkDefineXML(
		fmt.Sprintf(`<network><name>%s</name><ip address='%s' prefix='24'/></network>`, s.Name, s.Gateway),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(n.Undefine(), n.Free()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// remains lists all that has the director's stamp, by libvirt's own means.
func (f *fixture) remains(t *testing.T, directorID string) []string {
	t.Helper()
	var left []string
	domains, err := f.keep.ListAllDomains(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range domains {
		if text, err := domains[i].GetXMLDesc(0); err == nil && strings.Contains(text, directorID) {
			left = append(left, text)
		}
		_ = domains[i].Free()
	}
	networks, err := f.keep.ListAllNetworks(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range networks {
		if text, err := networks[i].GetXMLDesc(0); err == nil && strings.Contains(text, directorID) {
			left = append(left, text)
		}
		_ = networks[i].Free()
	}
	for _, name := range []string{f.cfg.Hosts[0].Pool, cmp.Or(f.cfg.Hosts[0].DiskPool, f.cfg.Hosts[0].Pool)} {
		p, err := f.keep.LookupStoragePoolByName(name)
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Refresh(0)
		names, err := p.ListStorageVolumes()
		_ = p.Free()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if strings.Contains(n, directorID) {
				left = append(left, n)
			}
		}
	}
	return left
}

// partImage leaves what an upload leaves that was cut off by a crash.
func (f *fixture) partImage(t *testing.T, s hypervisor.ImageSpec) {
	t.Helper()
	p, err := f.keep.LookupStoragePoolByName(f.cfg.Hosts[0].Pool)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Free() }()
	v, err := p.StorageVolCreateXML(fmt.Sprintf(
		`<volume><name>kaas-image.%s.%s.%d.qcow2</name><capacity>4096</capacity><target><format `+
			`type='raw'/></target></volume>`,
		s.Name, s.SHA256[:16], 64<<20), 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = v.Free()
}

// points are the lines of Ensure after which the crash tests cut it off.
func (f *fixture) points() []string {
	format, copied := "qcow2", f.cfg.Hosts[0].DiskPool != ""
	if strings.HasPrefix(f.cfg.Hosts[0].DiskPool, "logical") {
		format = "raw"
	}
	data := []string{"data.kaas-data." + format, "data.more." + format}
	switch {
	case format == "raw":
		data = append([]string{"copied", "blanking"}, data...)
	case copied:
		data = append([]string{"copied"}, data...)
	default:
		data = append([]string{"root.qcow2"}, data...)
	}
	return slices.Concat([]string{"defined"}, data, []string{"console.log", "seed", "uploaded", "made", "started"})
}

func (f *fixture) crashes() []hypervisortest.Crash {
	all := f.crashesAt(f.points()...)
	// In the middle of an upload.
	return append(all, hypervisortest.Crash{Name: "upload", Arm: func(t *testing.T, b hypervisor.Backend) {
		t.Helper()
		upload := b.(*Backend).upload
		b.(*Backend).upload = func(ctx context.Context, c *virt.Connect, v *virt.StorageVol, src source) error {
			src.r = io.MultiReader(io.LimitReader(src.r, 1000), iotest.ErrReader(errors.New("cut off")))
			return upload(ctx, c, v, src)
		}
	}})
}

// hasSeed looks for the seed's volume, and for its disk in the VM's definition.
func (f *fixture) hasSeed(t *testing.T, v hypervisor.VM) bool {
	t.Helper()
	b := f.open(t)
	defer func() { _ = b.Close() }()
	found, err := inPool(t.Context(), b.hosts[0], "test", func(p *pool) (bool, error) {
		d, err := findDomain(p.conn, string(v.ID))
		if err != nil || d == nil {
			return false, err
		}
		defer func() { _ = d.Free() }()
		text, err := d.GetXMLDesc(virt.DOMAIN_XML_INACTIVE)
		if err != nil {
			return false, err
		}
		vol, err := p.find(seedName(v.Stamp))
		if vol != nil {
			_ = vol.Free()
		}
		return vol != nil || strings.Contains(text, seedName(v.Stamp)), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (f *fixture) crashesAt(points ...string) []hypervisortest.Crash {
	var all []hypervisortest.Crash
	for _, point := range points {
		all = append(all, hypervisortest.Crash{Name: point, Arm: func(t *testing.T, b hypervisor.Backend) {
			t.Helper()
			b.(*Backend).at = func(p string) error {
				if p == point {
					return errors.New("cut off")
				}
				return nil
			}
		}})
	}
	return all
}

func (f *fixture) subject(t *testing.T) hypervisortest.Subject {
	t.Helper()
	id := hypervisortest.RandomID("d")
	s := hypervisortest.Subject{
		Open:     func(t *testing.T) hypervisor.Backend { return f.open(t) },
		Director: id, Image: f.image, Network: f.network,
		Stranger:       f.stranger,
		Attach:         f.attach,
		Crashes:        f.crashes(),
		HasSeed:        f.hasSeed,
		SeedCrashes:    f.crashesAt("seed undefined", "seed overwritten"),
		DiskCrashes:    f.crashesAt("copying", "dropped", "copied disk"),
		Remains:        func(t *testing.T) []string { return f.remains(t, id) },
		NewImage:       newImage,
		PartImage:      f.partImage,
		NewNetwork:     f.newNetwork,
		ForeignNetwork: f.foreignNetwork,
		Skips:          map[string]string{},
		Timeout:        10 * time.Minute,
	}
	if f.test {
		s.Skips["adopt/kept_disk"] = "libvirt's test driver attaches no disks"
		if f.cfg.Hosts[0].DiskPool != "" {
			s.Skips["images/in_use"] = "root disks in a pool of their own are copies, and need their image no more"
		}
		for _, name := range []string{"snapshots/life", "snapshots/refused"} {
			s.Skips[name] = "libvirt's test driver takes no snapshots of disks"
		}
		s.Skips["hosts/namesake"] = "libvirt's test driver is one host"
		s.Skips["console/tail"] = "libvirt's test driver has no volume download"
	}
	return s
}

// labURI skips the test unless it runs in a lab.
func labURI(t *testing.T) string {
	t.Helper()
	uri := os.Getenv("KAAS_LAB_URI")
	if uri == "" {
		t.Skip("KAAS_LAB_URI is not set; make test runs this in the lab with qemu:///system")
	}
	return uri
}

func (f *fixture) spec(t *testing.T, b *Backend) hypervisor.Spec {
	t.Helper()
	id := hypervisortest.RandomID("m")
	s := hypervisor.Spec{
		Key: director.Stamp{Director: hypervisortest.RandomID("d"), Machine: id}, Name: hypervisortest.RandomID("vm-"),
		CPUs: 1, Memory: 64 << 20, Image: f.image, RootDisk: 64 << 20,
		DataDisks: []hypervisor.Disk{{Serial: "kaas-data", Size: 16 << 20}},
		NICs:      []hypervisor.NIC{{Network: f.network, MAC: "52:54:00:" + id[1:3] + ":" + id[3:5] + ":" + id[5:7]}},
		Seed: hypervisor.Seed{
			MetaData: []byte("instance-id: x\n"), UserData: bytes.Repeat([]byte("# line\n"), 5000),
			NetworkConfig: []byte("version: 2\n"),
		},
	}
	t.Cleanup(func() {
		o := hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}
		if err := b.Delete(context.Background(), hypervisor.ID(domainUUID(s.Key)), o); err != nil {
			t.Error(err)
		}
	})
	return s
}

// running returns a back end and a VM that it has made.
func (f *fixture) running(t *testing.T) (*Backend, hypervisor.Spec, hypervisor.VM) {
	t.Helper()
	b := f.open(t)
	t.Cleanup(func() { b.Close() })
	s := f.spec(t, b)
	vm, err := b.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return b, s, vm
}
