package imagestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/jobs"
)

const opImport = "imagestore.import"

// converting is the stage of a job between its checks.
const converting = "converting"

var kubernetesVersion = regexp.MustCompile(`^v1\.[0-9]{1,4}\.[0-9]{1,4}$`)

// Import begins to make an image of an upload that has wholly arrived, or returns the job that does. The upload is
// deleted with it, unless it fails for a reason that can be removed: no space, no qemu-img, nothing that says which
// Kubernetes version the image has. Errors: not_found without the upload, conflict while it arrives.
func (s *Store) Import(_ context.Context, r Import) (Job, error) {
	var p []director.Field
	if bad := badCompat(r.Compat); bad != nil {
		p = append(p, *bad)
	}
	if r.Kubernetes != "" && !kubernetesVersion.MatchString(r.Kubernetes) {
		p = append(p, director.Field{
			Path: "kubernetes", Msg: fmt.Sprintf("%q is not a version", r.Kubernetes), Hint: "such as v1.37.2",
		})
	}
	if err := director.Invalid(opImport, "the import is not right", p); err != nil {
		return Job{}, err
	}
	id := "import-" + r.Upload + "-" + r.Compat
	u, err := s.Upload(r.Upload)
	if director.KindOf(err) == director.KindNotFound && digest.MatchString(r.Upload) {
		if j, jerr := s.Job(id); jerr == nil { // its end, whatever that was
			return j, nil
		}
		if f, ok, ferr := s.made(r.Upload, r.Compat); ferr != nil || ok {
			if ferr == nil {
				f, ferr = s.signed(f, r.Signed, r.Unsigned)
			}
			return Job{ID: id, Stage: jobs.Done, Result: &f}, ferr
		}
	}
	if err != nil {
		return Job{}, err
	}
	if u.Release {
		return Job{}, director.Errorf(
			director.KindInvalid, opImport, "%s is an archive of a release bundle, and no image", nameOf(u, r.Upload),
		).
			WithHint("import it as that: directorctl release import FILE")
	}
	if err := arrived(u); err != nil {
		return Job{}, err
	}
	return s.begin(id, r.Upload, func(ctx context.Context, to jobs.Progress) (File, error) {
		return s.imported(ctx, to, u, r)
	})
}

// ConvertFile begins to make another image of an imported one, at that compat level of qcow2, or returns the job that
// does.
func (s *Store) ConvertFile(_ context.Context, sum, compat, by string) (Job, error) {
	f, err := s.File(sum)
	if err != nil {
		return Job{}, err
	}
	if compat == "" {
		return Job{}, director.Invalid(opImport, "the conversion is not right", []director.Field{
			{Path: "compat", Msg: "is missing", Hint: "0.10 or 1.1"},
		})
	}
	if bad := badCompat(compat); bad != nil {
		return Job{}, director.Invalid(opImport, "the conversion is not right", []director.Field{*bad})
	}
	id := "convert-" + sum + "-" + compat
	if f.Compat == compat {
		return Job{ID: id, Stage: jobs.Done, Result: &f}, nil
	}
	if err := s.Convert.Available(); err != nil {
		return Job{}, err
	}
	return s.begin(id, "file "+sum, func(ctx context.Context, to jobs.Progress) (File, error) {
		return s.make(
			ctx, to, s.Path(sum),
			File{
				Kubernetes: f.Kubernetes, Told: f.Told, Origin: f.Origin, Signed: f.Signed, Unsigned: f.Unsigned,
				By: by,
			},
			compat,
		)
	})
}

// Job returns the job, or not_found.
func (s *Store) Job(id string) (Job, error) { return s.jobs.Job(id) }

// begin runs the work under the id unless it runs already. It holds what the work is on.
func (s *Store) begin(id, on string, work func(context.Context, jobs.Progress) (File, error)) (Job, error) {
	return s.jobs.Begin(id, func() (func(), error) { return s.hold(on) }, work)
}

// errWrong is about an upload for which no retry can help.
type errWrong struct{ error }

func (e errWrong) Unwrap() error { return e.error }

// imported makes an image of an upload. What is wrong with the file itself takes the upload away.
func (s *Store) imported(ctx context.Context, to jobs.Progress, u Upload, r Import) (File, error) {
	f, err := s.fromUpload(ctx, to, u, r)
	wrong, ok := errors.AsType[errWrong](err)
	if err == nil || ok {
		if derr := s.drop(r.Upload); derr != nil {
			return f, errors.Join(err, derr)
		}
	}
	if ok {
		return f, wrong.error
	}
	return f, err
}

func (s *Store) fromUpload(ctx context.Context, to jobs.Progress, u Upload, r Import) (File, error) {
	path, name := s.data(r.Upload), nameOf(u, r.Upload)
	sum, err := checksum(ctx, path, to(jobs.Checking))
	if err != nil {
		return File{}, err
	}
	if sum != r.Upload {
		return File{}, errWrong{director.Errorf(
			director.KindInvalid, opImport, "what has arrived of %s has the SHA-256 %s and not %s", name, sum, r.Upload,
		).
			WithHint("the file changed while it was sent, or was damaged on the way: send it again")}
	}
	info, err := inspect(ctx, path, name)
	if director.KindOf(err) == director.KindInvalid {
		return File{}, errWrong{err}
	}
	if err != nil {
		return File{}, err
	}
	origin := Origin{Name: u.Name, Format: info.String(), SHA256: sum, Size: u.Size}
	return s.make(
		ctx, to, path,
		File{
			Kubernetes: r.Kubernetes, Told: r.Kubernetes != "", Arch: info.Arch, Origin: origin, Signed: r.Signed,
			Unsigned: r.Unsigned, By: r.By,
		},
		r.Compat,
	)
}

func inspect(ctx context.Context, path, name string) (diskimage.Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return diskimage.Info{}, broken(err)
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return diskimage.Info{}, broken(err)
	}
	return diskimage.Inspect(ctx, name, f, stat.Size())
}

// make puts the image at the path, converted if need be, into its place. f holds what is known of it.
func (s *Store) make(ctx context.Context, to jobs.Progress, path string, f File, compat string) (File, error) {
	name := f.Origin.Name
	if name == "" {
		name = "the image"
	}
	info, err := inspect(ctx, path, name)
	if err != nil {
		return f, err
	}
	tmp, err := s.tmp.Temp("image-")
	if err != nil {
		return f, broken(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // at the latest when the store is opened next
	if info.Format != diskimage.QCOW2 || (compat != "" && compat != info.Variant) {
		out := tmp + "/image.qcow2"
		if info, err = s.convert(ctx, to, info, path, out, compat, name); err != nil {
			return f, err
		}
		path = out
	}
	if err := tells(&f, name, info); err != nil {
		return f, err
	}
	if f.SHA256, err = checksum(ctx, path, to(jobs.Checking)); err != nil {
		return f, err
	}
	f.Size, f.Virtual, f.Compat, f.At = info.Size, info.Virtual, info.Variant, s.Now().UTC()
	have, err := s.File(f.SHA256)
	if err == nil && have.Kubernetes == f.Kubernetes && have.Origin.SHA256 == f.Origin.SHA256 {
		return s.signed(have, f.Signed, f.Unsigned)
	}
	return f, s.keep(f, path)
}

// convert makes a qcow2 at the path out and looks into it.
func (s *Store) convert(
	ctx context.Context, progress jobs.Progress, info diskimage.Info, path, out, compat, name string,
) (diskimage.Info, error) {
	most, release, err := s.take(info.Virtual + info.Virtual/32 + 64<<20)
	if err != nil {
		return info, err
	}
	defer release()
	to := diskimage.Output{Format: diskimage.QCOW2, Variant: compat, Most: most}
	if err = s.Convert.Convert(ctx, info, path, out, to, progress(converting)); err == nil {
		// before it is converted, a VMDK does not tell what is on its disk
		info, err = inspect(ctx, out, name)
	}
	if director.KindOf(err) == director.KindInvalid {
		err = errWrong{err}
	}
	return info, err
}

// keep writes down what is known of the image, and moves it to its place.
func (s *Store) keep(f File, path string) error {
	if err := s.save(f.SHA256+".json", f); err != nil {
		return broken(err)
	}
	if path == s.Path(f.SHA256) {
		return nil
	}
	if err := os.Rename(path, s.Path(f.SHA256)); err != nil {
		return broken(err)
	}
	if err := os.Chmod(s.Path(f.SHA256), 0o600); err != nil {
		return broken(err)
	}
	return nil
}

// signed keeps the newest signature of a file that is there, or why it has none: keys are changed, and a file may be
// signed after it was imported.
func (s *Store) signed(f File, by director.Signed, unsigned string) (File, error) {
	if f.Signed == by && f.Unsigned == unsigned || by == (director.Signed{}) && unsigned == "" {
		return f, nil
	}
	f.Signed, f.Unsigned = by, unsigned
	if err := s.save(f.SHA256+".json", f); err != nil {
		return f, broken(err)
	}
	return f, nil
}

// tells compares what the image says of itself with what a person says.
func tells(f *File, name string, info diskimage.Info) error {
	if info.Arch != "" {
		f.Arch = info.Arch
	}
	switch {
	case f.Arch != "" && f.Arch != "amd64":
		return errWrong{
			director.Errorf(director.KindInvalid, opImport, "%s is for %s, and nodes are amd64", name, f.Arch).
				WithHint("give the image for amd64"),
		}
	case info.Release != nil && f.Told && f.Kubernetes != info.Release.Kubernetes:
		return director.Errorf(
			director.KindInvalid, opImport, "%s says in %s that it carries Kubernetes %s, and not %s", name,
			diskimage.ReleasePath, info.Release.Kubernetes, f.Kubernetes,
		).
			WithHint("leave the version out, or give the other image")
	case info.Release != nil:
		f.Kubernetes, f.Told = info.Release.Kubernetes, false
	case f.Kubernetes == "":
		return director.Errorf(
			director.KindInvalid, opImport,
			"%s does not say which Kubernetes it carries: there is no %s that can be read", name, diskimage.ReleasePath,
		).
			WithHint("give it: --kubernetes v1.37.2. The file has arrived and need not be sent again")
	}
	if f.Arch == "" {
		f.Arch = "amd64" // nothing says otherwise
	}
	return nil
}

// checksum reads the whole file.
func checksum(ctx context.Context, path string, progress func(done, total int64)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", broken(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", broken(err)
	}
	h := sha256.New()
	r := diskimage.WithContext(ctx, f)
	for done := int64(0); ; {
		n, err := io.CopyN(h, r, 16<<20)
		done += n
		progress(done, info.Size())
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}
