package libvirt

import (
	"context"
	"log/slog"
	"sync"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
)

// host is a hypervisor host with its one connection, which all calls share.
type host struct {
	HostConfig
	door *door
	log  *slog.Logger

	turn chan struct{} // of one place: libvirt may take minutes to connect to a host that is silent

	mu     sync.Mutex
	conn   *virt.Connect
	closed bool
	kinds  map[string]bool // domain types that the host offers; as long as the connection lives
}

// connect returns a reference to the connection, and connects first if there is none that lives. The caller closes it.
// While another caller connects, it waits for that one or for the end of the context.
func (h *host) connect(ctx context.Context, op string) (*virt.Connect, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, interrupted(ctx, op)
	}
	if c, err := h.living(op); c != nil || err != nil {
		return c, err
	}
	c, err := h.dial(op)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		_, _ = c.Close()
		return nil, h.wasClosed(op)
	}
	h.conn = c
	return h.refer(op)
}

// living returns a reference to the connection, or nil if there is none that lives.
func (h *host) living(op string) (*virt.Connect, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, h.wasClosed(op)
	}
	if h.conn != nil {
		if alive, err := h.conn.IsAlive(); err != nil || !alive {
			h.drop()
		}
	}
	if h.conn == nil {
		return nil, nil //nolint:nilnil // the caller connects
	}
	return h.refer(op)
}

// refer returns one more reference to the connection. h.mu is held.
func (h *host) refer(op string) (*virt.Connect, error) {
	if err := h.conn.Ref(); err != nil {
		return nil, h.unreachable(op, err)
	}
	return h.conn, nil
}

func (h *host) wasClosed(op string) error {
	return director.Errorf(director.KindUnavailable, op, "the connection to host %s was closed", h.Name)
}

func (h *host) dial(op string) (*virt.Connect, error) {
	uri, err := h.door.open(op, h.Name)
	if err != nil {
		return nil, err
	}
	away := h.door.remote()
	if away {
		listen()
	}
	c, err := virt.NewConnect(uri)
	if err != nil {
		return nil, h.unreachable(op, err)
	}
	if away {
		// an old libvirtd has none; then calls wait as long as their caller does
		if err := c.SetKeepAlive(keepAliveEvery, keepAliveCount); err != nil {
			h.log.Info("the connection has no signs of life", "err", err)
		}
	}
	return c, nil
}

// A host that is silent for 20 s is gone: its connection is closed, calls on it fail, and the next call connects again.
const (
	keepAliveEvery = 5 // seconds
	keepAliveCount = 3
)

// listen runs libvirt's event loop, which signs of life need, from the first call to the end of the process.
var listen = sync.OnceFunc(func() {
	if err := virt.EventRegisterDefaultImpl(); err != nil {
		return
	}
	go func() {
		for virt.EventRunDefaultImpl() == nil {
		}
	}()
})

// drop forgets the connection. h.mu is held.
func (h *host) drop() {
	if h.conn != nil {
		_, _ = h.conn.Close()
		h.conn, h.kinds = nil, nil
	}
}

func (h *host) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.drop()
}

// domainType returns the type that domains on the host get.
func (b *fleet) domainType(op string, h *host, c *virt.Connect) (string, error) {
	if h.door.test {
		return "test", nil
	}
	offered, err := h.offered(op, c)
	if err != nil {
		return "", err
	}
	want := b.cfg.DomainType
	if want == "auto" {
		if want = "qemu"; offered["kvm"] {
			want = "kvm"
		}
	}
	if !offered[want] {
		e := director.Errorf(director.KindInvalid, op, "host %s cannot run VMs of type %s", h.Name, want)
		if want == "kvm" {
			return "", e.WithHint(
				"it has no usable /dev/kvm: load the module kvm_intel or kvm_amd there, or set domainType to qemu " +
					"or auto",
			)
		}
		return "", e.WithHint("install qemu-system-x86 on it")
	}
	return want, nil
}

// offered returns the domain types that the host can run. libvirt takes a while to find them, so they are asked for
// once in a connection.
func (h *host) offered(op string, c *virt.Connect) (map[string]bool, error) {
	h.mu.Lock()
	known := h.kinds
	h.mu.Unlock()
	if known != nil {
		return known, nil
	}
	text, err := c.GetCapabilities()
	if err != nil {
		return nil, err
	}
	var caps virtxml.Caps
	if err := caps.Unmarshal(text); err != nil {
		return nil, director.Errorf(
			director.KindInternal, op, "cannot read the capabilities of host %s: %w", h.Name, err,
		)
	}
	known = map[string]bool{}
	for _, g := range caps.Guests {
		if g.OSType == "hvm" && g.Arch.Name == "x86_64" {
			for _, d := range g.Arch.Domains {
				known[d.Type] = true
			}
		}
	}
	h.mu.Lock()
	h.kinds = known
	h.mu.Unlock()
	return known, nil
}
