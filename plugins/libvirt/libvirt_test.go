package libvirt

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kdomanski/iso9660"
	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

var update = flag.Bool("update", false, "write the golden files")

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
		cfg: Config{Hosts: []HostConfig{{Name: "h1", URI: uri, Pool: pool}}, DiskCache: "unsafe"},
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
		if err := errors.Join(b.DeleteImage(ctx, image.Name), b.DeleteNetwork(ctx, network.Name, network.Owner), b.Close()); err != nil {
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
	}
	return b
}

// greeting is what a VM of newImage prints on its serial console.
const greeting = "hello from the boot sector\r\n"

// newImage writes a qcow2 disk of 64 MiB whose boot sector prints the greeting and halts, with some unused random bytes.
func newImage(t *testing.T) hypervisor.ImageSpec {
	t.Helper()
	const cluster = 1 << 16
	disk := make([]byte, 6*cluster)
	copy(disk, "QFI\xfb")
	be := binary.BigEndian
	be.PutUint32(disk[4:], 2)          // version
	be.PutUint32(disk[20:], 16)        // cluster bits
	be.PutUint64(disk[24:], 64<<20)    // virtual size
	be.PutUint32(disk[36:], 1)         // entries of the L1 table
	be.PutUint64(disk[40:], 3*cluster) // L1 table
	be.PutUint64(disk[48:], 1*cluster) // refcount table
	be.PutUint32(disk[56:], 1)         // its clusters
	be.PutUint64(disk[cluster:], 2*cluster)
	for i := range 6 {
		be.PutUint16(disk[2*cluster+2*i:], 1)
	}
	be.PutUint64(disk[3*cluster:], 4*cluster|1<<63) // L2 table
	be.PutUint64(disk[4*cluster:], 5*cluster|1<<63) // first cluster of the disk
	boot := disk[5*cluster:]
	n := copy(boot, []byte{
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
	})
	copy(boot[n:], greeting)
	copy(boot[510:], "\x55\xaa")
	_, _ = rand.Read(disk[4096:4128])
	path := filepath.Join(t.TempDir(), "image.qcow2")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(disk)
	return hypervisor.ImageSpec{Name: hypervisortest.RandomID("img-"), Path: path, SHA256: hex.EncodeToString(sum[:]), Format: "qcow2"}
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
		`<domain type='%s'><name>%s</name><memory unit='MiB'>32</memory><os><type arch='x86_64'>hvm</type></os></domain>`, kind, name))
	if err != nil {
		t.Fatal(err)
	}
	id, err := dom.GetUUIDString()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(dom.Undefine(), dom.Free()); err != nil {
			t.Error(err)
		}
	})
	return hypervisor.ID(id)
}

func (f *fixture) foreignNetwork(t *testing.T) hypervisor.NetworkSpec {
	t.Helper()
	s := f.newNetwork(t)
	n, err := f.keep.NetworkDefineXML(fmt.Sprintf(`<network><name>%s</name><ip address='%s' prefix='24'/></network>`, s.Name, s.Gateway))
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
	p, err := f.keep.LookupStoragePoolByName(f.cfg.Hosts[0].Pool)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Free() }()
	_ = p.Refresh(0)
	names, err := p.ListStorageVolumes()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.Contains(n, directorID) {
			left = append(left, n)
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
		`<volume><name>kaas-image.%s.%s.%d.qcow2</name><capacity>4096</capacity><target><format type='raw'/></target></volume>`,
		s.Name, s.SHA256[:16], 64<<20), 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = v.Free()
}

// points are the lines of Ensure after which the crash tests cut it off.
var points = []string{"defined", "root.qcow2", "data.kaas-data.qcow2", "data.more.qcow2", "console.log", "seed", "uploaded", "made", "started"}

func (f *fixture) crashes() []hypervisortest.Crash {
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
	// In the middle of an upload.
	return append(all, hypervisortest.Crash{Name: "upload", Arm: func(t *testing.T, b hypervisor.Backend) {
		t.Helper()
		upload := b.(*Backend).upload
		b.(*Backend).upload = func(ctx context.Context, c *virt.Connect, v *virt.StorageVol, src source) error {
			src.r = io.MultiReader(io.LimitReader(src.r, 1000), readerFunc(func([]byte) (int, error) { return 0, errors.New("cut off") }))
			return upload(ctx, c, v, src)
		}
	}})
}

func (f *fixture) subject(t *testing.T) hypervisortest.Subject {
	t.Helper()
	id := hypervisortest.RandomID("d")
	s := hypervisortest.Subject{
		Open:     func(t *testing.T) hypervisor.Backend { return f.open(t) },
		Director: id, Image: f.image, Network: f.network,
		Stranger:       f.stranger,
		Crashes:        f.crashes(),
		Remains:        func(t *testing.T) []string { return f.remains(t, id) },
		NewImage:       newImage,
		PartImage:      f.partImage,
		NewNetwork:     f.newNetwork,
		ForeignNetwork: f.foreignNetwork,
		Skips:          map[string]string{},
		Timeout:        10 * time.Minute,
	}
	if f.test {
		s.Skips["console/tail"] = "libvirt's test driver has no volume download"
	}
	return s
}

// TestConformance holds the back end to the contract on libvirt's own test driver, which keeps all objects in this process.
func TestConformance(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	t.Run("upload", func(t *testing.T) {
		t.Skip("not on this hypervisor: libvirt's test driver has no volume upload; seeds and images are read and dropped")
	})
	hypervisortest.Exercise(t, f.subject)
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

// TestLabConformance holds the back end to the contract on a real hypervisor.
func TestLabConformance(t *testing.T) {
	t.Parallel()
	hypervisortest.Exercise(t, newFixture(t, labURI(t), "default").subject)
}

func (f *fixture) spec(t *testing.T, b *Backend) hypervisor.Spec {
	t.Helper()
	id := hypervisortest.RandomID("m")
	s := hypervisor.Spec{
		Key: director.Stamp{Director: hypervisortest.RandomID("d"), Machine: id}, Name: hypervisortest.RandomID("vm-"),
		CPUs: 1, Memory: 64 << 20, Image: f.image, RootDisk: 64 << 20,
		DataDisks: []hypervisor.Disk{{Serial: "kaas-data", Size: 16 << 20}},
		NICs:      []hypervisor.NIC{{Network: f.network, MAC: "52:54:00:" + id[1:3] + ":" + id[3:5] + ":" + id[5:7]}},
		Seed:      hypervisor.Seed{MetaData: []byte("instance-id: x\n"), UserData: bytes.Repeat([]byte("# line\n"), 5000), NetworkConfig: []byte("version: 2\n")},
	}
	t.Cleanup(func() {
		o := hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}
		if err := b.Delete(context.Background(), hypervisor.ID(domainUUID(s.Key)), o); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestLabVolumes looks at the bytes of the seed and of a data disk over the life of two VMs, and says what a VM costs.
func TestLabVolumes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, labURI(t), "default")
	b := f.open(t)
	t.Cleanup(func() { b.Close() })
	s := f.spec(t, b)
	ctx := t.Context()

	start := time.Now()
	b.at = func(point string) error {
		t.Logf("%8s %s", time.Since(start).Round(time.Millisecond), point)
		return nil
	}
	vm, err := b.Ensure(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%8s Ensure of a new VM", time.Since(start).Round(time.Millisecond))
	start = time.Now()
	if _, err := b.Ensure(ctx, s); err != nil {
		t.Fatal(err)
	}
	t.Logf("Ensure of one that runs: %s", time.Since(start).Round(time.Microsecond))

	read := func(name string, size int) []byte {
		t.Helper()
		text, err := inPool(ctx, b.hosts[0], "test", func(p *pool) ([]byte, error) {
			v, err := p.LookupStorageVolByName(name)
			if err != nil {
				return nil, err
			}
			defer func() { _ = v.Free() }()
			return tail(p.conn, v, size)
		})
		if err != nil {
			t.Fatalf("reading %s: %v", name, err)
		}
		return text
	}
	if got := read(seedName(s.Key), 1<<20); !bytes.Equal(got, seedISO(s.Seed)) {
		t.Errorf("the seed is another one (%d bytes)", len(got))
	}

	if err := b.SetPower(ctx, vm.ID, hypervisor.PowerOff); err != nil {
		t.Fatal(err)
	}
	data := dataName(s.Key, "kaas-data")
	content, err := os.ReadFile(newImage(t).Path) // a qcow2 disk that no other equals
	if err != nil {
		t.Fatal(err)
	}
	_, err = inPool(ctx, b.hosts[0], "test", func(p *pool) (none, error) {
		v, err := p.LookupStorageVolByName(data)
		if err != nil {
			return none{}, err
		}
		defer func() { _ = v.Free() }()
		return none{}, uploadStream(ctx, p.conn, v, source{r: bytes.NewReader(content), size: int64(len(content))})
	})
	if err != nil {
		t.Fatal(err)
	}
	before := read(data, 1<<20)
	if err := b.Delete(ctx, vm.ID, hypervisor.DeleteOptions{Owner: s.Key}); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if _, err := b.Ensure(ctx, s); err != nil {
		t.Fatal(err)
	}
	t.Logf("Ensure of a VM whose data disk exists: %s", time.Since(start).Round(time.Millisecond))
	if after := read(data, 1<<20); !bytes.Equal(before, after) {
		t.Error("the data disk was made anew")
	}
	start = time.Now()
	if err := b.Delete(ctx, vm.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true, Grace: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	t.Logf("Delete: %s", time.Since(start).Round(time.Millisecond))
}

// TestLabConsole waits for what the guest prints on the serial console.
func TestLabConsole(t *testing.T) {
	t.Parallel()
	f := newFixture(t, labURI(t), "default")
	b := f.open(t)
	t.Cleanup(func() { b.Close() })
	s := f.spec(t, b)
	vm, err := b.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := b.ConsoleTail(ctx, vm.ID, len(greeting))
		if err != nil {
			t.Fatal(err)
		}
		if string(text) == greeting {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the console shows %q", text)
		}
	}
	if text, err := b.ConsoleTail(ctx, vm.ID, 8); err != nil || string(text) != greeting[len(greeting)-8:] {
		t.Errorf("a tail of 8 bytes: %q, %v", text, err)
	}
}

// TestLabMistakes shows what a person reads who made one of the common mistakes.
func TestLabMistakes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, labURI(t), "default")
	xml := func(name string) string {
		return fmt.Sprintf("<pool type='dir'><name>%s</name><target><path>%s</path></target></pool>", name, t.TempDir())
	}
	stopped := hypervisortest.RandomID("pool-")
	p, err := f.keep.StoragePoolDefineXML(xml(stopped), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(p.Undefine(), p.Free()); err != nil {
			t.Error(err)
		}
	}()

	for name, tt := range map[string]struct {
		change func(*Config)
		kind   director.Kind
		want   []string // in message and hint
	}{
		"no libvirtd": {
			func(c *Config) { c.Hosts[0].URI = "qemu+unix:///system?socket=/nonexistent/sock" },
			director.KindUnavailable,
			[]string{"h1", "qemu+unix:///system?socket=/nonexistent/sock", "libvirtd"},
		},
		"no pool":      {func(c *Config) { c.Hosts[0].Pool = "nothing" }, director.KindNotFound, []string{`"nothing"`, "pool-define-as"}},
		"pool stopped": {func(c *Config) { c.Hosts[0].Pool = stopped }, director.KindUnavailable, []string{stopped, "pool-start"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := f.cfg
			cfg.Hosts = append([]HostConfig{}, cfg.Hosts...)
			tt.change(&cfg)
			b, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			_, err = b.Capacity(t.Context())
			wantError(t, err, tt.kind, tt.want...)
		})
	}

	t.Run("kvm", func(t *testing.T) {
		if info, err := os.Stat("/dev/kvm"); err == nil && info.Mode()&os.ModeDevice != 0 {
			if out, err := exec.Command("virsh", "-c", f.uri, "domcapabilities", "--virttype", "kvm").CombinedOutput(); err == nil {
				t.Skipf("this host has KVM: %.80s", out)
			}
		}
		cfg := f.cfg
		cfg.DomainType = "kvm"
		b, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		_, err = b.Capacity(t.Context())
		wantError(t, err, director.KindInvalid, "kvm", "/dev/kvm", "domainType")
	})

	t.Run("small root disk", func(t *testing.T) {
		b := f.open(t)
		t.Cleanup(func() { b.Close() })
		s := f.spec(t, b)
		s.RootDisk = 1 << 20
		_, err := b.Ensure(t.Context(), s)
		wantError(t, err, director.KindInvalid, "root disk", "64.0 MiB")
	})

	t.Run("network stopped", func(t *testing.T) {
		b := f.open(t)
		t.Cleanup(func() { b.Close() })
		s := f.spec(t, b)
		s.NICs[0].Network = f.foreignNetwork(t).Name
		_, err := b.Ensure(t.Context(), s)
		wantError(t, err, director.KindUnavailable, s.NICs[0].Network, "net-start")
	})
}

// TestLabNoSpace fills a small pool of its own.
func TestLabNoSpace(t *testing.T) {
	t.Parallel()
	f := newFixture(t, labURI(t), "default")
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small file system here: %s", out)
	}
	name := hypervisortest.RandomID("pool-")
	p, err := f.keep.StoragePoolDefineXML(fmt.Sprintf("<pool type='dir'><name>%s</name><target><path>%s</path></target></pool>", name, dir), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(p.Destroy(), p.Undefine(), p.Free(), exec.Command("umount", dir).Run()); err != nil {
			t.Error(err)
		}
	}()
	if err := p.Create(0); err != nil {
		t.Skipf("libvirtd does not see our mounts: %v", err)
	}
	cfg := f.cfg
	cfg.Hosts = []HostConfig{{Name: "h1", URI: f.uri, Pool: name}}
	b, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := newImage(t)
	err = b.EnsureImage(t.Context(), s, nil)
	wantError(t, err, director.KindExhausted, name, "free")
	if left, err := p.ListStorageVolumes(); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestLabReconnect cuts the connection between two calls.
func TestLabReconnect(t *testing.T) {
	t.Parallel()
	labURI(t)
	const daemon = "/run/libvirt/libvirt-sock"
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", daemon)
			if err != nil {
				client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			go func() { _, _ = io.Copy(client, server); client.Close() }()
			go func() { _, _ = io.Copy(server, client); server.Close() }()
		}
	}()
	cut := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
		open = nil
	}
	b, err := Open(Config{Hosts: []HostConfig{{Name: "h1", URI: "qemu+unix:///system?socket=" + socket}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for range 3 {
		if _, err := b.Capacity(t.Context()); err != nil {
			t.Fatal(err)
		}
		cut()
	}
	listener.Close()
	_, err = b.Capacity(t.Context())
	wantError(t, err, director.KindUnavailable, socket)
}

func wantError(t *testing.T, err error, kind director.Kind, parts ...string) {
	t.Helper()
	e, ok := errors.AsType[*director.Error](err)
	if !ok || e.Kind != kind {
		t.Fatalf("got %v, want %s", err, kind)
	}
	for _, part := range parts {
		if !strings.Contains(e.Msg+"\n"+e.Hint, part) {
			t.Errorf("%q is not in message and hint:\n%s\n%s", part, e.Msg, e.Hint)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	_, err := Open(Config{
		Hosts:      []HostConfig{{Name: "a", URI: "qemu:///system"}, {Name: "a", URI: "nothing"}},
		DomainType: "xen", Firmware: "openboot",
	})
	e, ok := errors.AsType[*director.Error](err)
	if !ok || e.Kind != director.KindInvalid {
		t.Fatalf("got %v, want invalid", err)
	}
	var paths []string
	for _, f := range e.Fields {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"domainType", "firmware", "hosts[1].name", "hosts[1].uri"}, paths); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if _, err := Open(Config{}); director.KindOf(err) != director.KindInvalid {
		t.Errorf("no hosts: %v", err)
	}
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	h := &host{HostConfig: HostConfig{Name: "h1", URI: "qemu+ssh://root@hyp1/system", Pool: "fast"}}
	for name, tt := range map[string]struct {
		err  error
		kind director.Kind
		part string
	}{
		"no space":  {virt.Error{Code: virt.ERR_SYSTEM_ERROR, Message: "cannot fill file: No space left on device"}, director.KindExhausted, "fast"},
		"no memory": {virt.Error{Code: virt.ERR_INTERNAL_ERROR, Message: "cannot set up guest memory 'pc.ram'"}, director.KindExhausted, "memory"},
		"range":     {virt.Error{Code: virt.ERR_INTERNAL_ERROR, Message: "Network is already in use by interface eth0"}, director.KindConflict, "cidr"},
		"gone":      {virt.Error{Code: virt.ERR_NO_DOMAIN, Message: "Domain not found"}, director.KindNotFound, "Domain not found"},
		"ssh":       {virt.Error{Code: virt.ERR_SYSTEM_ERROR, Domain: virt.FROM_RPC, Message: "Cannot recv data: Host key"}, director.KindUnavailable, "hyp1"},
		"no rights": {virt.Error{Code: virt.ERR_AUTH_FAILED, Domain: virt.FROM_RPC, Message: "denied"}, director.KindUnavailable, "group libvirt"},
		"library":   {virt.Error{Code: virt.ERR_NO_CONNECT, Message: "Failed to dlopen libvirt.so.0"}, director.KindUnavailable, "libvirt0"},
		"stopped":   {virt.Error{Code: virt.ERR_OPERATION_INVALID, Message: "network 'demo' is not active"}, director.KindUnavailable, "net-start"},
		"no kvm":    {virt.Error{Code: virt.ERR_INTERNAL_ERROR, Message: "process exited: Could not access KVM kernel module"}, director.KindInvalid, "domainType"},
		"volume":    {virt.Error{Code: virt.ERR_OPERATION_INVALID, Message: "volume 'x' is still being allocated."}, director.KindUnavailable, "try again"},
		"busy":      {virt.Error{Code: virt.ERR_OPERATION_TIMEOUT, Message: "state change lock"}, director.KindUnavailable, "try again"},
		"other":     {virt.Error{Code: virt.ERR_INTERNAL_ERROR, Message: "process exited"}, director.KindInternal, "log"},
		"ours":      {director.Errorf(director.KindConflict, "x", "taken"), director.KindConflict, "taken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantError(t, h.translate("libvirt.test", tt.err), tt.kind, tt.part)
		})
	}
	if err := h.translate("libvirt.test", nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}

func TestDomainXML(t *testing.T) {
	t.Parallel()
	s := hypervisor.Spec{
		Key: director.Stamp{Director: "d1", Machine: "m1"}, Name: "demo-master-1", CPUs: 2, Memory: 2 << 30, Image: "debian12", RootDisk: 10 << 30,
		DataDisks: []hypervisor.Disk{{Serial: "kaas-data", Size: 5 << 30}},
		NICs:      []hypervisor.NIC{{Network: "demo", MAC: "52:54:00:00:00:01"}},
	}
	for name, tt := range map[string]struct {
		cfg  Config
		kind string
	}{
		"qemu": {Config{DiskCache: "unsafe"}, "qemu"},
		"kvm":  {Config{Firmware: "efi", MachineType: "pc-q35-7.2"}, "kvm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &Backend{cfg: tt.cfg}
			got, err := b.domainXML(tt.kind, &pool{dir: "/pool"}, s)
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

func TestSeedISO(t *testing.T) {
	t.Parallel()
	seed := hypervisor.Seed{
		MetaData: []byte("instance-id: m1\n"), UserData: bytes.Repeat([]byte("#cloud-config\n"), 1000), NetworkConfig: nil,
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
	want := map[string]string{"meta-data": string(seed.MetaData), "user-data": string(seed.UserData), "network-config": ""}
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
		if err != nil || !bytes.Contains(out, []byte("\nLABEL=cidata\n")) && !bytes.HasPrefix(out, []byte("LABEL=cidata\n")) ||
			!bytes.Contains(out, []byte("TYPE=iso9660\n")) {
			t.Errorf("blkid: %v\n%s", err, out)
		}
	}
}

func TestMark(t *testing.T) {
	t.Parallel()
	m := mark{Director: `d"1`, ID: "m<1>", Made: "yes"}
	for _, whole := range []bool{true, false} {
		text := `<other xmlns="urn:x"><machine director="no"/></other>` + m.element("machine", whole)
		got, ok := parseMark("machine", text)
		got.XMLName.Local, got.XMLName.Space = "", ""
		if diff := cmp.Diff(m, got); diff != "" || !ok {
			t.Errorf("whole=%t: %s", whole, diff)
		}
	}
	if _, ok := parseMark("machine", "<other/>"); ok {
		t.Error("found a mark where none is")
	}
}
