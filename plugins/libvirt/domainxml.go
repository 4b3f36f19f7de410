package libvirt

import (
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director/hypervisor"
)

// domainXML returns the definition of the VM.
//
// The seed is a virtio disk and not a CD-ROM, because cloud kernels have no driver for the latter. There is no balloon:
// what a VM is given it has. The console goes to a pty, for people, and to a volume of the pool, for ConsoleTail.
func (b *domains) domainXML(kind string, p *pool, s hypervisor.Spec) (string, error) {
	m := mark{Director: s.Key.Director, ID: s.Key.Machine}
	def := virtxml.Domain{
		Type:     kind,
		Name:     s.Name,
		UUID:     domainUUID(s.Key),
		Metadata: &virtxml.DomainMetadata{XML: m.element("machine", true)},
		Memory:   &virtxml.DomainMemory{Value: uint(s.Memory), Unit: "bytes"},
		VCPU:     &virtxml.DomainVCPU{Value: uint(s.CPUs)},
		OS: &virtxml.DomainOS{
			Type: &virtxml.DomainOSType{Arch: "x86_64", Machine: b.machineType(kind), Type: "hvm"},
		},
		Features:   &virtxml.DomainFeatureList{ACPI: &virtxml.DomainFeature{}, APIC: &virtxml.DomainFeatureAPIC{}},
		CPU:        b.cpu(kind),
		Clock:      &virtxml.DomainClock{Offset: "utc", Timer: timers(kind)},
		OnPoweroff: "destroy",
		OnReboot:   "restart",
		OnCrash:    "restart",
		Devices:    b.devices(kind, p, s),
	}
	if b.cfg.Firmware == "efi" {
		def.OS.Firmware = "efi"
	}
	return def.Marshal()
}

// devices returns everything that the VM has, in the order in which the guest sees it.
func (b *domains) devices(kind string, p *pool, s hypervisor.Spec) *virtxml.DomainDeviceList {
	devices := &virtxml.DomainDeviceList{
		Controllers: []virtxml.DomainController{{Type: "usb", Model: "none"}},
		Serials: []virtxml.DomainSerial{{
			Source: &virtxml.DomainChardevSource{Pty: &virtxml.DomainChardevSourcePty{}},
			Target: &virtxml.DomainSerialTarget{Port: new(uint)},
			Log:    &virtxml.DomainChardevLog{File: p.path(consoleName(s.Key)), Append: "off"},
		}},
		Channels: []virtxml.DomainChannel{{
			Source: &virtxml.DomainChardevSource{UNIX: &virtxml.DomainChardevSourceUNIX{}},
			Target: &virtxml.DomainChannelTarget{
				VirtIO: &virtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"},
			},
		}},
		RNGs: []virtxml.DomainRNG{{
			Model:   "virtio",
			Backend: &virtxml.DomainRNGBackend{Random: &virtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
		}},
		MemBalloon: &virtxml.DomainMemBalloon{Model: "none"},
	}
	if kind == "test" { // libvirt's test driver knows fewer devices
		devices.Channels, devices.Controllers = nil, nil
	}
	if b.cfg.NoGuestAgent {
		devices.Channels = nil
	}
	devices.Disks = b.disks(p, s)
	for _, n := range s.NICs {
		devices.Interfaces = append(devices.Interfaces, virtxml.DomainInterface{
			MAC:    &virtxml.DomainInterfaceMAC{Address: n.MAC},
			Source: &virtxml.DomainInterfaceSource{Network: &virtxml.DomainInterfaceSourceNetwork{Network: n.Network}},
			Model:  &virtxml.DomainInterfaceModel{Type: "virtio"},
		})
	}
	return devices
}

// disks returns the root disk, the data disks and the seed.
func (b *domains) disks(p *pool, s hypervisor.Spec) []virtxml.DomainDisk {
	target := 'a'
	disk := func(name, format, serial string) virtxml.DomainDisk {
		d := virtxml.DomainDisk{
			Device: "disk",
			Driver: &virtxml.DomainDiskDriver{Name: "qemu", Type: format, Cache: b.cfg.DiskCache},
			Source: p.source(name, name != seedName(s.Key)),
			Target: &virtxml.DomainDiskTarget{Dev: "vd" + string(target), Bus: "virtio"},
			Serial: serial,
		}
		if name != seedName(s.Key) {
			d.Driver.Discard = "unmap"
		}
		target++
		return d
	}
	root := disk(p.rootName(s.Key), p.disks.format(), rootSerial)
	root.Boot = &virtxml.DomainDeviceBoot{Order: 1}
	all := []virtxml.DomainDisk{root}
	for _, d := range s.DataDisks {
		all = append(all, disk(p.dataName(d.Owner(s.Key), d.Serial), p.disks.format(), d.Serial))
	}
	seed := disk(seedName(s.Key), "raw", "kaas-seed")
	seed.ReadOnly = &virtxml.DomainDiskReadOnly{}
	return append(all, seed)
}

func (b *fleet) machineType(kind string) string {
	if b.cfg.MachineType == "" && kind != "test" {
		return "q35"
	}
	return b.cfg.MachineType
}

// timers returns the guest's. The HPET only costs under KVM. Under emulation the guest's kernel compares the TSC with
// it; without, it takes its own lost ticks for a fault of the TSC. QEMU gives it one unasked: to ask for it is refused
// by libvirt 9 with QEMU 9 and later.
func timers(kind string) []virtxml.DomainTimer {
	all := []virtxml.DomainTimer{{Name: "rtc", TickPolicy: "catchup"}, {Name: "pit", TickPolicy: "delay"}}
	if kind != "qemu" {
		all = append(all, virtxml.DomainTimer{Name: "hpet", Present: "no"})
	}
	return all
}

// cpu returns the guest's CPU. Under emulation it is x86-64-v2 with AES on the in-order Atom N270: the guest's kernel
// trusts that CPU's TSC, where with a generic one it takes every reading of the clock as a trip through the hypervisor,
// and knows that it does not speculate, so that it needs no mitigations. What else QEMU could emulate (mode maximum:
// AVX, five-level paging, SMAP) makes a guest boot half as long again.
func (b *domains) cpu(kind string) *virtxml.DomainCPU {
	switch {
	case b.cfg.CPUMode != "":
		return &virtxml.DomainCPU{Mode: b.cfg.CPUMode}
	case kind == "kvm":
		return &virtxml.DomainCPU{Mode: "host-passthrough"}
	case kind != "qemu":
		return nil
	}
	cpu := &virtxml.DomainCPU{
		Mode: "custom", Match: "exact", Check: "none", Model: &virtxml.DomainCPUModel{Fallback: "allow", Value: "n270"},
	}
	for _, name := range []string{
		"syscall", "nx", "lm", "lahf_lm", "cx16", "ssse3", "sse4.1", "sse4.2", "popcnt", "aes", "pclmuldq", "rdrand",
	} {
		cpu.Features = append(cpu.Features, virtxml.DomainCPUFeature{Policy: "require", Name: name})
	}
	return cpu
}

// source is where the domain finds a volume: of the pool of disks if disk is set, and of the pool of files otherwise.
func (p *pool) source(name string, disk bool) *virtxml.DomainDiskSource {
	if !disk {
		return &virtxml.DomainDiskSource{File: &virtxml.DomainDiskSourceFile{File: p.path(name)}}
	}
	if p.disks.block() {
		return &virtxml.DomainDiskSource{Block: &virtxml.DomainDiskSourceBlock{Dev: p.disks.path(name)}}
	}
	return &virtxml.DomainDiskSource{File: &virtxml.DomainDiskSourceFile{File: p.disks.path(name)}}
}
