//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// started is what libvirt 9.0 starts a VM of the director's with, less the controllers.
var started = []string{
	"-name", "guest=demo-worker-1,debug-threads=on", "-S",
	"-machine", "pc-q35-7.2,usb=off,dump-guest-core=off,memory-backend=pc.ram", "-accel", "tcg", "-m", "4096",
	"-uuid", "696cd0b8-e1bf-5af2-92d6-39fab980f35a", "-no-user-config",
	"-chardev", "socket,id=charmonitor,fd=31,server=on,wait=off",
	"-blockdev",
	`{"driver":"file","filename":"/images/base.qcow2","node-name":"libvirt-4-storage","auto-read-only":true,` +
		`"discard":"unmap"}`,
	"-blockdev",
	`{"node-name":"libvirt-4-format","read-only":true,"driver":"qcow2","file":"libvirt-4-storage","backing":null}`,
	"-blockdev",
	`{"driver":"file","filename":"/images/root.qcow2","node-name":"libvirt-3-storage","auto-read-only":true}`,
	"-blockdev",
	`{"node-name":"libvirt-3-format","read-only":false,"driver":"qcow2","file":"libvirt-3-storage",` +
		`"backing":"libvirt-4-format"}`,
	"-device",
	`{"driver":"virtio-blk-pci","drive":"libvirt-3-format","id":"virtio-disk0","bootindex":1,"serial":"kaas-root"}`,
	"-blockdev", `{"driver":"file","filename":"/images/data.qcow2","node-name":"libvirt-2-storage"}`,
	"-blockdev",
	`{"node-name":"libvirt-2-format","read-only":false,"driver":"qcow2","file":"libvirt-2-storage","backing":null}`,
	"-device", `{"driver":"virtio-blk-pci","drive":"libvirt-2-format","id":"virtio-disk1","serial":"kaas-data"}`,
	"-blockdev", `{"driver":"file","filename":"/images/seed.iso","node-name":"libvirt-1-storage"}`,
	"-blockdev", `{"node-name":"libvirt-1-format","read-only":true,"driver":"raw","file":"libvirt-1-storage"}`,
	"-device", `{"driver":"virtio-blk-pci","drive":"libvirt-1-format","id":"virtio-disk2","serial":"kaas-seed"}`,
	"-netdev", `{"type":"tap","fd":"32","id":"hostnet0"}`,
	"-device", `{"driver":"virtio-net-pci","netdev":"hostnet0","id":"net0","mac":"52:54:00:4e:a2:d2"}`,
	"-add-fd", "set=0,fd=26,opaque=serial0-log",
}

func TestParse(t *testing.T) {
	m, rest, err := parse(started)
	if err != nil {
		t.Fatal(err)
	}
	want := &machine{
		Name: "demo-worker-1", UUID: "696cd0b8-e1bf-5af2-92d6-39fab980f35a", Memory: 4096, ConsoleFD: 26,
		Nodes: []string{
			started[15], started[17], started[19], started[21], started[25], started[27], started[31], started[33],
		},
		Disks: []disk{
			{Node: "libvirt-3-format", Serial: "kaas-root", File: "/images/root.qcow2", Format: "qcow2"},
			{Node: "libvirt-2-format", Serial: "kaas-data", File: "/images/data.qcow2", Format: "qcow2"},
			{Node: "libvirt-1-format", Serial: "kaas-seed", File: "/images/seed.iso", Format: "raw", RO: true},
		},
		Adapters: []adapter{{FD: 32, MAC: "52:54:00:4e:a2:d2"}},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("the machine (-want +got):\n%s", diff)
	}
	if seed, found := m.seed(); !found || seed.File != "/images/seed.iso" {
		t.Errorf("the seed is %+v", seed)
	}
	if got := m.root().Serial; got != "kaas-root" {
		t.Errorf("the guest would start from %s", got)
	}
	// QEMU has the same machine, and none of its disks.
	if len(rest) != len(started) {
		t.Fatalf("QEMU gets %d words, want %d", len(rest), len(started))
	}
	if text := strings.Join(rest, " "); strings.Contains(text, "/images/") || strings.Count(text, "null-co") != 8 {
		t.Errorf("QEMU would open a disk: %s", text)
	}
	for i, word := range started {
		if !strings.Contains(word, "node-name") && rest[i] != word {
			t.Errorf("QEMU gets %s, want %s", rest[i], word)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, change := range map[string]func([]string) []string{
		"a user-mode network": func(a []string) []string {
			return append(a, "-netdev", `{"type":"user","id":"hostnet1"}`)
		},
		"an adapter without a network": func(a []string) []string {
			return append(a, "-device", `{"driver":"virtio-net-pci","netdev":"other","mac":"52:54:00:4e:a2:d3"}`)
		},
		"a disk without a block device": func(a []string) []string {
			return append(a, "-device", `{"driver":"virtio-blk-pci","drive":"other"}`)
		},
		"no disk": func(a []string) []string { return a[:14] },
		"a block device not in JSON": func(a []string) []string {
			return append(a, "-blockdev", "driver=file,filename=/x,node-name=y")
		},
	} {
		if m, _, err := parse(change(slices.Clone(started))); err == nil {
			t.Errorf("%s is taken: %+v", name, m)
		}
	}
}

func TestOnlyGuestsAreStarted(t *testing.T) {
	if !startsGuest(started) {
		t.Error("a VM's start is not known as one")
	}
	if startsGuest([]string{
		"-S", "-no-user-config", "-nodefaults", "-nographic", "-machine", "none,accel=kvm:tcg", "-daemonize",
	}) {
		t.Error("a question for abilities is taken for a VM's start")
	}
}
