package libvirt

import (
	"slices"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
)

// The first versions of libvirt that know what a provider may ask for, as its page "Domain XML format" has them.
const (
	knowsFirmware = 5_002_000 // chooses the firmware's files by itself
	knowsMaximum  = 7_001_000 // CPU mode maximum
)

// choosy tells whether the provider asks for what not every host has.
func (b *fleet) choosy() bool {
	return b.cfg.MachineType != "" || b.cfg.CPUMode != "" || b.cfg.Firmware == "efi"
}

// machine says what VMs get, for people.
func (b *fleet) machine(kind string) string {
	text := b.machineType(kind) + ", " + b.cfg.Firmware
	if b.cfg.CPUMode != "" {
		text += ", CPU " + b.cfg.CPUMode
	}
	return text
}

// able returns invalid if the host's libvirt or QEMU cannot make the VMs that the provider asks for. libvirt itself
// says so only when a VM is started, and in words that lead nowhere.
func (b *fleet) able(op string, h *host, c *virt.Connect, kind string) error {
	if kind == "test" || !b.choosy() {
		return nil
	}
	version, err := c.GetLibVersion()
	if err != nil {
		return err
	}
	var caps *virtxml.DomainCaps
	text, err := c.GetDomainCapabilities("", "x86_64", b.machineType(kind), kind, 0)
	switch {
	case err == nil:
		caps = &virtxml.DomainCaps{}
		if err := caps.Unmarshal(text); err != nil {
			return director.Errorf(
				director.KindInternal, op, "cannot read the capabilities of host %s: %w", h.Name, err,
			)
		}
	case is(err, virt.ERR_INVALID_ARG, virt.ERR_CONFIG_UNSUPPORTED):
		return director.Errorf(
			director.KindInvalid, op, "host %s has no machine of type %s: %s", h.Name, b.machineType(kind),
			message(err),
		).
			WithHint(
				"see which there are: virsh -c %s capabilities; then correct spec.libvirt.machineType of the Provider",
				h.URI,
			)
	case !is(err, virt.ERR_NO_SUPPORT):
		return err
	}
	return b.lacking(op, h.Name, version, kind, caps)
}

// lacking compares what is asked for with the version of libvirt and what it tells of QEMU; caps is nil if it tells
// nothing.
func (b *fleet) lacking(op, host string, version uint32, kind string, caps *virtxml.DomainCaps) error {
	invalid := func(format string, args ...any) *director.Error {
		return director.Errorf(director.KindInvalid, op, "host %s "+format, append([]any{host}, args...)...)
	}
	old := func(what string, first uint32) error {
		return invalid("has libvirt %s, and %s needs %s", dotted(version), what, dotted(first)).
			WithHint("upgrade libvirt on it, or leave the setting out of spec.libvirt of the Provider")
	}
	if b.cfg.Firmware == "efi" {
		if version < knowsFirmware {
			return old("firmware efi", knowsFirmware)
		}
		if caps != nil && !offers(caps.OS, "firmware", "efi") {
			return invalid("has no UEFI firmware for machines of type %s", b.machineType(kind)).
				WithHint("install it there (Debian: ovmf), or set firmware: bios in spec.libvirt of the Provider")
		}
	}
	switch {
	case b.cfg.CPUMode == "maximum" && version < knowsMaximum:
		return old("CPU mode maximum", knowsMaximum)
	case b.cfg.CPUMode == "host-passthrough" && kind != "kvm":
		return invalid("emulates, and CPU mode host-passthrough needs KVM").
			WithHint("leave cpuMode out of spec.libvirt of the Provider")
	case b.cfg.CPUMode != "" && caps != nil && caps.CPU != nil:
		for _, m := range caps.CPU.Modes {
			if m.Name == b.cfg.CPUMode && m.Supported == "no" {
				return invalid("cannot give VMs a CPU of mode %s", b.cfg.CPUMode).
					WithHint("leave cpuMode out of spec.libvirt of the Provider")
			}
		}
	}
	return nil
}

// offers tells whether the values of the named enumeration have the value. An enumeration that is not there says
// nothing, which counts as yes.
func offers(os *virtxml.DomainCapsOS, name, value string) bool {
	if os == nil {
		return true
	}
	for _, e := range os.Enums {
		if e.Name == name {
			return slices.Contains(e.Values, value)
		}
	}
	return true
}
