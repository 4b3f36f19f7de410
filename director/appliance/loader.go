package appliance

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
)

const opRoots = "appliance.roots"

// loaderBlock is GRUB's environment block: what the loader starts. images/director/loader.cfg reads it.
type loaderBlock struct {
	slot   rootdisk.Slot // is started
	try    rootdisk.Slot // is started once, instead; empty for none
	within int           // seconds that the tried root has to become healthy
}

// blockSize is that of the block: GRUB neither shortens nor lengthens it.
const blockSize = 1024

const blockHead = "# GRUB Environment Block\n"

// String returns the block. What counts is in its first sector, so that a power cut leaves the old or the new one.
func (e loaderBlock) String() string {
	within := ""
	if e.try != "" {
		within = strconv.Itoa(e.within)
	}
	text := fmt.Sprintf("%sslot=%s\ntry=%s\nwithin=%s\n", blockHead, e.slot, e.try, within)
	return text + strings.Repeat("#", blockSize-len(text))
}

// parseBlock reads a block. Like the loader, it takes root a from one that makes no sense.
func parseBlock(block []byte) loaderBlock {
	e := loaderBlock{slot: rootdisk.A}
	for line := range strings.Lines(string(block)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch {
		case key == "slot" && value == string(rootdisk.B):
			e.slot = rootdisk.B
		case key == "try" && (value == string(rootdisk.A) || value == string(rootdisk.B)):
			e.try = rootdisk.Slot(value)
		case key == "within":
			e.within, _ = strconv.Atoi(value)
		}
	}
	return e
}

// writeBlock replaces the block in its place: GRUB has to find it in the same sectors.
func writeBlock(path string, e loaderBlock) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	was := make([]byte, blockSize)
	if _, err = f.ReadAt(was, 0); err == nil && !bytes.HasPrefix(was, []byte(blockHead)) {
		err = errors.New("it is no environment block of GRUB")
	}
	if err == nil {
		_, err = f.WriteAt([]byte(e.String()), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// setLoader says what is started next. device is the loader's partition.
func setLoader(device string, e loaderBlock) (err error) {
	dir, err := os.MkdirTemp("/run", "director-loader-")
	if err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME)
	if err := unix.Mount(device, dir, "ext4", flags, ""); err != nil {
		return director.Errorf(director.KindInternal, opRoots, "the loader's partition %s: %w", device, err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, 0)) }()
	if err := writeBlock(dir+"/grub/grubenv", e); err != nil {
		return director.Errorf(director.KindInternal, opRoots, "the loader's environment cannot be written: %w", err)
	}
	return nil
}
