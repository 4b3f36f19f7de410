package appliance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/whole"
)

const opDisk = "appliance.disk"

// Labels of file systems and partitions.
const (
	labelData = "director-data" // of the data disk's file system
	labelRoot = "director-root" // of the root partition
)

// seedLabels are the labels of disks with what an administrator says at the first boot, in lower case.
var seedLabels = []string{"cidata", "config-2", "ovf env", "ovfenv", "vmware tools"}

// Content is what a disk is to the appliance.
type Content string

// The contents.
const (
	Blank   Content = "blank"   // only zeros were found
	Data    Content = "data"    // a director's data disk
	Begun   Content = "begun"   // its formatting was begun by an appliance and did not end
	System  Content = "system"  // a root disk of an appliance
	Seeds   Content = "seeds"   // a seed, or one that cannot be written
	Foreign Content = "foreign" // anything else
)

// Disk is a whole disk of the VM.
type Disk struct {
	Path    string
	Size    int64 // bytes
	Content Content
	Holds   string // of a foreign one, what is on it
}

// leastData is the smallest disk that is taken for data.
const leastData = 8 << 30

// Choose returns the data disk of the VM, and whether it has to be formatted first: that is when it is blank, and
// when formatting was interrupted. Errors: conflict, with what is on each disk and what to do.
func Choose(disks []Disk) (disk Disk, format bool, err error) {
	with := func(contents ...Content) []Disk {
		return slices.DeleteFunc(slices.Clone(disks), func(d Disk) bool {
			return !slices.Contains(contents, d.Content)
		})
	}
	data, empty, foreign := with(Data), with(Blank, Begun), with(Foreign)
	refuse := func(hint, format string, args ...any) (Disk, bool, error) {
		return Disk{}, false, director.Errorf(director.KindConflict, opDisk, format, args...).WithHint("%s", hint)
	}
	switch {
	case len(data) > 1:
		return refuse(
			"detach the disk of the other director, and start the VM again",
			"there is more than one data disk of a director: %s", names(data),
		)
	case len(data) == 1:
		return data[0], false, nil
	case len(empty) > 1:
		return refuse(
			"detach all but one, and start the VM again", "there is more than one blank disk: %s", names(empty),
		)
	case len(empty) == 1 && empty[0].Size < leastData:
		return refuse(
			fmt.Sprintf("make it larger than %d GiB, better 100 GiB, and start the VM again", leastData>>30),
			"the disk for data is too small: %s", names(empty),
		)
	case len(empty) == 1:
		return empty[0], true, nil
	case len(foreign) > 0:
		return refuse(
			"attach the data disk of this director, or a blank one; nothing was changed on the disk that is there",
			"there is no data disk of a director, and no blank disk to make one of: %s", names(foreign),
		)
	}
	return refuse(
		"attach a blank disk of 100 GiB, or the data disk of this director, and start the VM again",
		"the VM has no second disk for data",
	)
}

func names(disks []Disk) string {
	var all []string
	for _, d := range disks {
		text := fmt.Sprintf("%s (%d GiB", d.Path, d.Size>>30)
		if d.Holds != "" {
			text += ", holds " + d.Holds
		}
		all = append(all, text+")")
	}
	return strings.Join(all, ", ")
}

// block is a device as lsblk tells of it.
type block struct {
	Path     string  `json:"path"`
	Type     string  `json:"type"`
	Size     int64   `json:"size"`
	ReadOnly bool    `json:"ro"`
	Children []block `json:"children"`
}

// parseBlocks reads the output of lsblk --json --bytes.
func parseBlocks(text []byte) ([]block, error) {
	var out struct {
		Devices []block `json:"blockdevices"`
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, director.Errorf(director.KindInternal, opDisk, "lsblk: %w", err)
	}
	return out.Devices, nil
}

// Disks returns the disks of the VM with what they hold. It changes nothing on them.
func Disks(ctx context.Context) ([]Disk, error) {
	text, err := command(ctx, nil, "lsblk", "--json", "--bytes", "--output", "PATH,TYPE,SIZE,RO")
	if err != nil {
		return nil, err
	}
	blocks, err := parseBlocks(text)
	if err != nil {
		return nil, err
	}
	var disks []Disk
	for _, b := range blocks {
		if b.Type != "disk" || b.Size == 0 || strings.HasPrefix(b.Path, "/dev/fd") ||
			strings.HasPrefix(b.Path, "/dev/zram") {
			continue
		}
		d, err := look(ctx, b)
		if err != nil {
			return nil, err
		}
		disks = append(disks, d)
	}
	return disks, nil
}

// look finds out what a disk holds.
func look(ctx context.Context, b block) (Disk, error) {
	d := Disk{Path: b.Path, Size: b.Size, Content: Foreign}
	for _, part := range b.Children {
		tags, err := probe(ctx, part.Path)
		if err != nil {
			return d, err
		}
		if tags["LABEL"] == labelRoot {
			d.Content = System
			return d, nil
		}
	}
	tags, err := probe(ctx, b.Path)
	if err != nil {
		return d, err
	}
	switch {
	case b.ReadOnly || slices.Contains(seedLabels, strings.ToLower(tags["LABEL"])) || tags["TYPE"] == "iso9660":
		d.Content = Seeds
	case tags["TYPE"] == "ext4" && tags["LABEL"] == labelData:
		d.Content = Data
	case len(b.Children) > 0 || tags["PTTYPE"] != "":
		d.Holds = fmt.Sprintf("a partition table %s with %d partitions", printable(tags["PTTYPE"]), len(b.Children))
	case tags["TYPE"] != "":
		d.Holds = strings.TrimSpace("a file system " + printable(tags["TYPE"]+" "+tags["LABEL"]))
	case begun(b.Path, b.Size):
		d.Content = Begun
	default:
		blank, err := zeros(b.Path, b.Size)
		if err != nil {
			return d, err
		}
		d.Holds = "data of an unknown kind"
		if blank {
			d.Content, d.Holds = Blank, ""
		}
	}
	return d, nil
}

// probe returns what blkid finds on a device; nothing is no error.
func probe(ctx context.Context, path string) (map[string]string, error) {
	out, err := command(ctx, nil, "blkid", "--probe", "--output", "export", path)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 2 {
		return nil, nil // nothing found
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 8 {
		return map[string]string{"TYPE": "of several kinds"}, nil
	}
	tags := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			tags[key] = strings.ReplaceAll(value, `\ `, " ")
		}
	}
	return tags, err
}

const (
	sample      = 1 << 20
	samples     = 64      // between the start and the end of a disk
	atBothEnds  = 4 << 20 // is read whole
	reservedEnd = 1 << 20 // of the data disk, outside its file system
)

// zeros reports whether the disk is blank: whether its first and last 4 MiB, and 64 places in between, have only zeros.
func zeros(path string, size int64) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, director.Errorf(director.KindInternal, opDisk, "the disk cannot be read: %w", err)
	}
	defer f.Close()
	var places []int64
	for at := int64(0); at < atBothEnds; at += sample {
		places = append(places, at, size-at-sample)
	}
	for i := range int64(samples) {
		places = append(places, size/samples*i)
	}
	buf, none := make([]byte, sample), make([]byte, sample)
	for _, at := range places {
		n, err := f.ReadAt(buf, max(at, 0))
		if err != nil && !errors.Is(err, io.EOF) {
			return false, director.Errorf(director.KindInternal, opDisk, "%s cannot be read: %w", path, err)
		}
		if !bytes.Equal(buf[:n], none[:n]) {
			return false, nil
		}
	}
	return true, nil
}

// intent is written behind the end of the future file system before a disk is formatted. A disk that has it and no file
// system was blank before, so formatting may begin again.
var intent = []byte("DIRECTOR DATA DISK 1: FORMATTING\n")

func begun(path string, size int64) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	buf := make([]byte, len(intent))
	_, err = f.ReadAt(buf, size-reservedEnd)
	return err == nil && bytes.Equal(buf, intent)
}

// Format makes the file system of a data disk. It may be killed at any point and called again.
func Format(ctx context.Context, d Disk) error {
	f, err := os.OpenFile(d.Path, os.O_WRONLY, 0)
	if err != nil {
		return director.Errorf(director.KindInternal, opDisk, "the disk cannot be written: %w", err)
	}
	_, err = f.WriteAt(intent, d.Size-reservedEnd)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return director.Errorf(director.KindInternal, opDisk, "%s cannot be written: %w", d.Path, err)
	}
	_, err = command(
		ctx, nil, "mkfs.ext4", "-q", "-F", "-m", "1", "-L", labelData, d.Path,
		fmt.Sprintf("%dk", (d.Size-reservedEnd)>>10),
	)
	return err
}

// mark is in the file appliance.json of a data disk.
type mark struct {
	Format int    `json:"format"` // of the data disk; 1
	Name   string `json:"name"`   // host name of the director, once it is set up
}

const (
	markFile   = "appliance.json"
	markFormat = 1
)

// Accept checks that the file system in dir is a data disk that this appliance can use, and marks an empty one. name is
// the host name that the properties of this boot ask for, if any do: a disk with another name is another director's.
// Errors: conflict.
func Accept(dir, name string) error {
	text, err := os.ReadFile(filepath.Join(dir, markFile))
	if errors.Is(err, os.ErrNotExist) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return director.Errorf(director.KindInternal, opDisk, "the data disk cannot be read: %w", err)
		}
		for _, e := range entries {
			if e.Name() != "lost+found" && !strings.HasPrefix(e.Name(), whole.Temporary) {
				return director.Errorf(
					director.KindConflict, opDisk, "the disk is labelled %s and has files that are no director's: %s",
					labelData, printable(e.Name()),
				).WithHint("attach the data disk of this director, or a blank one")
			}
		}
		return writeMark(dir, mark{Format: markFormat})
	}
	var m mark
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return director.Errorf(director.KindConflict, opDisk, "%s of the data disk cannot be read: %w", markFile, err).
			WithHint("attach the data disk of this director; restore it from a backup if it is damaged")
	}
	if m.Format > markFormat {
		return director.Errorf(
			director.KindConflict, opDisk, "the data disk was written by a newer appliance (format %d)", m.Format,
		).WithHint("start it with that appliance's image, or a newer one")
	}
	if name != "" && m.Name != "" && name != m.Name {
		return director.Errorf(
			director.KindConflict, opDisk, "the data disk is of the director %s, and the properties say %s",
			printable(m.Name), printable(name),
		).WithHint("attach the data disk of %s, or set the property hostname to %s", name, printable(m.Name))
	}
	return nil
}

func writeMark(dir string, m mark) error {
	text, err := json.Marshal(m)
	if err != nil {
		return director.Errorf(director.KindInternal, opDisk, "%w", err)
	}
	return writeFile(filepath.Join(dir, markFile), append(text, '\n'), 0o644)
}
