package ansible

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// identity names a process for good: a process id alone may belong to another process by the time it is read again.
type identity struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"`   // in clock ticks since the machine's boot
	BootID string `json:"boot_id"` // of the boot that Start counts from
}

// identify returns the identity of the process pid.
func identify(pid int) (identity, error) {
	s, err := readStat(pid)
	if err != nil {
		return identity{}, err
	}
	return identity{PID: pid, Start: s.start, BootID: bootID()}, nil
}

// alive tells whether the very process still runs; one that has ended and waits to be reaped does not.
func (i identity) alive() bool {
	if i.PID <= 0 || i.BootID != bootID() {
		return false
	}
	s, err := readStat(i.PID)
	return err == nil && s.start == i.Start && !s.ended()
}

func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(id))
}

// stat is what we read of /proc/<pid>/stat.
type stat struct {
	state byte
	group int
	flags uint64
	start uint64
}

func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' }

// kernel reports whether it is a thread of the kernel: PF_KTHREAD of include/linux/sched.h.
func (s stat) kernel() bool { return s.flags&0x00200000 != 0 }

// statSize is more than the kernel writes: a command of 64 bytes at most, and 51 numbers.
const statSize = 2048

// readStat is called for every process of the machine whenever a run ends, so it makes three system calls and no more.
func readStat(pid int) (stat, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return stat{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [statSize]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return stat{}, err
	}
	// The second field is the command in parentheses and may hold anything, also parentheses.
	raw := buf[:n]
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	s := stat{state: fields[0][0]}
	if s.group, err = strconv.Atoi(fields[2]); err != nil {
		return stat{}, err
	}
	if s.flags, err = strconv.ParseUint(fields[6], 10, 64); err != nil {
		return stat{}, err
	}
	s.start, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err
}

// belonging selects processes of one run.
type belonging struct {
	marker  string   // an entry of their environment, which descendants inherit
	control string   // the directory of ssh's control sockets, which the title of a master connection names
	leader  identity // of the process group; the zero value for none
}

// matches tells whether the process is one of the run's. Its answer counts only as long as the process is the same one:
// the caller holds it by a process file descriptor. What started before since is none of the run's. early says that the
// process is in an exec, and has no environment yet by which it would be known.
func (b belonging) matches(pid int, leads bool, since uint64) (is, early bool) {
	s, err := readStat(pid)
	if err != nil || s.ended() || s.start < since {
		return false, false
	}
	if leads && s.group == b.leader.PID {
		return true, false
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil && b.marker != "" {
		for e := range bytes.SplitSeq(env, []byte{0}) {
			if string(e) == b.marker {
				return true, false
			}
		}
	}
	early = err == nil && len(env) == 0 && !s.kernel()
	if b.control == "" && !early {
		return false, false
	}
	// A master connection has overwritten its environment with its title. In an exec, a process gets environment and
	// title together: get_mm_cmdline in fs/proc/base.c looks at env_end for both.
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	is = err == nil && b.control != "" && bytes.HasPrefix(title, []byte("ssh: "+b.control+"/"))
	return is, early && err == nil && len(title) == 0
}

// leads reports whether the leader's id still identifies our group: it does while that process exists, also when it has
// ended and was not reaped.
func (b belonging) leads() bool {
	if b.leader.PID <= 0 || b.leader.BootID != bootID() {
		return false
	}
	s, err := readStat(b.leader.PID)
	return err == nil && s.start == b.leader.Start
}

// since is when the first of the run's processes started, in clock ticks since the boot; 0 if that is not known.
func (b belonging) since() uint64 {
	if b.leader.PID <= 0 || b.leader.BootID != bootID() {
		return 0
	}
	return b.leader.Start
}

// find returns the processes that belong, each held so that a signal cannot reach another one that took its id, and
// whether it is too early to know that of some process.
func (b belonging) find() (found []*os.Process, early bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	leads, since := b.leads(), b.since()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		is, soon := b.matches(pid, leads, since)
		early = early || soon
		if !is {
			continue
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if is, _ := b.matches(pid, leads, since); is { // again, now that it is held
			found = append(found, p)
		} else {
			_ = p.Release()
		}
	}
	return found, early
}

var errSurvived = errors.New("some processes do not end")

// end ends the processes that belong: politely first, for grace, then by force. It returns how many there were.
func (b belonging) end(ctx context.Context, grace time.Duration) (int, error) {
	const (
		between = 5 * time.Millisecond
		force   = 5 * time.Second
	)
	seen := map[int]bool{}
	began, signal := time.Now(), syscall.SIGTERM
	for quiet := 0; ; {
		procs, early := b.find()
		waited := time.Since(began)
		if len(procs) > 0 || early && waited <= grace+force {
			quiet = 0
		} else if quiet++; quiet > 2 || len(seen) == 0 {
			return len(seen), nil // one look misses what is forked during it
		}
		if waited >= grace {
			signal = syscall.SIGKILL
		}
		for _, p := range procs {
			if !seen[p.Pid] || signal == syscall.SIGKILL {
				_ = p.Signal(signal)
			}
			seen[p.Pid] = true
			_ = p.Release()
		}
		if waited > grace+force && len(procs) > 0 {
			return len(seen), errSurvived
		}
		select {
		case <-ctx.Done():
			// There is no time left to ask: kill what remains.
			if signal == syscall.SIGKILL {
				return len(seen), ctx.Err()
			}
			grace = 0
			ctx = context.WithoutCancel(ctx)
		case <-time.After(between):
		}
	}
}
