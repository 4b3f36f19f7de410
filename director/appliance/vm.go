package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
)

// MountData finds the data disk, formats it if it is blank, and mounts it. It is idempotent.
func (p Place) MountData(ctx context.Context) error {
	lock, err := os.OpenFile("/run/director-disk.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return director.Errorf(director.KindInternal, opDisk, "%w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // both consoles may be asked to try again
		return director.Errorf(director.KindInternal, opDisk, "%w", err)
	}
	if mounted, err := isMount(p.Data); err != nil || mounted {
		return err
	}
	disks, err := Disks(ctx)
	if err != nil {
		return err
	}
	disk, format, err := Choose(disks)
	if err != nil {
		return err
	}
	if format {
		if err := Format(ctx, disk); err != nil {
			return err
		}
	}
	if err := repair(ctx, disk.Path); err != nil {
		return err
	}
	if err := unix.Mount(disk.Path, p.Data, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, ""); err != nil {
		return director.Errorf(director.KindInternal, opDisk, "%s cannot be mounted: %w", disk.Path, err)
	}
	boot, err := booted()
	if err == nil {
		err = p.roots().settle(boot, time.Now())
	}
	if err != nil {
		return errors.Join(err, unix.Unmount(p.Data, 0))
	}
	name := ""
	if given, err := ReadGiven(ctx); err == nil { // what is wrong with it is said by the setup
		name = strings.ToLower(strings.TrimSpace(given.Properties["hostname"]))
	}
	if err := Accept(p.Data, name); err != nil {
		return errors.Join(err, unix.Unmount(p.Data, 0))
	}
	// The disk may have become larger.
	size := fmt.Sprintf("%dk", (disk.Size-reservedEnd)>>10)
	if _, err := command(ctx, nil, "resize2fs", disk.Path, size); err != nil {
		return err
	}
	return p.journal()
}

// repair has e2fsck mend what it can without a question.
func repair(ctx context.Context, path string) error {
	_, err := command(ctx, nil, "e2fsck", "-p", path)
	if exit, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok && exit.ExitCode()&^3 == 0 { // 1 and 2: mended
		return nil
	}
	if err != nil {
		return director.Errorf(director.KindInternal, opDisk, "the data disk is damaged: %w", err).
			WithHint("start with director.root=rw and run e2fsck %s, or restore the disk", path)
	}
	return nil
}

// journal has the journal, and the machine's id, on the data disk.
func (p Place) journal() error {
	id, err := os.ReadFile("/etc/machine-id")
	if err == nil {
		err = writeFile(p.data("machine-id"), id, 0o444)
	}
	dir, at := p.data("log/journal"), "/var/log/journal"
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(at, 0o755))
	}
	if err == nil {
		err = unix.Mount(dir, at, "", unix.MS_BIND, "")
	}
	if err != nil {
		return director.Errorf(director.KindInternal, opDisk, "the journal cannot be on the data disk: %w", err)
	}
	return nil
}

func isMount(path string) (bool, error) {
	var here, above unix.Stat_t
	if err := errors.Join(
		os.MkdirAll(path, 0o755), unix.Stat(path, &here), unix.Stat(filepath.Dir(path), &above),
	); err != nil {
		return false, director.Errorf(director.KindInternal, opDisk, "%s: %w", path, err)
	}
	return here.Dev != above.Dev, nil
}

// Activate writes what the services read, and sets what is not in files. restart has the services take it at once; at
// the start of the VM they come later. It is idempotent.
func (p Place) Activate(ctx context.Context, s Setup, restart bool) error {
	if err := p.Write(ctx, s, Addresses()); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return director.Errorf(director.KindInternal, opApply, "the host name cannot be set: %w", err)
	}
	hash := s.ConsoleHash
	if hash == "" {
		hash = "!" // no password matches it
	}
	if _, err := command(ctx, []byte("admin:"+hash+"\n"), "chpasswd", "--encrypted"); err != nil {
		return err
	}
	if !restart {
		return nil
	}
	logs := p.WriteLogs(s)
	// Without a group, keepalived has no configuration and does not start; without a log server, director-logs.
	for _, args := range [][]string{
		{"restart", "systemd-networkd", "chrony"},
		{"start", "--no-block", "ssh"},
		{"restart", "--no-block", "keepalived", "director-logs"},
		{"restart", "--no-block", "director"},
	} {
		if _, err := command(ctx, nil, "systemctl", args...); err != nil {
			return errors.Join(logs, err)
		}
	}
	return logs
}

// SetUp returns the setup of the data disk; before the first one, it makes it of what was given from outside. given is
// what was found then. Errors: not_found if nothing was given either; invalid.
func (p Place) SetUp(ctx context.Context) (s Setup, given Given, err error) {
	s, missing := p.Load()
	if director.KindOf(missing) != director.KindNotFound {
		return s, given, missing
	}
	if given, err = ReadGiven(ctx); err != nil {
		return s, given, err
	}
	if given.Source == "" {
		return s, given, missing
	}
	if s, err = Read(given.Properties); err != nil {
		return s, given, err
	}
	return s, given, p.Save(s)
}

// Config writes the director's configuration again, once the VM has an address: with DHCP it is known late. Before the
// first start of the director it waits for the time, too, but not for long.
func (p Place) Config(ctx context.Context, wait time.Duration) error {
	s, err := p.Load()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	addresses := Addresses()
	for len(addresses) == 0 {
		select {
		case <-ctx.Done():
			return director.Errorf(director.KindUnavailable, opApply, "the VM has no address after %s", wait).
				WithHint("look for the DHCP server of its network, or set an address: director setup edit")
		case <-tick.C:
			addresses = Addresses()
		}
	}
	config, err := p.config(s, addresses)
	if err != nil {
		return err
	}
	if err := settleClock(ctx, p, s); err != nil {
		fmt.Fprintf(os.Stderr, "director: %s\n", director.MessageOf(err))
	}
	return writeFile(p.etc("director/director.yaml"), []byte(config), 0o644)
}

// StopDirector stops the director of this appliance, and returns when it has ended.
func StopDirector(ctx context.Context) error {
	_, err := command(ctx, nil, "systemctl", "stop", "director")
	return err
}

// StartDirector starts it, and does not wait for it.
func StartDirector(ctx context.Context) error {
	_, err := command(ctx, nil, "systemctl", "start", "--no-block", "director")
	return err
}
