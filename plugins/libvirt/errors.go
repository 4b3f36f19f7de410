package libvirt

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
)

// unreachable is the error for a host that cannot be talked to.
func (h *host) unreachable(op string, err error) *director.Error {
	e := director.Errorf(
		director.KindUnavailable, op, "libvirt on host %s does not answer at %s: %s", h.Name, h.URI, message(err),
	)
	e.Err = err
	u, parse := url.Parse(h.URI)
	switch text := message(err); {
	case strings.Contains(text, "dlopen"):
		return e.WithHint("install libvirt's client library on the director (Debian: libvirt0)")
	case is(
		err, virt.ERR_AUTH_FAILED, virt.ERR_AUTH_CANCELLED, virt.ERR_AUTH_UNAVAILABLE, virt.ERR_ACCESS_DENIED,
		virt.ERR_OPERATION_DENIED,
	),
		strings.Contains(text, "Permission denied"):
		return e.WithHint(
			"the director's account may not use it: add it to the group libvirt, or check the SSH key; try: virsh "+
				"-c %s list",
			h.URI,
		)
	case parse == nil && u.Host != "":
		return e.WithHint("check that %s is up and libvirtd runs there; try: virsh -c %s list", u.Hostname(), h.URI)
	default:
		return e.WithHint("check that libvirtd runs (systemctl status libvirtd); try: virsh -c %s list", h.URI)
	}
}

// message is what libvirt says, without its numbers.
func message(err error) string {
	if e, ok := errors.AsType[virt.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// translate turns libvirt's errors into ours. Ours pass.
func (h *host) translate(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*director.Error](err); ok {
		return err
	}
	e, ok := errors.AsType[virt.Error](err)
	if !ok {
		return &director.Error{
			Kind: director.KindInternal, Op: op, Msg: "host " + h.Name + ": " + err.Error(), Err: err,
		}
	}
	wrap := func(kind director.Kind, hint string) error {
		return &director.Error{Kind: kind, Op: op, Msg: "host " + h.Name + ": " + e.Message, Hint: hint, Err: err}
	}
	if kind, hint, known := h.byMessage(e.Message); known {
		return wrap(kind, hint)
	}
	kind, hint, known := byCode(e.Code)
	switch {
	case contains(e.Message, "dlopen"), unanswered(e.Code):
		return h.unreachable(op, err)
	case known:
		return wrap(kind, hint)
	case e.Domain == virt.FROM_RPC || e.Domain == virt.FROM_REMOTE:
		return h.unreachable(op, err)
	}
	return wrap(
		director.KindInternal, "look at libvirtd's log on the host, and at /var/log/libvirt/qemu for the VM's own",
	)
}

// byMessage finds what is wrong in libvirt's message, where its code says less.
func (h *host) byMessage(text string) (kind director.Kind, hint string, known bool) {
	switch {
	case contains(text, "No space left on device", "Disk quota exceeded"):
		return director.KindExhausted, "free space in the storage pool " + h.pools() + ", or choose another pool", true
	case contains(text, "Cannot allocate memory", "cannot set up guest memory"):
		return director.KindExhausted, "the host has too little free memory; choose smaller VMs or another host", true
	case contains(text, "Network is already in use by interface"):
		return director.KindConflict, "the range is in use on the host; choose another cidr", true
	case contains(text, "network") && contains(text, "is not active"):
		return director.KindUnavailable, "start the network on the host: virsh -c " + h.URI + " net-start NAME", true
	case contains(text, "Could not access KVM", "failed to initialize kvm", "failed to initialize KVM"):
		return director.KindInvalid,
			"the host has no usable /dev/kvm; load kvm_intel or kvm_amd there, or set domainType to qemu", true
	case contains(text, "is still being allocated", "is still in use", "has asynchronous jobs running"):
		return director.KindUnavailable, "another process works on it; try again", true
	case contains(text, "tap device") && contains(text, "Device or resource busy"):
		return director.KindUnavailable, "another VM was being connected at the same moment; try again", true
	}
	return "", "", false
}

// byCode finds what is wrong by libvirt's code.
func byCode(code virt.ErrorNumber) (kind director.Kind, hint string, known bool) {
	switch code {
	case virt.ERR_NO_DOMAIN, virt.ERR_NO_NETWORK, virt.ERR_NO_STORAGE_VOL, virt.ERR_NO_STORAGE_POOL:
		return director.KindNotFound, "", true
	case virt.ERR_DOM_EXIST, virt.ERR_NETWORK_EXIST, virt.ERR_STORAGE_VOL_EXIST:
		return director.KindConflict, "", true
	case virt.ERR_NO_MEMORY:
		return director.KindExhausted, "", true
	case virt.ERR_OPERATION_TIMEOUT, virt.ERR_RESOURCE_BUSY, virt.ERR_AGENT_UNRESPONSIVE:
		return director.KindUnavailable, "the host is busy; try again", true
	case virt.ERR_CONFIG_UNSUPPORTED, virt.ERR_NO_SUPPORT, virt.ERR_OPERATION_UNSUPPORTED,
		virt.ERR_ARGUMENT_UNSUPPORTED:
		return director.KindInvalid,
			"the host's libvirt or QEMU cannot do this; check the provider's settings and their versions", true
	}
	return "", "", false
}

// unanswered tells whether the code says that libvirt was not reached, or let no one in.
func unanswered(code virt.ErrorNumber) bool {
	switch code {
	case virt.ERR_NO_CONNECT, virt.ERR_INVALID_CONN, virt.ERR_RPC, virt.ERR_GNUTLS_ERROR, virt.ERR_SSH, virt.ERR_LIBSSH,
		virt.ERR_AUTH_FAILED, virt.ERR_AUTH_CANCELLED, virt.ERR_AUTH_UNAVAILABLE, virt.ERR_ACCESS_DENIED,
		virt.ERR_OPERATION_DENIED:
		return true
	}
	return false
}

func contains(text string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

// is tells whether err is libvirt's error of one of the codes.
func is(err error, codes ...virt.ErrorNumber) bool {
	e, ok := errors.AsType[virt.Error](err)
	return ok && slices.Contains(codes, e.Code)
}

// diskIsGone reports whether a disk was missing, by the error of libvirt's storage or, at a start, of QEMU or its
// driver.
func diskIsGone(err error) bool {
	e, ok := errors.AsType[virt.Error](err)
	return is(err, virt.ERR_NO_STORAGE_VOL) || ok && strings.Contains(e.Message, "No such file or directory")
}

// pools names the host's storage pools.
func (h *host) pools() string {
	if h.DiskPool == "" || h.DiskPool == h.Pool {
		return h.Pool
	}
	return h.Pool + " or " + h.DiskPool
}
