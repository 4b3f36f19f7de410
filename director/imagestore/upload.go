package imagestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/scratch"
)

// record is what is stored of an upload in addition to its data.
type record struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	By   string `json:"by"`
	// Release tells that the file is an archive of a release bundle.
	Release bool `json:"release,omitempty"`
	// Unchecked uploads have a random id until all has arrived.
	Unchecked bool `json:"unchecked,omitempty"`
}

const opUpload = "imagestore.upload"

// Begin makes a place for the file, or returns the one that there is with what has arrived. A file without a checksum
// gets a place of its own, at r.ID if that is given, which becomes that of its checksum when all has arrived: Write
// says so. Errors: invalid for a request that is wrong, exhausted if there is no room, unavailable if the file would
// have to be converted and that is not possible here.
func (s *Store) Begin(_ context.Context, r Request) (Upload, error) {
	unchecked := r.SHA256 == ""
	if unchecked {
		r.SHA256 = cmp.Or(r.ID, randomID())
	}
	if err := validate(r); err != nil {
		return Upload{}, err
	}
	if err := s.sweep(); err != nil {
		return Upload{}, err
	}
	if f := diskimage.Format(r.Format); f != "" && (f != diskimage.QCOW2 || r.Compat != "") {
		if err := s.Convert.Available(); err != nil {
			return Upload{}, err // before anything is sent
		}
	}
	s.beginning.Lock()
	defer s.beginning.Unlock()
	u, err := s.Upload(r.SHA256)
	if err == nil {
		if u.Unchecked && r.ID == "" {
			return Upload{}, director.Errorf(
				director.KindConflict, opUpload, "%s is the id of an upload, and not a checksum", r.SHA256,
			).
				WithHint("give the checksum that sha256sum prints")
		}
		if u.Size != r.Size {
			return Upload{}, director.Errorf(
				director.KindConflict, opUpload,
				"a file with this checksum is being uploaded, and it has %d bytes and not %d", u.Size, r.Size,
			).
				WithHint("one of the two is wrong: compute the checksum again")
		}
		if u.Release != r.Release {
			return Upload{}, director.Errorf(
				director.KindConflict, opUpload, "this file is being uploaded as %s", kindOf(u.Release),
			).
				WithHint("abort that upload first")
		}
		return u, nil
	}
	if director.KindOf(err) != director.KindNotFound {
		return Upload{}, err
	}
	if err := s.reserve(r, unchecked); err != nil {
		return Upload{}, err
	}
	return s.Upload(r.SHA256)
}

func validate(r Request) error {
	var p []director.Field
	if !digest.MatchString(r.SHA256) {
		p = append(p, director.Field{
			Path: "sha256", Msg: "is not 64 hexadecimal digits in lower case", Hint: "as sha256sum prints them",
		})
	}
	what := "disk image"
	if r.Release {
		what = "release bundle"
	}
	if r.Size < 512 || r.Size > diskimage.MaxVirtual {
		p = append(p, director.Field{Path: "size", Msg: fmt.Sprintf("%d bytes are no %s", r.Size, what)})
	}
	if r.Release && (r.Format != "" || r.Compat != "") {
		p = append(p, director.Field{
			Path: "kind", Msg: "a release bundle has no format and no version of qcow2", Hint: "leave them out",
		})
	}
	if len(r.Name) > 255 {
		p = append(p, director.Field{Path: "name", Msg: "is too long"})
	}
	if bad := badCompat(r.Compat); bad != nil {
		p = append(p, *bad)
	}
	return director.Invalid(opUpload, "the upload is not right", p)
}

func badCompat(compat string) *director.Field {
	if compat == "" || compat == "0.10" || compat == "1.1" {
		return nil
	}
	return &director.Field{Path: "compat", Msg: fmt.Sprintf("%q is no version of qcow2", compat), Hint: "0.10 or 1.1"}
}

// Upload returns the upload, or not_found.
func (s *Store) Upload(id string) (Upload, error) {
	none := director.Errorf(director.KindNotFound, opUpload, "there is no upload %.64s", id).WithHint("begin it again")
	if !digest.MatchString(id) {
		return Upload{}, none
	}
	id = s.movedTo(id)
	var r record
	err := s.load("uploads/"+id+"/record.json", &r)
	if errors.Is(err, fs.ErrNotExist) {
		return Upload{}, none
	}
	if err != nil {
		return Upload{}, broken(err)
	}
	u := Upload{ID: id, Name: r.Name, Size: r.Size, By: r.By, Release: r.Release, Unchecked: r.Unchecked}
	info, err := os.Stat(s.data(id))
	if err == nil {
		u.Offset = info.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Upload{}, broken(err)
	}
	return u, nil
}

func (s *Store) data(id string) string { return s.path("uploads", id, "data") }

// Write adds what r gives at the offset, which must be the upload's. What has arrived stays when r breaks off. Errors:
// conflict if the offset is another one, or another request writes; invalid if more comes than was said, or if the
// beginning shows that this is no disk image: the upload is gone then; unavailable if r broke off. With the end of an
// upload that was begun without a checksum, the checksum is computed and becomes its id. If that was interrupted,
// an empty piece at the end does it.
func (s *Store) Write(ctx context.Context, id string, offset int64, r io.Reader) (Upload, error) {
	u, err := s.write(ctx, id, offset, r)
	if err != nil || !u.Unchecked || u.Offset < u.Size {
		return u, err
	}
	return s.identify(ctx, u)
}

func (s *Store) write(ctx context.Context, id string, offset int64, r io.Reader) (Upload, error) {
	release, err := s.hold(id)
	if err != nil {
		return Upload{}, err
	}
	defer release()
	u, err := s.Upload(id)
	if err != nil {
		return u, err
	}
	if u.Offset != offset {
		return u, director.Errorf(
			director.KindConflict, opUpload, "%d bytes have arrived, and this begins at %d", u.Offset, offset,
		).
			WithHint("continue at %d", u.Offset)
	}
	f, err := os.OpenFile(s.data(id), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return u, broken(err)
	}
	defer f.Close()
	from := &source{r: diskimage.WithContext(ctx, r)}
	n, err := s.copyWithin(id, u.Size, f, io.LimitReader(from, u.Size-offset))
	u.Offset += n
	if err == nil && u.Offset == u.Size {
		if extra, _ := from.Read(make([]byte, 1)); extra > 0 {
			return u, errors.Join(
				director.Errorf(
					director.KindInvalid, opUpload, "more than the %d bytes that were said has come", u.Size,
				).
					WithHint("the file has changed: begin again"),
				s.drop(id))
		}
		err = f.Sync()
	}
	if serr := s.early(id, f, u, offset); serr != nil {
		return u, errors.Join(serr, s.drop(id))
	}
	if director.KindOf(err) == director.KindExhausted {
		return u, err
	}
	if err != nil && from.err == nil {
		return u, broken(err)
	}
	if err != nil {
		return u, director.Errorf(
			director.KindUnavailable, opUpload, "the upload broke off at %d of %d: %w", u.Offset, u.Size, err,
		).
			WithHint("continue at %d", u.Offset)
	}
	return u, nil
}

// early looks at the beginning as soon as it is there.
func (s *Store) early(id string, f *os.File, u Upload, before int64) error {
	enough := min(u.Size, diskimage.SniffLength)
	if before >= enough || u.Offset < enough {
		return nil
	}
	if u.Release {
		return sniffRelease(nameOf(u, id), f)
	}
	_, err := diskimage.Sniff(nameOf(u, id), f, u.Size)
	return err
}

// sniffRelease returns invalid unless the file begins as an archive of a release bundle does, or one of an upgrade of
// the appliance.
func sniffRelease(name string, f io.ReaderAt) error {
	head := make([]byte, 512)
	_, err := f.ReadAt(head, 0)
	first, _, _ := bytes.Cut(head, []byte{0})
	if err == nil && string(head[257:262]) == "ustar" &&
		(string(first) == bundle.DocumentName || string(first) == rootdisk.ManifestName) {
		return nil
	}
	return director.Errorf(director.KindInvalid, opUpload, "%s is not an archive of a release bundle", name).
		WithHint("make one: directorctl release pack DIR FILE")
}

func kindOf(release bool) string {
	if release {
		return "a release bundle"
	}
	return "an image"
}

// Take holds an upload that has wholly arrived, and returns where its file is. release ends that, and drop throws the
// upload away before. Errors: not_found, conflict while it arrives or another request works on it.
func (s *Store) Take(id string) (path string, drop func() error, release func(), err error) {
	if release, err = s.hold(id); err != nil {
		return "", nil, nil, err
	}
	u, err := s.Upload(id)
	if err == nil {
		err = arrived(u)
	}
	if err != nil {
		release()
		return "", nil, nil, err
	}
	return s.data(id), func() error { return s.drop(id) }, release, nil
}

// arrived returns conflict if a part of the upload is missing.
func arrived(u Upload) error {
	if u.Unchecked && u.Offset == u.Size {
		return director.Errorf(
			director.KindConflict, opUpload, "the checksum of %s is not computed yet", nameOf(u, u.ID),
		).
			WithHint("send an empty piece at %d", u.Size)
	}
	if u.Offset == u.Size {
		return nil
	}
	return director.Errorf(
		director.KindConflict, opUpload, "of %s %d of %d bytes have arrived", nameOf(u, u.ID), u.Offset, u.Size,
	).
		WithHint("send the rest first")
}

func nameOf(u Upload, id string) string {
	if u.Name != "" {
		return u.Name
	}
	return "the file " + id[:12]
}

// source remembers whether the sender broke off.
type source struct {
	r   io.Reader
	err error
}

// Read reads on.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// Abort deletes an upload. No error if it is gone; conflict while another request works on it.
func (s *Store) Abort(_ context.Context, id string) error {
	if !digest.MatchString(id) {
		return nil
	}
	release, err := s.hold(id)
	if err != nil {
		return err
	}
	defer release()
	return s.drop(id)
}

func (s *Store) drop(id string) error {
	if err := os.RemoveAll(s.path("uploads", id)); err != nil {
		return broken(err)
	}
	return nil
}

// sweep throws uploads away to which nothing was added for long, and what other directors left half done long ago.
func (s *Store) sweep() error {
	if err := s.tmp.Sweep(s.Now()); err != nil {
		return broken(err)
	}
	entries, err := os.ReadDir(s.path("uploads"))
	if err != nil {
		return broken(err)
	}
	for _, e := range entries {
		if !scratch.Old(s.path("uploads", e.Name()), s.Now()) {
			continue
		}
		release, err := s.hold(e.Name())
		if err != nil {
			continue // another request works on it
		}
		err = s.drop(e.Name())
		release()
		if err != nil {
			return err
		}
	}
	return nil
}
