//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// powerOff is what systemd takes for the power button (systemd(1): SIGRTMIN+4).
const powerOff = syscall.Signal(34 + 4)

// supervise runs a guest for as long as the QEMU that stands in for it, whose child this is.
func supervise() (err error) {
	runtime.LockOSThread() // what is started has to end with this process, and does so with the thread that started it
	qemu := os.Getppid()
	var m machine
	if err := json.NewDecoder(os.Stdin).Decode(&m); err != nil {
		return err
	}
	g := guestOf(m.UUID)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	console, err := newConsole(os.NewFile(4, "console"))
	if err != nil {
		return err
	}
	mon, err := dial(g.path("monitor"), qemu)
	if err != nil {
		return err
	}
	if err := mon.tell("query-status"); err != nil {
		return err
	}
	box, err := newBox(g, &m)
	defer func() { err = errors.Join(err, box.remove()) }()
	if err != nil {
		_ = mon.tell("quit")
		return err
	}
	r := &runner{m: &m, mon: mon, box: box, console: console, ended: make(chan syscall.WaitStatus, 1)}
	defer r.stop()
	return r.run()
}

// runner starts and stops a guest as the monitor of its QEMU says.
type runner struct {
	m       *machine
	mon     *monitor
	box     *box
	console string
	started *exec.Cmd // nil while no guest runs
	ended   chan syscall.WaitStatus
}

func (r *runner) run() error {
	for {
		select {
		case event, open := <-r.mon.events:
			log.Printf("%s: %s", r.m.Name, event)
			switch {
			case !open || event == "SHUTDOWN":
				return nil
			case event == "RESUME" && r.started == nil, event == "RESET":
				r.stop()
				if err := r.start(); err != nil {
					return err
				}
			case event == "POWERDOWN" && r.started != nil:
				_ = r.started.Process.Signal(powerOff)
			}
		case status := <-r.ended:
			r.started = nil
			// reboot(2): the init of a PID namespace ends so when it restarts, and by SIGINT when it switches off
			if status.Signaled() && status.Signal() == syscall.SIGHUP {
				if err := r.start(); err != nil {
					return err
				}
				continue
			}
			log.Printf(
				"%s: the guest has ended: exit code %d, signal %d", r.m.Name, status.ExitStatus(), status.Signal(),
			)
			if err := r.mon.tell("quit"); err != nil {
				return err
			}
		}
	}
}

// start starts the guest. It ends its QEMU on an error.
func (r *runner) start() error {
	cmd, err := r.box.start(r.console)
	r.started = cmd
	if err != nil {
		_ = r.mon.tell("quit")
		return err
	}
	go func() {
		_ = cmd.Wait() // how it ended is in the state
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		r.ended <- status
	}()
	return nil
}

func (r *runner) stop() {
	if r.started != nil {
		_ = r.started.Process.Kill()
		<-r.ended
		r.started = nil
	}
}

func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}

// command runs a program of the machine's and returns what it prints.
func command(name string, args ...string) (string, error) { return commandWith("", name, args...) }

func commandWith(input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), err
}
