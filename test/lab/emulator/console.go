//go:build linux

package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// newConsole returns the name of a terminal: what is written to it is logged, for as long as this process runs.
func newConsole(log io.Writer) (string, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return "", err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("/dev/pts/%d", n)
	// Held open, so that the reader is not told of an end whenever nobody in the guest has it open.
	slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	go func() {
		_, _ = io.Copy(log, master)
		_ = slave.Close()
	}()
	return name, nil
}
