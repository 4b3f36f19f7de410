package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/wire"
)

// wanted is what is asked of an import.
type wanted struct {
	path, document, kubernetes, sha256, compat, unsigned string
}

// imageFile is an image file that was found good as far as that can be told here.
type imageFile struct {
	*os.File
	name       string
	info       diskimage.Info
	kubernetes string // empty if only the director can tell, after the conversion
	sha256     string
}

// open looks at the file, so that a wrong one is refused before it is sent.
func (in wanted) open(ctx context.Context) (*imageFile, error) {
	const op = "directorctl.image"
	f, err := os.Open(in.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, director.Errorf(director.KindInvalid, op, "there is no file %s", in.path)
	}
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "%s cannot be read: %w", in.path, err)
	}
	out := &imageFile{File: f, name: filepath.Base(in.path), kubernetes: in.kubernetes}
	stat, err := f.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = director.Errorf(director.KindInvalid, op, "%s is not a regular file", in.path)
	}
	if err == nil {
		out.info, err = diskimage.Inspect(ctx, in.path, f, stat.Size())
	}
	if err == nil {
		err = out.tells(in)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return out, nil
}

// tells compares what the file says of itself with what the command line says.
func (f *imageFile) tells(in wanted) error {
	const op = "directorctl.image"
	r := f.info.Release
	switch {
	case f.info.Arch != "" && f.info.Arch != "amd64":
		return director.Errorf(director.KindInvalid, op, "%s is for %s, and nodes are amd64", in.path, f.info.Arch).
			WithHint("give the image for amd64")
	case r != nil && in.kubernetes != "" && in.kubernetes != r.Kubernetes:
		return director.Errorf(
			director.KindInvalid, op, "%s says in %s that it carries Kubernetes %s, and not %s", in.path,
			diskimage.ReleasePath, r.Kubernetes, in.kubernetes,
		).
			WithHint("leave --kubernetes out, or give the other image")
	case r != nil:
		f.kubernetes = r.Kubernetes
	case in.kubernetes != "" || f.info.Format == diskimage.VMDK || f.info.Format == diskimage.OVA:
	default:
		// The build of a node image writes it next to the image too.
		text, err := os.ReadFile(filepath.Join(filepath.Dir(in.path), "kaas-release.json"))
		if err == nil {
			r = diskimage.ParseRelease(text)
		}
		if r == nil {
			return director.Errorf(
				director.KindInvalid, op,
				"%s does not say which Kubernetes it carries: there is no %s that can be read", in.path,
				diskimage.ReleasePath,
			).
				WithHint("give it: --kubernetes v1.37.2")
		}
		f.kubernetes = r.Kubernetes
	}
	return nil
}

// sum computes the checksum, and compares it with the one that is wanted and with that in the file's .sha256.
func (f *imageFile) sum(ctx context.Context, want string, show *progress) error {
	h := sha256.New()
	r := diskimage.WithContext(ctx, io.NewSectionReader(f, 0, f.info.Size))
	for done := int64(0); done < f.info.Size; {
		n, err := io.CopyN(h, r, min(16<<20, f.info.Size-done))
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return director.Errorf(director.KindInvalid, "directorctl.image", "%s cannot be read: %w", f.name, err)
		}
		done += n
		show.at("Checking "+f.name, done, f.info.Size, true)
	}
	f.sha256 = hex.EncodeToString(h.Sum(nil))
	from := "and not " + want
	if text, err := os.ReadFile(f.Name() + ".sha256"); err == nil && want == "" {
		if fields := strings.Fields(string(text)); len(fields) > 0 && wholeSum.MatchString(strings.ToLower(fields[0])) {
			want = strings.ToLower(fields[0])
			from = "and " + filepath.Base(f.Name()) + ".sha256 says " + want
		}
	}
	if want != "" && want != f.sha256 {
		return director.Errorf(
			director.KindInvalid, "directorctl.image", "%s has the SHA-256 %s, %s", f.Name(), f.sha256, from,
		).
			WithHint("copy or download it again, or correct the checksum")
	}
	return nil
}

// progress shows how far something long is: a bar on a terminal, and a line now and then elsewhere.
type progress struct {
	out   io.Writer
	tty   bool
	width int
	now   func() time.Time

	what  string
	began time.Time
	from  int64
	last  time.Time
	drawn bool
}

func (a *app) progress() *progress {
	return &progress{out: a.err, tty: a.outIsTerminal(), width: 30, now: time.Now}
}

// at shows how far the work of that name is; total 0 means unknown. bytes tells whether these are bytes.
func (p *progress) at(what string, done, total int64, bytes bool) {
	now := p.now()
	if what != p.what {
		p.end()
		p.what, p.began, p.from, p.last = what, now, done, time.Time{}
		if !p.tty {
			p.last = now
			say(p.out, "%s\n", what)
		}
	}
	every := 100 * time.Millisecond
	if !p.tty {
		every = 10 * time.Second
	}
	if now.Sub(p.last) < every && (done < total || !p.tty) {
		return
	}
	p.last = now
	text := what
	if total > 0 {
		share := min(done*100/total, 100)
		if p.tty {
			full := int(share) * p.width / 100
			text += " [" + strings.Repeat("=", full) + strings.Repeat(" ", p.width-full) + "]"
		}
		text += fmt.Sprintf(" %3d %%", share)
	}
	if took := now.Sub(p.began).Seconds(); bytes && total > 0 {
		text += fmt.Sprintf("  %s of %s", amount(done), amount(total))
		if rate := float64(done-p.from) / max(took, 0.001); took > 0.5 && done > p.from {
			text += fmt.Sprintf("  %s/s", amount(int64(rate)))
			if left := time.Duration(float64(total-done) / rate * float64(time.Second)); done < total {
				text += "  " + span(left) + " left"
			}
		}
	}
	if p.tty {
		say(p.out, "\r\x1b[K%s", text)
		p.drawn = true
		return
	}
	say(p.out, "%s\n", text)
}

// job shows the director's work on an image.
func (p *progress) job(j wire.ImageJob) {
	what := map[string]string{
		wire.JobChecking:   "The director checks the image",
		wire.JobConverting: "The director converts the image to qcow2",
	}[j.Stage]
	if what != "" {
		p.at(what, j.Done, j.Total, j.Stage == wire.JobChecking)
	}
}

// note says something between.
func (p *progress) note(text string) {
	p.end()
	say(p.out, "%s\n", text)
	p.what = ""
}

// end leaves the bar as it is. It is idempotent.
func (p *progress) end() {
	if p.drawn {
		sayLine(p.out)
	}
	p.drawn = false
}

// amount renders bytes as people read them.
func amount(n int64) string {
	switch {
	case n >= 1<<40:
		return fmt.Sprintf("%.1f TiB", float64(n)/(1<<40))
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}
