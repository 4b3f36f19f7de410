//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guest is where the files of one guest are, below a directory of its host's own.
type guest string

func guestOf(uuid string) guest { return guest("/run/libvirt/guests/" + uuid) }

func (g guest) path(names ...string) string {
	return filepath.Join(append([]string{string(g)}, names...)...)
}

// run starts the supervisor of a guest and becomes the QEMU that stands in for it, which keeps the process id that
// libvirt knows.
func run(args []string) error {
	m, args, err := parse(args)
	if err != nil {
		return err
	}
	for i := range m.Adapters {
		if m.Adapters[i].Tap, err = tapName(m.Adapters[i].FD); err != nil {
			return err
		}
	}
	g := guestOf(m.UUID)
	if err := os.MkdirAll(string(g), 0o700); err != nil {
		return err
	}
	lock, err := g.lock()
	if err != nil {
		return err
	}
	spec, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := errors.Join(
		os.WriteFile(g.path("machine"), spec, 0o600),
		os.WriteFile(g.path("halt"), haltingBIOS(), 0o600),
		os.RemoveAll(g.path("monitor")),
	); err != nil {
		return err
	}
	if err := startSupervisor(g, m, lock); err != nil {
		return err
	}
	return become(append(args,
		"-bios", g.path("halt"), "-qmp", "unix:"+g.path("monitor")+",server=on,wait=off"))
}

func startSupervisor(g guest, m *machine, lock *os.File) error {
	spec, err := os.Open(g.path("machine"))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(g.path("log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	console := log
	if m.ConsoleFD >= 0 {
		console = os.NewFile(uintptr(m.ConsoleFD), "console")
		defer runtime.SetFinalizer(console, nil) // it stays open for QEMU
	}
	cmd := exec.CommandContext(context.Background(), self, "__supervise")
	cmd.Args[0] = "lab-guest" // so that it is not taken for a QEMU
	cmd.Stdin, cmd.Stdout, cmd.Stderr = spec, log, log
	cmd.ExtraFiles = []*os.File{lock, console} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: unix.CLONE_NEWNS}
	return cmd.Start()
}

// lock waits until nothing is left of the guest's last run: libvirt takes a VM for off as soon as QEMU has ended. The
// supervisor then writes out what the file system of the guest has in memory, which took more than a minute on a
// machine whose disk was busy.
func (g guest) lock() (*os.File, error) {
	f, err := os.OpenFile(g.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	within(5*time.Minute, func() bool {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		return !errors.Is(err, unix.EWOULDBLOCK)
	})
	if err != nil {
		return nil, fmt.Errorf("the guest's last run is not over: %w", err)
	}
	return f, nil
}

// within asks until the condition holds, and reports whether it did in time.
func within(limit time.Duration, cond func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !cond(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// haltingBIOS is 64 KiB of firmware whose first instruction, at the reset vector in the last 16 bytes, waits for an
// interrupt, with interrupts off.
func haltingBIOS() []byte {
	b := make([]byte, 64<<10)
	copy(b[len(b)-16:], []byte{0xfa, 0xf4, 0xeb, 0xfd}) // cli; hlt; jmp to hlt
	return b
}

func tapName(fd int) (string, error) {
	req, err := unix.NewIfreq("x")
	if err != nil {
		return "", err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, req); err != nil {
		return "", fmt.Errorf("adapter on file %d: %w", fd, err)
	}
	return req.Name(), nil
}
