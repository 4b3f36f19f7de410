package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// resident returns the memory of the process that is resident now, and the most that ever was, in MiB.
func resident(pid int) (now, peak int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int{"VmRSS": &now, "VmHWM": &peak}[name]
		if into == nil {
			continue
		}
		kib, err := strconv.Atoi(strings.Fields(value)[0])
		if err != nil {
			return 0, 0, err
		}
		*into = kib >> 10
	}
	return now, peak, nil
}

// ticks is how many parts the kernel divides a second of CPU time into, for user programs on every architecture of
// today.
const ticks = 100

// cpu returns the CPU time that the process has used.
func cpu(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third field on
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("/proc/%d/stat: %s and %s are no times", pid, f[11], f[12])
	}
	return time.Duration(user+system) * time.Second / ticks, nil
}

// load returns what else the machine had to do, for the reader of the numbers.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
