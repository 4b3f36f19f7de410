package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// journal is the file of a world: one line for each thing that came, changed or went. A line is written before the caller hears of the act, and
// not synced: it survives the end of the process, as a hypervisor survives its director's, and not that of the machine.
type journal struct {
	file    *os.File
	size    int64 // up to the end of the last whole line
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
	Ensured int
	Since   time.Time
}

type diskRecord struct {
	Stamp  director.Stamp
	Serial string
	Host   string
	Size   int64
}

type imageRecord struct {
	Name, Sum string
	Done      bool
}

type networkRecord struct {
	Spec    hypervisor.NetworkSpec
	Started bool
}

// OpenWorld opens the world that the file keeps, or begins one. One process at a time may have it open. A last line that was cut by the end of
// its writer counts as never written. Close it when the last Backend is closed.
func OpenWorld(path string, hosts ...Host) (*World, error) {
	const op = "sim.open"
	w := NewWorld(hosts...)
	good, lines, err := w.replay(path)
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindInternal, Op: op, Msg: "the pretend world in " + path + " cannot be read", Err: err,
			Hint: "remove the state directory of the simulation and begin anew",
		}
	}
	if lines > 1000 && lines > 4*(len(w.vms)+len(w.disks)+len(w.images)+len(w.networks)) {
		good, err = w.rewrite(path)
	}
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err == nil {
		err = f.Truncate(good)
	}
	if err != nil {
		return nil, &director.Error{Kind: director.KindUnavailable, Op: op, Msg: "the pretend world in " + path + " cannot be written", Err: err}
	}
	w.journal = &journal{file: f, size: good}
	return w, nil
}

// Close closes the world's file.
func (w *World) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.journal == nil {
		return nil
	}
	err := errors.Join(w.journal.flush("sim.close"), w.journal.file.Close())
	w.journal = nil
	return err
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

// flush writes what was noted, in one piece. On an error nothing of it stays in the file, and the next flush tries all of it again.
func (j *journal) flush(op string) error {
	if j == nil || j.pending.Len() == 0 {
		return nil
	}
	n, err := j.file.Write(j.pending.Bytes())
	if err != nil {
		return &director.Error{
			Kind: director.KindUnavailable, Op: op, Msg: "the pretend world cannot write its file", Hint: "free space on the disk of the simulation",
			Err: errors.Join(err, j.file.Truncate(j.size)),
		}
	}
	j.size += int64(n)
	j.pending.Reset()
	return nil
}

// replay reads the file. It returns where the last whole line ends.
func (w *World) replay(path string) (good int64, lines int, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return good, lines, nil // without its end it was never written
		}
		if err != nil {
			return 0, 0, err
		}
		var rec record
		if err := json.Unmarshal(line, &rec); err != nil {
			return 0, 0, err
		}
		w.apply(rec)
		good, lines = good+int64(len(line)), lines+1
	}
}

func (w *World) apply(r record) {
	w.next = max(w.next, r.Next)
	switch {
	case r.VM != nil:
		if old := w.vms[r.VM.VM.ID]; old != nil {
			w.dropVM(old)
		}
		w.putVM(&vm{VM: r.VM.VM, spec: r.VM.Spec, made: r.VM.Made, ensured: r.VM.Ensured, since: r.VM.Since})
	case r.NoVM != "":
		if old := w.vms[r.NoVM]; old != nil {
			w.dropVM(old)
		}
	case r.Disk != nil:
		w.putDisk(diskKey{r.Disk.Stamp, r.Disk.Serial}, &disk{host: r.Disk.Host, size: r.Disk.Size})
	case r.NoDisk != nil:
		w.dropDisks(r.NoDisk.Stamp) // disks of a stamp go together
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

// rewrite replaces the file by one with a line for each thing that exists, and returns its size.
func (w *World) rewrite(path string) (int64, error) {
	fresh, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	j := &journal{file: fresh}
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
	w.journal = nil
	if err := errors.Join(j.flush("sim.open"), fresh.Close()); err != nil {
		return 0, err
	}
	return j.size, os.Rename(path+".new", path)
}
