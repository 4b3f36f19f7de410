package appliance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
)

// Boot is what the loader has started.
type Boot struct {
	Slot   rootdisk.Slot
	Trial  bool // the root is tried: the former one is started next unless it becomes healthy
	Within int  // seconds that it has for that
}

// rootDisks upgrade the root disk, and roll it back.
type rootDisks struct{ Place }

func (p Place) roots() rootDisks { return rootDisks{p} }

// ParseBoot reads the kernel's command line.
func ParseBoot(line string) Boot {
	b := Boot{Slot: rootdisk.A}
	for _, word := range strings.Fields(line) {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case key == "director.slot" && value == string(rootdisk.B):
			b.Slot = rootdisk.B
		case key == "director.trial":
			b.Trial = true
			if b.Within, _ = strconv.Atoi(value); b.Within < rootdisk.LeastWithin {
				b.Within = rootdisk.UsualWithin
			}
		}
	}
	return b
}

func booted() (Boot, error) {
	text, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return Boot{}, director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	return ParseBoot(string(text)), nil
}

// Numbers of the partitions that images/director/disk.sh makes.
const (
	partitionLoader = 3
	partitionA      = 4
	partitionB      = 5
)

func numberOf(s rootdisk.Slot) int {
	if s == rootdisk.B {
		return partitionB
	}
	return partitionA
}

// rootAt is where the initramfs leaves the running root without what is laid over it.
const rootAt = "/run/director-root/disk"

// partitions returns the devices of the disk that the running root is on, by their numbers.
func partitions() (map[int]string, error) {
	fail := func(format string, args ...any) (map[int]string, error) {
		return nil, director.Errorf(director.KindInternal, opRoots, format, args...)
	}
	var info unix.Stat_t
	if err := unix.Stat(rootAt, &info); err != nil {
		return fail("the root disk is not mounted at %s: %w", rootAt, err)
	}
	device := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(info.Dev), unix.Minor(info.Dev))
	own, err := filepath.EvalSymlinks(device)
	if err != nil {
		return fail("the root disk: %w", err)
	}
	all, err := filepath.Glob(filepath.Dir(own) + "/*/partition")
	if err != nil {
		return fail("the root disk: %w", err)
	}
	found := map[int]string{}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			return fail("the root disk: %w", err)
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			found[n] = "/dev/" + filepath.Base(filepath.Dir(file))
		}
	}
	for _, n := range []int{partitionLoader, partitionA, partitionB} {
		if found[n] == "" {
			return fail("the root disk has no partition %d: it was made by an older image", n)
		}
	}
	return found, nil
}

// rootFile says which director a root has.
const rootFile = "usr/lib/director/appliance"

// runningRoot returns the root that runs.
func (p rootDisks) runningRoot(b Boot) (rootdisk.Held, error) {
	text, err := os.ReadFile(filepath.Join(p.Root, "/", rootFile))
	if err != nil {
		return rootdisk.Held{}, director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	r, err := rootdisk.ParseRoot(text)
	return rootdisk.Held{Slot: b.Slot, Root: r}, err
}

// keptRoot returns the root in the other slot; nil if there is none that could be started.
func keptRoot(ctx context.Context, slot rootdisk.Slot) (kept *rootdisk.Held, err error) {
	parts, err := partitions()
	if err != nil {
		return nil, err
	}
	device := parts[numberOf(slot)]
	tags, err := probe(ctx, device)
	if err != nil || tags["LABEL"] != labelRoot {
		return nil, err
	}
	dir, err := os.MkdirTemp("/run", "director-kept-")
	if err != nil {
		return nil, director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	flags := uintptr(unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount(device, dir, "ext4", flags, ""); err != nil {
		return nil, director.Errorf(director.KindInternal, opRoots, "the kept root on %s: %w", device, err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, 0)) }()
	text, err := os.ReadFile(filepath.Join(dir, rootFile))
	if err != nil {
		return nil, director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	r, err := rootdisk.ParseRoot(text)
	if err != nil {
		return nil, err
	}
	return &rootdisk.Held{Slot: slot, Root: r}, nil
}

// upgradeDir is the directory of upgrades on the data disk.
const upgradeDir = "upgrade"

func (p rootDisks) upgrade(name string) string { return p.data(filepath.Join(upgradeDir, name)) }

// Roots returns how the roots are. Before the first start with this it is empty.
func (p Place) Roots() (rootdisk.State, error) {
	var s rootdisk.State
	text, err := os.ReadFile(p.roots().upgrade(rootdisk.StateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, director.Errorf(director.KindInternal, opRoots, "the state of upgrades cannot be read: %w", err)
	}
	return s, nil
}

func (p rootDisks) saveRoots(s rootdisk.State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	return writeFile(p.upgrade(rootdisk.StateFile), append(text, '\n'), 0o644)
}
