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
	var (
		started *exec.Cmd
		ended   = make(chan syscall.WaitStatus, 1)
	)
	start := func() error {
		var err error
		if started, err = box.start(console); err == nil {
			cmd := started
			go func() {
				_ = cmd.Wait() // how it ended is in the state
				status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
				ended <- status
			}()
		}
		return err
	}
	stop := func() {
		if started != nil {
			_ = started.Process.Kill()
			<-ended
			started = nil
		}
	}
	defer stop()
	for {
		select {
		case event, open := <-mon.events:
			log.Printf("%s: %s", m.Name, event)
			switch {
			case !open || event == "SHUTDOWN":
				return nil
			case event == "RESUME" && started == nil, event == "RESET":
				stop()
				if err := start(); err != nil {
					_ = mon.tell("quit")
					return err
				}
			case event == "POWERDOWN" && started != nil:
				_ = started.Process.Signal(powerOff)
			}
		case status := <-ended:
			started = nil
			// reboot(2): the init of a PID namespace ends so when it restarts, and by SIGINT when it switches off
			if status.Signaled() && status.Signal() == syscall.SIGHUP {
				if err := start(); err != nil {
					_ = mon.tell("quit")
					return err
				}
				continue
			}
			log.Printf("%s: the guest has ended: exit code %d, signal %d", m.Name, status.ExitStatus(), status.Signal())
			if err := mon.tell("quit"); err != nil {
				return err
			}
		}
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
