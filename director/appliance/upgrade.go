package appliance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/signature"
)

// Change does what the inbox asks for: it writes the other root, or takes the kept one, saves the data, and restarts
// the VM. What happened is in the state, and an error too. It may be killed at any point: the next start settles it.
func (p Place) Change(ctx context.Context) error {
	data, err := os.OpenRoot(p.Data)
	if err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	defer data.Close()
	// The director may write there: no link of its leads out of the data disk.
	inbox, err := data.OpenRoot("director/" + rootdisk.Inbox)
	if err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	defer inbox.Close()
	text, err := readSmall(inbox, rootdisk.RequestFile)
	// Gone first: a request that ends in a crash is not tried again.
	if err := errors.Join(err, inbox.Remove(rootdisk.RequestFile)); err != nil {
		return director.Errorf(director.KindInternal, opRoots, "the request cannot be read: %w", err)
	}
	r, err := rootdisk.ParseRequest(text)
	if err != nil {
		return err
	}
	boot, err := booted()
	if err != nil {
		return err
	}
	c := &change{Place: p, ctx: ctx, request: r}
	if c.state, err = p.Roots(); err != nil {
		return err
	}
	if stage := c.state.Change.Stage; !stage.Ended() && (stage == rootdisk.Trying || boot.Trial) {
		return director.Errorf(director.KindConflict, opRoots, "the last change of the root has not ended yet")
	}
	if c.state.Running, err = p.roots().runningRoot(boot); err != nil {
		return err
	}
	c.state.Change = rootdisk.Change{
		Verb: r.Verb, Task: r.Task, By: r.By, Stage: rootdisk.Checking, From: c.state.Running,
		Began: time.Now().UTC(), Within: r.Within,
	}
	if err := c.save(); err != nil {
		return err
	}
	if err = c.run(inbox); err == nil {
		return nil
	}
	return c.fail(err)
}

// Abandon ends a change whose process has died before it told the loader, and lets the director work again. Otherwise
// it does nothing.
func (p Place) Abandon(ctx context.Context) error {
	s, err := p.Roots()
	if err != nil || s.Change.Stage.Ended() || s.Change.Stage == rootdisk.Trying {
		return err
	}
	s.Change.Stage, s.Change.Ended = rootdisk.Failed, time.Now().UTC()
	s.Change.Reason, s.Change.Hint = "it was interrupted; nothing has changed", "begin it again"
	return errors.Join(p.roots().saveRoots(s), resume(ctx))
}

// resume has the director work again, and be one that may have the address of its group. Without a group, keepalived
// does not start.
func resume(ctx context.Context) error {
	_, err := command(ctx, nil, "systemctl", "restart", "--no-block", "director")
	_, kerr := command(ctx, nil, "systemctl", "start", "--no-block", "keepalived")
	return errors.Join(err, kerr)
}

// change is one that is being made.
type change struct {
	Place
	ctx     context.Context
	request rootdisk.Request
	state   rootdisk.State
	stopped bool   // the director was stopped for it
	told    string // the loader's partition, once the loader may have been told to start the other root
}

func (c *change) save() error { return c.roots().saveRoots(c.state) }

func (c *change) stage(s rootdisk.Stage) error {
	c.state.Change.Stage = s
	return c.save()
}

// fail writes down why the change ended, and lets the director work again.
func (c *change) fail(cause error) error {
	ch := &c.state.Change
	ch.Stage, ch.Ended = rootdisk.Failed, time.Now().UTC()
	ch.Reason, ch.Hint = director.MessageOf(cause), director.HintOf(cause)
	for _, f := range director.FieldsOf(cause) {
		ch.Reason += "; " + f.String()
	}
	errs := []error{cause}
	if c.told != "" {
		errs = append(errs, setLoader(c.told, loaderBlock{slot: ch.From.Slot}))
	}
	errs = append(errs, c.save())
	if c.stopped {
		errs = append(errs, resume(context.WithoutCancel(c.ctx)))
	}
	return errors.Join(errs...)
}

func (c *change) run(inbox *os.Root) error {
	parts, err := partitions()
	if err != nil {
		return err
	}
	if c.request.Verb == rootdisk.VerbRollback {
		err = c.takeKept()
	} else {
		err = c.write(inbox, parts)
	}
	if err != nil {
		return err
	}
	return c.restart(parts)
}

// takeKept prepares the start of the root in the other slot.
func (c *change) takeKept() error {
	from := c.state.Change.From
	kept, err := keptRoot(c.ctx, from.Slot.Other())
	if err != nil {
		return err
	}
	if kept == nil {
		return director.Errorf(director.KindConflict, opRoots, "no former root is kept").
			WithHint("there is one after an upgrade")
	}
	c.state.Change.To = *kept
	if kept.Schema >= from.Schema {
		return nil // it knows the database as it is
	}
	server, err := c.roots().onServer()
	if err != nil {
		return err
	}
	if server {
		return director.Errorf(
			director.KindConflict, opRoots, "version %s does not know the database, which is on a server", kept.Version,
		).WithHint("restore the database from a backup from before the upgrade, and replace the root disk")
	}
	s, err := c.roots().saved(leaving(kept.Slot))
	if err == nil && s.Root != kept.Root {
		err = director.Errorf(director.KindConflict, opRoots, "the saved data is of version %s", s.Version)
	}
	if err != nil {
		return err
	}
	if !c.request.LoseChanges {
		return director.Errorf(
			director.KindConflict, opRoots,
			"version %s does not know the database; the data of %s would be restored, and what has changed since be "+
				"lost",
			kept.Version, s.At.Format(time.RFC3339),
		).WithHint("agree to it: directorctl appliance rollback --lose-changes")
	}
	c.state.Change.Restores = true
	return nil
}

// write puts the root of the upgrade into the other slot.
func (c *change) write(inbox *os.Root, parts map[int]string) error {
	f, err := inbox.OpenFile(rootdisk.UploadFile, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return director.Errorf(director.KindInvalid, opRoots, "the upgrade cannot be read: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return director.Errorf(director.KindInvalid, opRoots, "the upgrade is no file")
	}
	keys, err := c.roots().trusted()
	if err != nil {
		return err
	}
	a, err := rootdisk.Open(f, keys)
	if err != nil {
		return err
	}
	ch := &c.state.Change
	ch.To = rootdisk.Held{Slot: ch.From.Slot.Other(), Root: a.Manifest.Root}
	if err := rootdisk.Newer(ch.From.Root, ch.To.Root); err != nil {
		return err
	}
	server, err := c.roots().onServer()
	if err != nil {
		return err
	}
	if server && ch.To.Schema > ch.From.Schema {
		return director.Errorf(
			director.KindConflict, opRoots,
			"version %s changes the database, which is on a server: it could not be restored if the upgrade failed",
			ch.To.Version,
		).WithHint("back up the database, and replace the root disk: see the page on the appliance")
	}
	if err := c.roots().roomFor(); err != nil { // before anything is written
		return err
	}
	c.state.Kept = nil
	ch.Total = a.Manifest.Size
	if err := c.stage(rootdisk.Writing); err != nil {
		return err
	}
	if err := c.writeRoot(a, parts[numberOf(ch.To.Slot)]); err != nil {
		return err
	}
	return inbox.Remove(rootdisk.UploadFile)
}

// trusted returns the keys that may sign upgrades: those of the administrator's own settings, which only root writes.
func (p rootDisks) trusted() (signature.Keyring, error) {
	settings, err := p.ownSettings()
	if err != nil {
		return nil, err
	}
	listed, _ := settings["trustedKeys"].([]any)
	var entries []string
	for _, e := range listed {
		text, _ := e.(string)
		entries = append(entries, text)
	}
	keys, wrong := signature.ReadKeys("trustedKeys", entries)
	return keys, director.Invalid(opRoots, p.data(OwnConfig)+" is wrong", wrong)
}

// heldBack is how much of a root's beginning is written last: until then nothing takes the partition for a root.
const heldBack = 1 << 20

// lateStart writes all but the beginning, which it keeps.
type lateStart struct {
	to    io.WriterAt
	at    int64
	first []byte
}

func (l *lateStart) Write(b []byte) (int, error) {
	written := len(b)
	if missing := heldBack - len(l.first); missing > 0 {
		n := min(missing, len(b))
		l.first = append(l.first, b[:n]...)
		l.at += int64(n)
		b = b[n:]
	}
	if len(b) == 0 {
		return written, nil
	}
	n, err := l.to.WriteAt(b, l.at)
	l.at += int64(n)
	return written - len(b) + n, err
}

// writeRoot writes the root to the device and reads it back.
func (c *change) writeRoot(a *rootdisk.Archive, device string) (err error) {
	d, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL, 0) // refused while it is mounted
	if err != nil {
		return director.Errorf(director.KindInternal, opRoots, "the other root %s cannot be written: %w", device, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	size, err := d.Seek(0, io.SeekEnd)
	if err == nil && size < a.Manifest.Size {
		return director.Errorf(
			director.KindConflict,
			opRoots,
			"the new root has %d MiB, and its partition %d",
			a.Manifest.Size>>20,
			size>>20,
		).WithHint("replace the root disk by the new image instead")
	}
	if err == nil {
		_, err = d.WriteAt(make([]byte, heldBack), 0)
	}
	if err = errors.Join(err, d.Sync()); err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%s cannot be written: %w", device, err)
	}
	w := &lateStart{to: d}
	last := time.Now()
	err = a.CopyTo(c.ctx, w, func(done int64) {
		if time.Since(last) > 2*time.Second {
			last, c.state.Change.Done = time.Now(), done
			_ = c.save() // for people; the next one comes
		}
	})
	if err != nil {
		return err
	}
	_, err = d.WriteAt(w.first, 0)
	if err = errors.Join(err, d.Sync()); err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%s cannot be written: %w", device, err)
	}
	c.state.Change.Done = a.Manifest.Size
	return readBack(d, a.Manifest)
}

// readBack returns nil if the device has the root, read from the disk.
func readBack(d *os.File, m rootdisk.Manifest) error {
	if err := unix.Fadvise(int(d.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(d, 0, m.Size)); err != nil {
		return director.Errorf(director.KindInternal, opRoots, "the new root cannot be read back: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != m.SHA256 {
		return director.Errorf(
			director.KindInternal,
			opRoots,
			"the disk has not kept what was written: SHA-256 %s instead of %s",
			got,
			m.SHA256,
		).WithHint("look at the disk of the VM")
	}
	return nil
}

// restart gives the group's address away, lets plans come to the ends of their steps, stops the director, saves the
// data and starts the other root once.
func (c *change) restart(parts map[int]string) error {
	if err := c.stage(rootdisk.Draining); err != nil {
		return err
	}
	c.stopped = true
	// Another member of the group takes the address at once, and not when it finds that this one takes no changes.
	if _, err := command(c.ctx, nil, "systemctl", "stop", "keepalived"); err != nil {
		return err
	}
	if err := c.roots().drain(c.ctx, time.Duration(c.request.Drain)*time.Second); err != nil {
		return err
	}
	if _, err := command(c.ctx, nil, "systemctl", "stop", "director"); err != nil {
		return err
	}
	if err := c.stage(rootdisk.Saving); err != nil {
		return err
	}
	from := c.state.Change.From
	if err := c.Place.roots().save(leaving(from.Slot), from.Root, time.Now()); err != nil {
		return err
	}
	if err := c.stage(rootdisk.Trying); err != nil {
		return err
	}
	c.told = parts[partitionLoader]
	err := setLoader(c.told, loaderBlock{
		slot: c.state.Change.From.Slot, try: c.state.Change.To.Slot, within: c.request.Within,
	})
	if err != nil {
		return err
	}
	_, err = command(c.ctx, nil, "systemctl", "reboot")
	return err
}

// readSmall reads a file of the inbox, which another user writes.
func readSmall(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > mostSeed {
		return nil, fmt.Errorf("%s is no file, or a long one: %w", name, fs.ErrInvalid)
	}
	return io.ReadAll(io.LimitReader(f, mostSeed))
}
