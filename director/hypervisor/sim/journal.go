package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// journal is the file of a world: one line for each thing that came, changed or went. A line is written before the
// caller hears of the act, and not synced: it survives the end of the process, as a hypervisor survives its director's,
// and not that of the machine.
//
// Several processes may have it open. Each locks it for an act, and reads first what the others have written.
type journal struct {
	path    string
	file    *os.File
	size    int64 // up to the end of the last line that was read or written
	pending bytes.Buffer
}

// record is one line.
type record struct {
	VM        *vmRecord      `json:"vm,omitempty"`
	NoVM      hypervisor.ID  `json:"no_vm,omitempty"`
	Disk      *diskRecord    `json:"disk,omitempty"`
	NoDisk    *diskRecord    `json:"no_disk,omitempty"`
	Image     *imageRecord   `json:"image,omitempty"`
	NoImage   string         `json:"no_image,omitempty"`
	Network   *networkRecord `json:"network,omitempty"`
	NoNetwork string         `json:"no_network,omitempty"`
	Next      int            `json:"next,omitempty"` // the last number that an id was made of
}

type vmRecord struct {
	VM      hypervisor.VM
	Spec    hypervisor.Spec
	Made    bool
	Seeded  bool `json:",omitempty"`
	Ensured int
	Since   time.Time

	Snapshots []hypervisor.Snapshot     `json:",omitempty"`
	Foreign   []hypervisor.AttachedDisk `json:",omitempty"`
}

type diskRecord struct {
	Stamp  director.Stamp
	Serial string
	Host   string
	Size   int64
	Label  hypervisor.DiskLabel `json:",omitzero"`

	Content string `json:",omitempty"`
	Part    bool   `json:",omitempty"`
}

type imageRecord struct {
	Name, Sum string
	Done      bool
}

type networkRecord struct {
	Spec    hypervisor.NetworkSpec
	Started bool
}

// OpenWorld opens the world that the file keeps, or begins one. Other processes may have it open, too, and act on the
// same things. A last line that was cut by the end of its writer counts as never written. Close it when the last
// Backend is closed.
func OpenWorld(path string, hosts ...Host) (*World, error) {
	const op = "sim.open"
	w := NewWorld(hosts...)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, unwritable(op, path, err)
	}
	w.journal = &journal{path: path, file: f}
	if err := w.enter(op); err != nil {
		return nil, errors.Join(err, w.journal.file.Close())
	}
	defer w.leave()
	if things := len(w.vms) + len(w.disks) + len(w.images) + len(w.networks); w.read > 1000 && w.read > 4*things {
		if err := w.rewrite(); err != nil {
			return nil, errors.Join(unwritable(op, path, err), w.journal.file.Close())
		}
	}
	return w, nil
}

func unwritable(op, path string, err error) error {
	return &director.Error{
		Kind: director.KindUnavailable, Op: op, Msg: "the simulated world in " + path + " cannot be written", Err: err,
		Hint: "check that the directory is there, is writable and has room",
	}
}

// Close closes the world's file.
func (w *World) Close() error {
	err := w.enter("sim.close")
	if err == nil {
		err = w.journal.flush("sim.close")
		w.leave()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.journal == nil {
		return nil
	}
	err = errors.Join(err, w.journal.file.Close())
	w.journal = nil
	return err
}

// enter makes the world ours until leave: for this process, and for the others that have its file open. What they did
// since is known then.
func (w *World) enter(op string) error {
	w.mu.Lock()
	if w.journal == nil {
		return nil
	}
	if err := w.catchUp(); err != nil {
		path := w.journal.path
		w.leave()
		return &director.Error{
			Kind: director.KindInternal, Op: op, Msg: "the simulated world in " + path + " cannot be read", Err: err,
			Hint: "remove the state directory of the simulation and start again",
		}
	}
	return nil
}

// leave ends what enter began.
func (w *World) leave() {
	if w.journal != nil {
		_ = lock(w.journal.file, unix.LOCK_UN) // of a file that cannot be unlocked nothing is left
	}
	w.mu.Unlock()
}

// look is enter for those who only look. If the file cannot be read they see what was known; the next act says what is
// wrong.
func (w *World) look() (leave func()) {
	if w.enter("sim.look") == nil {
		return w.leave
	}
	w.mu.Lock()
	return w.mu.Unlock
}

func lock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// catchUp locks the file and reads what others have written since. If one of them has rewritten the file, it is read
// from the beginning.
func (w *World) catchUp() error {
	j := w.journal
	for {
		if err := lock(j.file, unix.LOCK_EX); err != nil {
			return err
		}
		here, err := j.file.Stat()
		if err != nil {
			return err
		}
		there, err := os.Stat(j.path)
		if err != nil {
			return err
		}
		if os.SameFile(here, there) {
			if here.Size() == j.size {
				return nil
			}
			break
		}
		fresh, err := os.OpenFile(j.path, os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		_ = j.file.Close() // no one reads it any more, and closing it releases the lock
		j.file, j.size = fresh, 0
		w.forget()
	}
	good, err := w.replay(io.NewSectionReader(j.file, j.size, math.MaxInt64-j.size))
	j.size += good
	if err != nil {
		return err
	}
	return j.file.Truncate(j.size)
}

// add notes a record. It does nothing for a world without a file.
func (j *journal) add(r record) {
	if j == nil {
		return
	}
	if err := json.NewEncoder(&j.pending).Encode(r); err != nil {
		panic("sim: " + err.Error()) // plain structs of our own
	}
}

// flush writes what was noted, in one piece. On an error nothing of it stays in the file, and the next flush tries all
// of it again.
func (j *journal) flush(op string) error {
	if j == nil || j.pending.Len() == 0 {
		return nil
	}
	n, err := j.file.Write(j.pending.Bytes())
	if err != nil {
		return &director.Error{
			Kind: director.KindUnavailable, Op: op, Msg: "the simulated world cannot write its file",
			Hint: "free space on the disk of the simulation",
			Err:  errors.Join(err, j.file.Truncate(j.size)),
		}
	}
	j.size += int64(n)
	j.pending.Reset()
	return nil
}

// replay reads lines. It returns where the last whole one ends: an incomplete line was never written, because no one
// else writes while we have the lock.
func (w *World) replay(text io.Reader) (good int64, err error) {
	j := w.journal
	w.journal = nil // what is read is not to be written again
	defer func() { w.journal = j }()
	r := bufio.NewReader(text)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return good, nil
		}
		if err != nil {
			return good, err
		}
		var rec record
		if err := json.Unmarshal(line, &rec); err != nil {
			return good, err
		}
		w.apply(rec)
		good += int64(len(line))
		w.read++
	}
}

func (w *things) apply(r record) {
	w.next = max(w.next, r.Next)
	switch {
	case r.VM != nil:
		if old := w.vms[r.VM.VM.ID]; old != nil {
			w.dropVM(old)
		}
		w.putVM(&vm{
			VM: r.VM.VM, spec: r.VM.Spec, made: r.VM.Made, seeded: r.VM.Seeded, ensured: r.VM.Ensured,
			since:     r.VM.Since,
			snapshots: r.VM.Snapshots, foreign: r.VM.Foreign,
		})
	case r.NoVM != "":
		if old := w.vms[r.NoVM]; old != nil {
			w.dropVM(old)
		}
	case r.Disk != nil:
		w.putDisk(diskKey{r.Disk.Stamp, r.Disk.Serial}, &disk{
			host: r.Disk.Host, size: r.Disk.Size, label: r.Disk.Label, content: r.Disk.Content, part: r.Disk.Part,
		})
	case r.NoDisk != nil:
		w.dropDisks(r.NoDisk.Stamp, []string{r.NoDisk.Serial})
	case r.Image != nil:
		w.putImage(r.Image.Name, &image{sum: r.Image.Sum, done: r.Image.Done})
	case r.NoImage != "":
		w.dropImage(r.NoImage)
	case r.Network != nil:
		w.putNetwork(&network{NetworkSpec: r.Network.Spec, started: r.Network.Started})
	case r.NoNetwork != "":
		w.dropNetwork(r.NoNetwork)
	}
}

// rewrite replaces the file by one with a line for each thing that exists. The others notice.
func (w *World) rewrite() error {
	old := w.journal
	fresh, err := os.OpenFile(old.path+".new", os.O_CREATE|os.O_RDWR|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	j := &journal{path: old.path, file: fresh}
	j.add(record{Next: w.next})
	w.journal = j
	for _, v := range w.vms {
		w.putVM(v)
	}
	for k, d := range w.disks {
		w.putDisk(k, d)
	}
	for name, i := range w.images {
		w.putImage(name, i)
	}
	for _, n := range w.networks {
		w.putNetwork(n)
	}
	err = j.flush("sim.open")
	if err == nil {
		err = lock(fresh, unix.LOCK_EX) // no one has it open yet
	}
	if err == nil {
		err = os.Rename(old.path+".new", old.path)
	}
	if err != nil {
		w.journal = old
		return errors.Join(err, fresh.Close())
	}
	return old.file.Close()
}
