package archives

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
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/whole"
)

// Files are the files that old plans and the old audit trail leave the database for. Each has its checksum next to it,
// for sha256sum -c.
type Files struct {
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

// write makes the file with what fill writes, and its checksum next to it. The file has its name only once it is whole
// and on the disk. One of that name that an interrupted run has left is replaced; if last is true, only one with the
// same content is, and errOther says that there is another.
func (f Files) write(name string, at time.Time, last bool, fill func(io.Writer) error) (store.ArchiveFile, error) {
	fail := func(err error) (store.ArchiveFile, error) {
		return store.ArchiveFile{}, &director.Error{
			Kind: director.KindOf(err), Op: "archives.file", Msg: "the archive " + name + " cannot be written",
			Err: err,
		}
	}
	file := filepath.Join(f.Dir, name)
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
	return store.ArchiveFile{Host: f.Host, File: file, SHA256: digest, Size: size.n, At: at}, nil
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// replace makes the file, which only the director can read, and its directory.
func replace(file string, fill func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return whole.FillBy(file+".tmp", file, 0o600, func(f *os.File) error {
		out := bufio.NewWriter(f)
		return errors.Join(fill(out), out.Flush())
	})
}

// open returns the whole file of the plan, or not_found with where it is. A file that is not what was written is an
// error.
func (f Files) open(ctx context.Context, id string) ([]byte, store.PlanArchive, error) {
	const op = "archives.file"
	p, there, err := f.Store.PlanArchived(ctx, id)
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
			WithHint("restore it from a backup of the state directory")
	}
	return text, p, nil
}

// Plan returns an archived plan as it was.
func (f Files) Plan(ctx context.Context, id string) (plan.View, error) {
	text, _, err := f.open(ctx, id)
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
			Kind: director.KindInternal, Op: "archives.file",
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
