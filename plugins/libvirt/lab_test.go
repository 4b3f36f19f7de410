package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

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
	data := (&pool{disks: &pool{}}).dataName(s.Key, "kaas-data")
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
		t.Error("the data disk was recreated")
	}
	start = time.Now()
	if err := b.Delete(ctx, vm.ID, hypervisor.DeleteOptions{
		Owner: s.Key, DataDisks: true, Grace: 100 * time.Millisecond,
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("Delete: %s", time.Since(start).Round(time.Millisecond))
}

// TestLabRootLeftBehind makes a VM again that a person undefined, but whose root disk they left. It must not boot from
// that.
func TestLabRootLeftBehind(t *testing.T) {
	t.Parallel()
	const mark = "of the former node"
	f := newFixture(t, labURI(t), "default")
	b := f.open(t)
	t.Cleanup(func() { b.Close() })
	s := f.spec(t, b)
	ctx := t.Context()
	vm, err := b.Ensure(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	root := func() string {
		t.Helper()
		path, err := inPool(ctx, b.hosts[0], "test", func(p *pool) (string, error) {
			return p.disks.path(p.rootName(s.Key)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, err = call(ctx, b.hosts[0], "test", func(c *virt.Connect) (none, error) {
		d, err := findDomain(c, string(vm.ID))
		if err != nil {
			return none{}, err
		}
		defer func() { _ = d.Free() }()
		return none{}, errors.Join(d.Destroy(), undefine(d.Domain))
	})
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.OpenFile(root(), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = left.WriteString(mark)
		err = errors.Join(err, left.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if vm, err = b.Ensure(ctx, s); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(root()); err != nil || bytes.Contains(text, []byte(mark)) {
		t.Errorf("the VM boots from the root disk of the former one: %v", err)
	}
	if err := b.Delete(ctx, vm.ID, hypervisor.DeleteOptions{
		Owner: s.Key, DataDisks: true, Grace: 100 * time.Millisecond,
	}); err != nil {
		t.Fatal(err)
	}
}

// TestLabConsole waits for what the guest prints on the serial console.
func TestLabConsole(t *testing.T) {
	t.Parallel()
	f := newFixture(t, labURI(t), "default")
	b, _, vm := f.running(t)
	waitForGreeting(t, b, vm.ID)
	if text, err := b.ConsoleTail(t.Context(), vm.ID, 8); err != nil || string(text) != greeting[len(greeting)-8:] {
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
		"no pool": {
			func(c *Config) { c.Hosts[0].Pool = "nothing" }, director.KindNotFound,
			[]string{`"nothing"`, "pool-define-as"},
		},
		"pool stopped": {
			func(c *Config) { c.Hosts[0].Pool = stopped }, director.KindUnavailable, []string{stopped, "pool-start"},
		},
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
			if out, err := exec.Command(
				"virsh", "-c", f.uri, "domcapabilities", "--virttype", "kvm",
			).CombinedOutput(); err == nil {
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
	p, err := f.keep.StoragePoolDefineXML(
		fmt.Sprintf("<pool type='dir'><name>%s</name><target><path>%s</path></target></pool>", name, dir), 0,
	)
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
	b, err := Open(Config{
		Hosts: []HostConfig{{Name: "h1", URI: "qemu+unix:///system?socket=" + socket}},
		Doors: Doors{Sockets: confine.Dirs{"/"}},
	})
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

// waitForGreeting waits for what the guest of the tests' image prints on its serial console.
func waitForGreeting(t *testing.T, b *Backend, id hypervisor.ID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := b.ConsoleTail(ctx, id, len(greeting))
		if err != nil {
			t.Fatal(err)
		}
		if string(text) == greeting {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the console shows %q", text)
		}
	}
}

// TestLabVolumeGroup boots a VM whose disks are in the volume group of the pool in KAAS_LAB_LOGICAL_POOL.
func TestLabVolumeGroup(t *testing.T) {
	t.Parallel()
	uri, group := labURI(t), os.Getenv("KAAS_LAB_LOGICAL_POOL")
	if group == "" {
		t.Skip("KAAS_LAB_LOGICAL_POOL is not set; it names a storage pool of type logical with 1 GiB free")
	}
	f := newFixture(t, uri, "default")
	f.cfg.Hosts[0].DiskPool = group
	b, s, vm := f.running(t)
	waitForGreeting(t, b, vm.ID) // the copy is the image: it boots
	content, err := inPool(t.Context(), b.hosts[0], "test", func(p *pool) ([]byte, error) {
		v, err := p.disks.LookupStorageVolByName(p.dataName(s.Key, "kaas-data"))
		if err != nil {
			return nil, err
		}
		defer func() { _ = v.Free() }()
		return tail(p.conn, v, 1<<20)
	})
	if err != nil || len(bytes.Trim(content, "\x00")) > 0 {
		t.Errorf("a new data disk holds %d bytes of another's, %v", len(bytes.Trim(content, "\x00")), err)
	}
}

// TestLabRestart restarts libvirtd between two calls, by the command in KAAS_LAB_RESTART.
func TestLabRestart(t *testing.T) {
	uri, restart := labURI(t), os.Getenv("KAAS_LAB_RESTART")
	if restart == "" {
		t.Skip(
			"KAAS_LAB_RESTART is not set; such as systemctl restart libvirtd. Other tests must not run meanwhile; " +
				"make test runs this on a host of its own",
		)
	}
	f := newFixture(t, uri, "default")
	b, s, vm := f.running(t)
	if out, err := exec.Command("sh", "-c", restart).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	again, err := b.Ensure(t.Context(), s) // on a connection of its own
	if err != nil || again.ID != vm.ID || !again.Ready {
		t.Errorf("after the restart: %+v, %v", again, err)
	}
}
