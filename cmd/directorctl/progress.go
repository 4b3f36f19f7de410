package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/wire"
)

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

// copy reads a file of that size from its beginning, writes it to all of to, and returns its SHA-256 in hex. It ends
// with ctx.
func (p *progress) copy(
	ctx context.Context, what string, file io.ReaderAt, size int64, to ...io.Writer,
) (string, error) {
	h := sha256.New()
	w := io.MultiWriter(append(to, h)...)
	r := diskimage.WithContext(ctx, io.NewSectionReader(file, 0, size))
	for done := int64(0); done < size; {
		n, err := io.CopyN(w, r, min(16<<20, size-done))
		if err != nil {
			return "", err
		}
		done += n
		p.at(what, done, size, true)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// send uploads the file, or continues its upload, and takes it up again after a broken connection.
func (p *progress) send(ctx context.Context, api *client.Client, q wire.UploadRequest, file io.ReaderAt) error {
	_, err := api.SendFile(ctx, q, file, func(arrived int64) {
		p.at("Sending "+q.Name, arrived, q.Size, true)
	}, func(err error) {
		p.note("the connection broke, and is taken up again: " + plain(err.Error()))
	})
	return err
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
