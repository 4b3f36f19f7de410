package operations

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// Archives are the files that old plans and the old audit trail leave the database for. Each has its checksum beside
// it, for sha256sum -c.
type Archives struct {
	Store *store.Store
	Dir   string // below the state directory
	Host  string // of this director
}

// planRecord is what an archived plan is read from again.
type planRecord struct {
	Plan  plan.Plan  `json:"plan"`
	State plan.State `json:"state"`
}

const recordName = "record.json"

// errOther says that there is a file of that name with another content.
var errOther = errors.New("there is another file of that name")

// write makes the file with what fill writes, and its checksum beside it. The file has its name only once it is whole
// and on the disk. One of that name that an interrupted run has left is replaced; if last is true, only one with the
// same content is, and errOther says that there is another.
func (a Archives) write(name string, at time.Time, last bool, fill func(io.Writer) error) (store.ArchiveFile, error) {
	fail := func(err error) (store.ArchiveFile, error) {
		return store.ArchiveFile{}, &director.Error{
			Kind: director.KindOf(err), Op: "operations.archives", Msg: "the archive " + name + " cannot be written",
			Err: err,
		}
	}
	file := filepath.Join(a.Dir, name)
	sum := sha256.New()
	size := &counter{}
	err := replace(file, func(w io.Writer) error {
		if err := fill(io.MultiWriter(w, sum, size)); err != nil || !last {
			return err
		}
		had, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if is := sha256.Sum256(had); err == nil && !bytes.Equal(is[:], sum.Sum(nil)) {
			return errOther
		}
		return err
	})
	if errors.Is(err, errOther) {
		return store.ArchiveFile{}, err
	}
	if err != nil {
		return fail(err)
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	err = replace(file+".sha256", func(w io.Writer) error {
		_, err := io.WriteString(w, digest+"  "+filepath.Base(file)+"\n")
		return err
	})
	if err != nil {
		return fail(err)
	}
	return store.ArchiveFile{Host: a.Host, File: file, SHA256: digest, Size: size.n, At: at}, nil
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// replace writes the file through another one, so that a crash leaves the whole file or none. Only the director can
// read it.
func replace(file string, fill func(io.Writer) error) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.OpenFile(file+".tmp", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(tmp)
	if err := errors.Join(fill(out), out.Flush(), tmp.Sync(), tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// open returns the whole file of the plan, or not_found with where it is. A file that is not what was written is an
// error.
func (a Archives) open(ctx context.Context, id string) ([]byte, store.PlanArchive, error) {
	const op = "operations.archives"
	p, there, err := a.Store.PlanArchived(ctx, id)
	if err != nil || !there {
		return nil, p, errors.Join(
			err, director.Errorf(director.KindNotFound, op, "there is no archive of plan %s", id),
		)
	}
	text, err := os.ReadFile(p.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, p, director.Errorf(
			director.KindNotFound, op, "plan %s was archived on %s, and its file %s is on host %s, and not here", id,
			p.At.Format(time.DateOnly), p.File, p.Host,
		).
			WithHint("ask the director on that host, or copy the file to the same place here")
	}
	if err != nil {
		return nil, p, &director.Error{
			Kind: director.KindInternal, Op: op, Msg: "the archive of plan " + id + " cannot be read", Err: err,
		}
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != p.SHA256 {
		return nil, p, director.Errorf(
			director.KindInternal, op, "the archive %s of plan %s is damaged: its checksum is not %s", p.File, id,
			p.SHA256,
		).
			WithHint("put it back from a backup of the state directory")
	}
	return text, p, nil
}

// Plan returns an archived plan as it was.
func (a Archives) Plan(ctx context.Context, id string) (plan.View, error) {
	text, _, err := a.open(ctx, id)
	if err != nil {
		return plan.View{}, err
	}
	var r planRecord
	found := false
	err = eachFile(text, func(name string, from io.Reader) error {
		if path.Base(name) != recordName {
			return nil
		}
		found = true
		return json.NewDecoder(from).Decode(&r)
	})
	if err != nil || !found {
		return plan.View{}, &director.Error{
			Kind: director.KindInternal, Op: "operations.archives",
			Msg: "the archive of plan " + id + " cannot be read", Err: err,
		}
	}
	return plan.View{Plan: r.Plan, State: r.State}, nil
}

// eachFile calls look for each file of a tar.gz.
func eachFile(text []byte, look func(name string, from io.Reader) error) error {
	zip, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return err
	}
	for files := tar.NewReader(zip); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = look(h.Name, files)
		}
		if err != nil {
			return err
		}
	}
}

// Retention takes old plans and the old audit trail out of the database. It may be ended at any line: a file without
// its record is written again, and a record is written in the transaction that removes the rows.
type Retention struct{ Operations *Operations }

// ArchivePlans archives plans that are over for good: those that ended before the time, and of the others those beyond
// most of each cluster that ended before recent. It returns how many that were, and the bytes of their files. One that
// fails does not keep the others.
func (r Retention) ArchivePlans(
	ctx context.Context, actor string, before, recent time.Time, most int,
) (plans, bytes int64, err error) {
	o := r.Operations
	ids, err := o.Store.Archivable(ctx, store.Retention{Before: before, Recent: recent, Most: most})
	if err != nil {
		return 0, 0, err
	}
	var errs []error
	for _, id := range ids {
		if ctx.Err() != nil {
			return plans, bytes, errors.Join(append(errs, ctx.Err())...)
		}
		file, err := r.writePlan(ctx, id)
		if err == nil {
			err = o.Store.ArchivePlan(ctx, id, file, actor)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		plans, bytes = plans+1, bytes+file.Size
	}
	return plans, bytes, errors.Join(errs...)
}

// writePlan writes the plan with its state, its events and the logs of its attempts that are here. What might hold a
// secret of the cluster or of the director is searched for them, as an archive for support is.
func (r Retention) writePlan(ctx context.Context, id string) (store.ArchiveFile, error) {
	o := r.Operations
	p, s, err := o.Store.Plan(ctx, id)
	if err != nil {
		return store.ArchiveFile{}, err
	}
	var private []director.Secret
	if o.Support != nil {
		private = o.Support(ctx).Private
	}
	facts, _ := step.DecodeFacts(p.Content) // a plan without facts has no machines either
	secrets, err := o.secretsOf(ctx, facts, private)
	if err != nil {
		return store.ArchiveFile{}, err
	}
	at := o.Now().UTC()
	return o.Archives.write(filepath.Join("plans", id+".tar.gz"), at, false, func(w io.Writer) error {
		zip := gzip.NewWriter(w)
		a := &archive{dir: "plan-" + id, tar: tar.NewWriter(zip), secrets: secrets, at: at}
		for name, value := range map[string]any{recordName: planRecord{p, s}, "plan.json": wire.PlanOf(p, s)} {
			text, err := json.Marshal(value)
			if err == nil {
				err = a.add(name, append(text, '\n'))
			}
			if err != nil {
				return err
			}
		}
		if err := o.archiveEvents(ctx, a, id); err != nil {
			return err
		}
		for _, st := range s.Steps {
			for n := 1; n <= st.Attempt; n++ {
				if err := a.addLog(o.Env.LogPath(id, st.ID, n)); err != nil {
					return err
				}
			}
		}
		return errors.Join(a.tar.Close(), zip.Close())
	})
}

// ArchiveAudit archives the entries of the audit trail, a file for each month that ended before the time. It returns
// how many entries that were.
func (r Retention) ArchiveAudit(ctx context.Context, before time.Time) (entries int64, err error) {
	o := r.Operations
	for {
		oldest, err := o.Store.OldestAudit(ctx)
		if err != nil || oldest.IsZero() {
			return entries, err
		}
		month := time.Date(oldest.Year(), oldest.Month(), 1, 0, 0, 0, 0, time.UTC)
		if month.AddDate(0, 1, 0).After(before) {
			return entries, nil
		}
		n, err := r.archiveMonth(ctx, month)
		if err != nil {
			return entries, err
		}
		entries += n
	}
}

// archiveMonth archives a month. What was archived of it before, also by a director whose database was restored since,
// is never written to again.
func (r Retention) archiveMonth(ctx context.Context, month time.Time) (int64, error) {
	o := r.Operations
	known, err := o.Store.AuditArchives(ctx, month)
	if err != nil {
		return 0, err
	}
	for n := known + 1; ; n++ {
		name := "audit-" + month.Format("2006-01")
		if n > 1 {
			name += "." + strconv.Itoa(n)
		}
		var last, entries int64
		file, err := o.Archives.write(filepath.Join(
			"audit", name+".jsonl.gz",
		), o.Now().UTC(), true, func(w io.Writer) error {
			var err error
			last, entries, err = r.writeMonth(ctx, month, w)
			return err
		})
		if errors.Is(err, errOther) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return entries, o.Store.ArchiveAudit(ctx, name, month, last, entries, file)
	}
}

// writeMonth writes the entries of the month, and returns the id of the last one and how many they are.
func (r Retention) writeMonth(ctx context.Context, month time.Time, w io.Writer) (last, n int64, err error) {
	const page = 1000
	zip := gzip.NewWriter(w)
	enc := json.NewEncoder(zip)
	for {
		entries, err := r.Operations.Store.AuditPage(ctx, month, month.AddDate(0, 1, 0), last, page)
		if err != nil {
			return last, n, err
		}
		for _, e := range entries {
			if err := enc.Encode(e); err != nil {
				return last, n, err
			}
			last, n = e.ID, n+1
		}
		if len(entries) < page {
			return last, n, zip.Close()
		}
	}
}
