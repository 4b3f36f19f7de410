//go:build linux

// Emulator stands where libvirt looks for QEMU in a lab whose guests are containers.
//
// libvirt, its domains, volumes, networks and monitors are the real ones, and so is all of a guest but its kernel and
// its firmware: the system on the root disk is started by its own init, in namespaces of its own, with the VM's disks
// and network adapters. This is for machines without KVM, where the software emulation of a processor makes a creation
// take six to nine times as long.
//
//	libvirtd ── real QEMU: keeps the monitor; its processor halts at its first instruction, its disks are empty
//	               └── supervisor: follows QEMU's events (started, power button, reset, end)
//	                      ├── qemu-storage-daemon: the disks as files, by FUSE; below loop devices
//	                      └── the guest: init of the root disk in PID, mount, network, UTS, IPC and cgroup namespaces
//
// What a guest does not have: a kernel of its own (modules, clock, most sysctls are the machine's and are shielded from
// it), libvirt's guest agent, and snapshots while it runs. Being switched off the hard way, its file systems are
// unmounted, which a power cut would not do.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// realQEMU is where the lab shows QEMU itself, with all that it looks for beside it.
const realQEMU = "/run/libvirt/usr/bin/qemu-system-x86_64"

func main() {
	var err error
	switch args := os.Args[1:]; {
	case slices.Equal(args, []string{"__supervise"}):
		err = supervise()
	case slices.Equal(args, []string{"__init"}):
		err = becomeInit()
	case startsGuest(args):
		err = run(args)
	default: // libvirt asks what QEMU is able to do
		err = become(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "emulator:", err)
		os.Exit(1)
	}
}

func become(args []string) error {
	return fmt.Errorf("%s: %w", realQEMU, unix.Exec(realQEMU, append([]string{realQEMU}, args...), os.Environ()))
}

// startsGuest reports whether libvirt starts a domain: only then there is a name of a guest.
func startsGuest(args []string) bool {
	i := slices.Index(args, "-name")
	return i >= 0 && i+1 < len(args) && strings.HasPrefix(args[i+1], "guest=")
}
