//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"
)

// monitor is a second connection to QEMU's monitor, beside libvirt's.
type monitor struct {
	conn   net.Conn
	events chan string // closed when QEMU has ended
}

// dial waits for QEMU to listen. It fails when the process of QEMU is gone.
func dial(path string, qemu int) (*monitor, error) {
	var (
		dialer net.Dialer
		conn   net.Conn
		err    error
	)
	within(time.Minute, func() bool {
		conn, err = dialer.DialContext(context.Background(), "unix", path)
		return err == nil || os.Getppid() != qemu
	})
	if err != nil {
		return nil, fmt.Errorf("QEMU does not listen: %w", err)
	}
	m := &monitor{conn: conn, events: make(chan string, 16)}
	go m.read()
	return m, m.tell("qmp_capabilities")
}

func (m *monitor) tell(command string) error {
	_, err := fmt.Fprintf(m.conn, "{\"execute\":%q}\n", command)
	return err
}

func (m *monitor) read() {
	defer close(m.events)
	for d := json.NewDecoder(m.conn); ; {
		var v struct {
			Event  string `json:"event"`
			Return struct {
				Running bool `json:"running"`
			} `json:"return"`
		}
		if d.Decode(&v) != nil {
			return
		}
		switch {
		case v.Event != "":
			m.events <- v.Event
		case v.Return.Running: // libvirt was quicker than we
			m.events <- "RESUME"
		}
	}
}
