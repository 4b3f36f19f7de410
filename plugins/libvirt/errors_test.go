package libvirt

import (
	"errors"
	"strings"
	"testing"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
)

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

func TestTranslate(t *testing.T) {
	t.Parallel()
	h := &host{HostConfig: HostConfig{Name: "h1", URI: "qemu+ssh://root@hyp1/system", Pool: "fast"}}
	for name, tt := range map[string]struct {
		err  error
		kind director.Kind
		part string
	}{
		"no space": {
			virt.Error{Code: virt.ERR_SYSTEM_ERROR, Message: "cannot fill file: No space left on device"},
			director.KindExhausted, "fast",
		},
		"no memory": {
			virt.Error{Code: virt.ERR_INTERNAL_ERROR, Message: "cannot set up guest memory 'pc.ram'"},
			director.KindExhausted, "memory",
		},
		"range": {
			virt.Error{Code: virt.ERR_INTERNAL_ERROR, Message: "Network is already in use by interface eth0"},
			director.KindConflict, "cidr",
		},
		"adapters of two VMs": {
			virt.Error{
				Code: virt.ERR_SYSTEM_ERROR, Message: "Unable to create tap device vnet0: Device or resource busy",
			},
			director.KindUnavailable, "try again",
		},
		"gone": {
			virt.Error{Code: virt.ERR_NO_DOMAIN, Message: "Domain not found"},
			director.KindNotFound,
			"Domain not found",
		},
		"ssh": {
			virt.Error{Code: virt.ERR_SYSTEM_ERROR, Domain: virt.FROM_RPC, Message: "Cannot recv data: Host key"},
			director.KindUnavailable, "hyp1",
		},
		"no rights": {
			virt.Error{Code: virt.ERR_AUTH_FAILED, Domain: virt.FROM_RPC, Message: "denied"},
			director.KindUnavailable,
			"group libvirt",
		},
		"library": {
			virt.Error{Code: virt.ERR_NO_CONNECT, Message: "Failed to dlopen libvirt.so.0"},
			director.KindUnavailable,
			"libvirt0",
		},
		"stopped": {
			virt.Error{Code: virt.ERR_OPERATION_INVALID, Message: "network 'demo' is not active"},
			director.KindUnavailable, "net-start",
		},
		"no kvm": {
			virt.Error{Code: virt.ERR_INTERNAL_ERROR, Message: "process exited: Could not access KVM kernel module"},
			director.KindInvalid, "domainType",
		},
		"volume": {
			virt.Error{Code: virt.ERR_OPERATION_INVALID, Message: "volume 'x' is still being allocated."},
			director.KindUnavailable, "try again",
		},
		"busy": {
			virt.Error{Code: virt.ERR_OPERATION_TIMEOUT, Message: "state change lock"},
			director.KindUnavailable,
			"try again",
		},
		"other": {
			virt.Error{Code: virt.ERR_INTERNAL_ERROR, Message: "process exited"}, director.KindInternal, "log",
		},
		"ours": {director.Errorf(director.KindConflict, "x", "taken"), director.KindConflict, "taken"},
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
