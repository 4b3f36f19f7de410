package libvirt

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// cable carries the connections to a libvirt's socket until it is cut. The hypervisor continues behind it.
type cable struct {
	socket, to string
	mu         sync.Mutex
	cut        bool
	open       []net.Conn
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "cable-") // where doors may lead, and short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{socket: filepath.Join(dir, "sock"), to: to}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		c.set(true)
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go c.carry(in)
		}
	}()
	return c
}

func (c *cable) carry(in net.Conn) {
	out, err := (&net.Dialer{}).DialContext(context.Background(), "unix", c.to)
	c.mu.Lock()
	if err != nil || c.cut {
		c.mu.Unlock()
		_ = in.Close()
		if out != nil {
			_ = out.Close()
		}
		return
	}
	c.open = append(c.open, in, out)
	c.mu.Unlock()
	go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
	_, _ = io.Copy(in, out)
	_ = in.Close()
}

func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

// TestLabLostHost cuts the way to a real host whose VM runs on. Its successor is made on another host under the same
// name; when the way is there again, the old VM is found by its stamp, powered off and no longer started with its host.
func TestLabLostHost(t *testing.T) {
	second := os.Getenv("KAAS_LAB_SECOND_URI")
	if second == "" {
		t.Skip("KAAS_LAB_SECOND_URI is not set: the URI that test/lab/lab host NAME prints")
	}
	_, socket, _ := strings.Cut(second, "socket=")
	c := newCable(t, socket)
	f := newFixture(t, labURI(t), "default")
	const bridge = "brlost0"
	if out, err := exec.CommandContext(
		t.Context(), "ip", "link", "add", bridge, "type", "bridge",
	).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "ip", "link", "del", bridge).Run() })
	f.cfg.Hosts = append(f.cfg.Hosts, HostConfig{
		Name: "h2", URI: "qemu+unix:///system?socket=" + c.socket, Pool: "default",
	})
	f.cfg.Autostart = true
	b := f.open(t)
	t.Cleanup(func() { _ = b.Close() })
	ctx := t.Context()
	image := newImage(t)
	network := hypervisor.NetworkSpec{
		Owner: director.Stamp{Director: hypervisortest.RandomID("d"), Machine: "net"},
		Name:  hypervisortest.RandomID("net-"), Mode: "bridge", Bridge: bridge, CIDR: f.newNetwork(t).CIDR,
	}
	if err := b.EnsureImage(ctx, image, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.EnsureNetwork(ctx, network); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.DeleteImage(context.Background(), image.Name)
		_ = b.DeleteNetwork(context.Background(), network.Name, network.Owner)
	})
	f.image, f.network = image.Name, network.Name
	s, next := f.spec(t, b), f.spec(t, b)
	s.Host, next.Host, next.Key.Director, next.Name = "h2", "h1", s.Key.Director, s.Name
	t.Cleanup(func() {
		_ = b.Delete(context.Background(), hypervisor.ID(
			domainUUID(next.Key),
		), hypervisor.DeleteOptions{Owner: next.Key, DataDisks: true})
	})
	old, err := b.Ensure(ctx, s)
	if err != nil {
		t.Fatal(err)
	}

	c.set(true)
	start := time.Now()
	states, err := b.HostStates(ctx)
	if err != nil || len(states) != 2 || states[0].Err != nil || states[1].Err == nil {
		t.Fatalf("the hosts are %+v, %v", states, err)
	}
	t.Logf("%s until the silent host was told: %v", time.Since(start).Round(time.Millisecond), states[1].Err)
	if _, err := b.List(ctx, hypervisor.Filter{
		Director: s.Key.Director,
	}); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("a list with a hole: %v", err)
	}
	vm, err := b.Without("h2").Ensure(ctx, next)
	if err != nil || vm.Host != "h1" || vm.Name != old.Name {
		t.Fatalf("the successor is %+v, %v", vm, err)
	}

	c.set(false)
	all, err := b.List(ctx, hypervisor.Filter{Director: s.Key.Director})
	if err != nil || len(all) != 2 || all[0].Power != hypervisor.PowerOn || all[1].Power != hypervisor.PowerOn {
		t.Fatalf("behind the cut are %+v, %v", all, err)
	}
	if err := b.Fence(ctx, old.ID, next.Key); director.KindOf(err) != director.KindConflict {
		t.Errorf("the old VM with the new stamp: %v", err)
	}
	start = time.Now()
	if err := b.Fence(ctx, old.ID, old.Stamp); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s until the old VM was off", time.Since(start).Round(time.Millisecond))
	if now, err := b.Get(ctx, old.ID); err != nil || now.Power != hypervisor.PowerOff || now.Host != "h2" {
		t.Errorf("the old VM is %+v, %v", now, err)
	}
	if now, err := b.Get(ctx, vm.ID); err != nil || now.Power != hypervisor.PowerOn {
		t.Errorf("the successor is %+v, %v", now, err)
	}
	dom, err := onDomain(ctx, b.all[1], "test", old.ID, func(d *domain) (bool, error) { return d.GetAutostart() })
	if err != nil || dom {
		t.Errorf("its host starts the old VM at boot: %v, %v", dom, err)
	}
}
