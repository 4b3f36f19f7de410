// Package libvirt runs VMs on hosts with libvirt and QEMU.
//
// What belongs to a machine is found again by its stamp alone, so a director that died at any line goes on where it was:
//
//   - The domain's UUID is computed from the stamp. The domain is defined first, so that half a machine is already listed,
//     and its metadata carries the stamp and, once every disk is complete, the mark made.
//   - Volumes are named kaas.<director>.<machine>.<use>, because libvirt keeps no metadata with volumes. The root disk is a
//     qcow2 clone that is linked to the image's volume.
//   - Delete takes the volumes away first and the domain last.
//
// The storage pool must hold files (types dir, fs or netfs).
package libvirt

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var (
	_ hypervisor.Backend    = (*Backend)(nil)
	_ hypervisor.Imaging    = (*Backend)(nil)
	_ hypervisor.Networking = (*Backend)(nil)
	_ hypervisor.Capacity   = (*Backend)(nil)
	_ hypervisor.Volumes    = (*Backend)(nil)
	_ hypervisor.Console    = (*Backend)(nil)
)

// HostConfig is one hypervisor host.
type HostConfig struct {
	Name string // how the director calls it
	URI  string // qemu:///system, qemu+ssh://root@host/system ...
	Pool string // storage pool for images and disks; default "default"
}

// Config is what Open needs.
type Config struct {
	Hosts       []HostConfig
	DomainType  string // auto (default), kvm or qemu
	MachineType string // default q35
	Firmware    string // bios (default) or efi
	CPUMode     string // libvirt's mode of <cpu>; default: host-passthrough under KVM, x86-64-v2 under emulation
	DiskCache   string // QEMU's cache mode; default is QEMU's own, "unsafe" is for laboratories
	Autostart   bool   // start VMs when their host boots
	Log         *slog.Logger
}

// minFree is what a pool must have free before anything is made in it. Disks are thin, so this only keeps the last bytes of a
// full pool for the VMs that live there already.
const minFree = 256 << 20

// Backend implements hypervisor.Backend and all its optional interfaces.
type Backend struct {
	cfg   Config
	hosts []*host // ordered by name
	locks keyed

	// Seams for tests.
	at     func(point string) error // called between the lines of Ensure
	upload func(ctx context.Context, c *virt.Connect, v *virt.StorageVol, src source) error
}

// Open returns a back end. It does not connect yet: hosts that are down are reported by the first call that needs them.
// Errors: invalid with all that is wrong with the configuration.
func Open(cfg Config) (*Backend, error) {
	const op = "libvirt.open"
	cfg.DomainType = cmp.Or(cfg.DomainType, "auto")
	cfg.Firmware = cmp.Or(cfg.Firmware, "bios")
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var fields []director.Field
	want := func(ok bool, path, format string, args ...any) {
		if !ok {
			fields = append(fields, director.Field{Path: path, Msg: fmt.Sprintf(format, args...)})
		}
	}
	want(slices.Contains([]string{"auto", "kvm", "qemu"}, cfg.DomainType), "domainType", "%q is not auto, kvm or qemu", cfg.DomainType)
	want(slices.Contains([]string{"bios", "efi"}, cfg.Firmware), "firmware", "%q is not bios or efi", cfg.Firmware)
	want(len(cfg.Hosts) > 0, "hosts", "is empty")
	b := &Backend{cfg: cfg, at: func(string) error { return nil }, upload: uploadStream}
	names := map[string]bool{}
	for i, h := range cfg.Hosts {
		at := fmt.Sprintf("hosts[%d]", i)
		want(h.Name != "", at+".name", "is empty")
		want(!names[h.Name], at+".name", "%q is there twice", h.Name)
		names[h.Name] = true
		u, err := url.Parse(h.URI)
		want(err == nil && u.Scheme != "", at+".uri", "%q is not a libvirt URI", h.URI)
		h.Pool = cmp.Or(h.Pool, "default")
		b.hosts = append(b.hosts, &host{HostConfig: h, log: cfg.Log.With("backend", "libvirt", "host", h.Name)})
	}
	if err := director.Invalid(op, "the libvirt provider's settings are wrong", fields); err != nil {
		return nil, err
	}
	slices.SortFunc(b.hosts, func(x, y *host) int { return cmp.Compare(x.Name, y.Name) })
	return b, nil
}

// Close implements hypervisor.Backend.
func (b *Backend) Close() error {
	for _, h := range b.hosts {
		h.close()
	}
	return nil
}

// host is a hypervisor host with its one connection, which all calls share.
type host struct {
	HostConfig
	log *slog.Logger

	mu     sync.Mutex
	conn   *virt.Connect
	closed bool
	kinds  map[string]bool // domain types that the host offers; as long as the connection lives
}

// connect returns a reference to the connection, made anew if it is gone. The caller closes it.
func (h *host) connect(op string) (*virt.Connect, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, director.Errorf(director.KindUnavailable, op, "the connection to host %s was closed", h.Name)
	}
	if h.conn != nil {
		if alive, err := h.conn.IsAlive(); err != nil || !alive {
			h.drop()
		}
	}
	if h.conn == nil {
		c, err := virt.NewConnect(h.URI)
		if err != nil {
			return nil, h.unreachable(op, err)
		}
		h.conn = c
	}
	if err := h.conn.Ref(); err != nil {
		return nil, h.unreachable(op, err)
	}
	return h.conn, nil
}

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

// call runs act with a connection to h. It returns when act does or when the context ends; libvirt's own calls cannot be
// interrupted, so act may then go on for a while in the background. A connection that breaks is made anew once, since
// everything here may be done twice.
func call[T any](ctx context.Context, h *host, op string, act func(c *virt.Connect) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var zero T
	if err := interrupted(ctx, op); err != nil {
		return zero, err
	}
	done := make(chan result, 1)
	go func() {
		for try := 0; ; try++ {
			c, err := h.connect(op)
			if err != nil {
				done <- result{err: err}
				return
			}
			value, err := act(c)
			alive := true
			if err != nil {
				var lost error
				alive, lost = c.IsAlive()
				alive = alive && lost == nil
			}
			_, _ = c.Close()
			if err == nil || alive || try > 0 || ctx.Err() != nil {
				done <- result{value, h.translate(op, err)}
				return
			}
			h.log.WarnContext(ctx, "connection lost, connecting again", "err", err)
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return zero, interrupted(ctx, op)
	}
}

// inPool is call with the host's storage pool opened.
func inPool[T any](ctx context.Context, h *host, op string, act func(p *pool) (T, error)) (T, error) {
	return call(ctx, h, op, func(c *virt.Connect) (T, error) {
		p, err := h.pool(op, c)
		if err != nil {
			var zero T
			return zero, err
		}
		defer p.close()
		return act(p)
	})
}

// none is the answer of an act that has only an error.
type none struct{}

// onEach runs act on one host after the other, and ends at the first error.
func (b *Backend) onEach(ctx context.Context, op string, act func(h *host, c *virt.Connect) error) error {
	for _, h := range b.hosts {
		if _, err := call(ctx, h, op, func(c *virt.Connect) (none, error) { return none{}, act(h, c) }); err != nil {
			return err
		}
	}
	return nil
}

// onEachPool is onEach with the hosts' storage pools opened.
func (b *Backend) onEachPool(ctx context.Context, op string, act func(p *pool) error) error {
	for _, h := range b.hosts {
		if _, err := inPool(ctx, h, op, func(p *pool) (none, error) { return none{}, act(p) }); err != nil {
			return err
		}
	}
	return nil
}

// locked runs act while it holds the key's lock. It returns as soon as the context ends: a libvirt call that hangs keeps the
// lock and not the caller. act gets a context that does not end.
func locked[T any](ctx context.Context, b *Backend, op, key string, act func(work context.Context) (T, error)) (T, error) {
	release, err := b.locks.lock(ctx, op, key)
	if err != nil {
		var zero T
		return zero, err
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer release()
		var r result
		if r.err = interrupted(ctx, op); r.err == nil {
			r.value, r.err = act(context.WithoutCancel(ctx))
		}
		done <- r
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var zero T
		return zero, interrupted(ctx, op)
	}
}

// alone is locked for an act that has only an error.
func (b *Backend) alone(ctx context.Context, op, key string, act func(work context.Context) error) error {
	_, err := locked(ctx, b, op, key, func(work context.Context) (none, error) { return none{}, act(work) })
	return err
}

func interrupted(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		return nil
	}
	return director.Errorf(director.KindUnavailable, op, "interrupted: %w", context.Cause(ctx))
}

// domainType returns the type that domains on the host get.
func (b *Backend) domainType(op string, h *host, c *virt.Connect) (string, error) {
	if strings.HasPrefix(h.URI, "test:") {
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
			return "", e.WithHint("it has no usable /dev/kvm: load the module kvm_intel or kvm_amd there, or set domainType to qemu or auto")
		}
		return "", e.WithHint("install qemu-system-x86 on it")
	}
	return want, nil
}

// offered returns the domain types that the host can run. libvirt takes a while to find them, so they are asked for once in a
// connection.
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
		return nil, director.Errorf(director.KindInternal, op, "cannot read the capabilities of host %s: %w", h.Name, err)
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

// keyed is a set of locks by key.
type keyed struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits for the key and returns its release.
func (k *keyed) lock(ctx context.Context, op, key string) (release func(), err error) {
	for {
		k.mu.Lock()
		held, taken := k.held[key]
		if !taken {
			mine := make(chan struct{})
			if k.held == nil {
				k.held = map[string]chan struct{}{}
			}
			k.held[key] = mine
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				delete(k.held, key)
				k.mu.Unlock()
				close(mine)
			}, nil
		}
		k.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, interrupted(ctx, op)
		}
	}
}

// namespace is of our elements in libvirt's metadata.
const namespace = "urn:director-kaas:libvirt:1"

// mark is our element in the metadata of a domain or network.
type mark struct {
	XMLName  xml.Name
	Director string `xml:"director,attr"`
	ID       string `xml:"id,attr"`
	Made     string `xml:"made,attr,omitempty"`     // domains: yes when all disks are complete
	Settings string `xml:"settings,attr,omitempty"` // networks: what they were made from
}

func (m mark) stamp() director.Stamp { return director.Stamp{Director: m.Director, Machine: m.ID} }

// element returns the mark as XML; with its namespace for a whole document, without for libvirt's SetMetadata, which adds it.
func (m mark) element(kind string, whole bool) string {
	m.XMLName = xml.Name{Local: kind}
	if whole {
		m.XMLName.Space = namespace
	}
	text, err := xml.Marshal(m)
	if err != nil { // strings always marshal
		panic(err)
	}
	return string(text)
}

// parseMark finds our element of the kind in the inner XML of a metadata element.
func parseMark(kind, inner string) (mark, bool) {
	d := xml.NewDecoder(strings.NewReader("<metadata>" + inner + "</metadata>"))
	for {
		token, err := d.Token()
		if err != nil {
			return mark{}, false
		}
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Local != kind || e.Name.Space != namespace && e.Name.Space != "" {
			continue
		}
		var m mark
		if err := d.DecodeElement(&m, &e); err != nil {
			return mark{}, false
		}
		return m, true
	}
}

// is tells whether err is libvirt's error of one of the codes.
func is(err error, codes ...virt.ErrorNumber) bool {
	e, ok := errors.AsType[virt.Error](err)
	return ok && slices.Contains(codes, e.Code)
}
