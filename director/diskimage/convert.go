package diskimage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Converter converts images with qemu-img, which has a history of faults in its readers: it runs in a process group of
// its own, with no environment, and with bounds of memory, CPU time, length of its output and time. The zero Converter
// works with defaults.
type Converter struct {
	QemuImg string        // name or path; default qemu-img
	Memory  int64         // address space in bytes; default 2 GiB
	CPU     time.Duration // default 1 h
	Time    time.Duration // default 2 h
}

// Output is what an image is converted to.
type Output struct {
	Format Format // QCOW2, Raw or VMDK
	// qcow2: 0.10, or 1.1 which is the default; VMDK: StreamOptimized, which is the default, or MonolithicSparse
	Variant string
	// Most is how long the output may become; 0 for as long as the disk and its tables need.
	Most int64
}

const opConvert = "diskimage.convert"

// Available returns nil if images can be converted, and otherwise unavailable with what to install.
func (c Converter) Available() error {
	for _, program := range []struct{ name, from string }{
		{cmp.Or(c.QemuImg, "qemu-img"), "qemu-utils"}, {"prlimit", "util-linux"},
	} {
		if _, err := exec.LookPath(program.name); err != nil {
			return director.Errorf(
				director.KindUnavailable, opConvert, "images cannot be converted here: %s is missing", program.name,
			).
				WithHint(
					"install it: apt-get install %s; or convert the image elsewhere: qemu-img convert -O qcow2 OLD NEW",
					program.from,
				)
		}
	}
	return nil
}

// Convert writes the disk of src to the new file dst. info is what Inspect said of src. On an error there is no dst.
// progress is called with parts of 1000 and may be nil. Errors: unavailable without qemu-img, exhausted if space or a
// bound is used up, invalid if qemu-img finds the image damaged. dst is flushed to the disk before Convert returns.
func (c Converter) Convert(
	ctx context.Context, info Info, src, dst string, to Output, progress func(done, total int64),
) (err error) {
	if err := c.Available(); err != nil {
		return err
	}
	options, err := to.options()
	if err != nil {
		return err
	}
	for _, p := range []*string{&src, &dst} { // an absolute path is never taken for a protocol
		if *p, err = filepath.Abs(*p); err != nil {
			return director.Errorf(director.KindInternal, opConvert, "the path cannot be used: %w", err)
		}
	}
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return spaceOr(err, "the new image cannot be made")
	}
	defer func() {
		err = errors.Join(err, out.Close())
		if err != nil {
			err = errors.Join(err, removed(dst))
		}
	}()
	format := info.Format
	if format == OVA {
		part := dst + ".disk"
		defer func() { err = errors.Join(err, removed(part)) }()
		if err := extract(ctx, src, part, info.Disk); err != nil {
			return err
		}
		src, format = part, VMDK
	}
	args := append([]string{"convert", "-p", "-f", string(format), "-O", string(to.Format)}, options...)
	most := cmp.Or(to.Most, info.Virtual+info.Virtual/32+64<<20)
	if err := c.run(ctx, most, append(args, src, dst), progress); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return spaceOr(err, "the new image cannot be written")
	}
	return nil
}

func (o Output) options() ([]string, error) {
	switch o.Format {
	case QCOW2:
		v := cmp.Or(o.Variant, "1.1")
		if v == "0.10" || v == "1.1" {
			return []string{"-o", "compat=" + v}, nil
		}
	case VMDK:
		v := cmp.Or(o.Variant, StreamOptimized)
		if v == StreamOptimized || v == MonolithicSparse {
			return []string{"-o", "subformat=" + v}, nil
		}
	case Raw:
		if o.Variant == "" {
			return nil, nil
		}
	}
	return nil, director.Errorf(
		director.KindInvalid, opConvert, "images are not converted to %s %s", o.Format, o.Variant,
	).
		WithHint("qcow2 with 0.10 or 1.1, vmdk with %s or %s, or raw", StreamOptimized, MonolithicSparse)
}

// extract writes a part of a file to a new one.
func extract(ctx context.Context, src, dst string, p Part) error {
	in, err := os.Open(src)
	if err != nil {
		return director.Errorf(director.KindInternal, opConvert, "the image cannot be read: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return spaceOr(err, "the disk of the OVA cannot be unpacked")
	}
	_, err = io.Copy(out, WithContext(ctx, io.NewSectionReader(in, p.Offset, p.Len)))
	if err := errors.Join(err, out.Close()); err != nil {
		return spaceOr(err, "the disk of the OVA cannot be unpacked")
	}
	return nil
}

func spaceOr(err error, what string) error {
	if errors.Is(err, syscall.ENOSPC) {
		return director.Errorf(director.KindExhausted, opConvert, "%s: the disk is full: %w", what, err).
			WithHint("make room and try again")
	}
	return director.Errorf(director.KindInternal, opConvert, "%s: %w", what, err)
}

func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

var percent = regexp.MustCompile(`\(([0-9]{1,3})\.([0-9])[0-9]/100%\)`)

// run runs qemu-img within its bounds.
func (c Converter) run(ctx context.Context, most int64, args []string, progress func(done, total int64)) error {
	limit := cmp.Or(c.Time, 2*time.Hour)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	program, err := exec.LookPath(cmp.Or(c.QemuImg, "qemu-img"))
	if err != nil {
		return c.Available()
	}
	bounds := []string{
		"--as=" + strconv.FormatInt(cmp.Or(c.Memory, 2<<30), 10),
		"--cpu=" + strconv.FormatInt(int64(cmp.Or(c.CPU, time.Hour)/time.Second), 10),
		"--fsize=" + strconv.FormatInt(most, 10), "--core=0", "--nofile=64", "--", program,
	}
	// prlimit sets the bounds and becomes qemu-img, so that none of it runs without them.
	cmd := exec.CommandContext(ctx, "prlimit", append(bounds, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/nonexistent"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	said := &tail{most: 2000}
	cmd.Stderr = said
	cmd.Stdout = &steps{progress: progress}
	if err := cmd.Run(); err != nil {
		return c.failed(ctx, limit, err, said.String())
	}
	return nil
}

// failed explains why qemu-img ended.
func (c Converter) failed(ctx context.Context, limit time.Duration, err error, said string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return director.Errorf(director.KindExhausted, opConvert, "the conversion took longer than %s: %w", limit, err).
			WithHint("convert the image elsewhere: qemu-img convert -O qcow2 OLD NEW")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return director.Errorf(director.KindInternal, opConvert, "qemu-img cannot be run: %w", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		bound := map[syscall.Signal]string{
			syscall.SIGXFSZ: "its output would have become too long", syscall.SIGXCPU: "it used too much CPU time",
			syscall.SIGKILL: "it was killed",
		}[status.Signal()]
		return director.Errorf(
			director.KindExhausted, opConvert, "the conversion was ended: %s", cmp.Or(bound, status.Signal().String()),
		).
			WithHint(
				"the image may be damaged, or the director has too little room; convert it elsewhere: qemu-img " +
					"convert -O qcow2 OLD NEW",
			)
	}
	line := said[strings.LastIndexByte(said, '\n')+1:]
	switch {
	case strings.Contains(said, "No space left") || strings.Contains(said, "File too large"):
		return director.Errorf(director.KindExhausted, opConvert, "the new image has no room: %s", line).
			WithHint("make room and try again")
	case strings.Contains(said, "allocate memory"):
		return director.Errorf(
			director.KindExhausted, opConvert, "the conversion needs more memory than it may have: %s", line,
		).
			WithHint("convert the image elsewhere: qemu-img convert -O qcow2 OLD NEW")
	}
	return director.Errorf(
		director.KindInvalid, opConvert, "qemu-img does not take the image: %s", cmp.Or(line, fmt.Sprint(err)),
	).
		WithHint("%s", hintAgain)
}

// steps reads the progress that qemu-img prints over and over into one line.
type steps struct {
	progress func(done, total int64)
	rest     []byte
	last     int64
}

// Write never fails.
func (s *steps) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for _, m := range percent.FindAllSubmatch(s.rest, -1) {
		whole, _ := strconv.ParseInt(string(m[1]), 10, 64) // digits, by the pattern
		if n := min(whole*10+int64(m[2][0]-'0'), 1000); n > s.last && s.progress != nil {
			s.last = n
			s.progress(n, 1000)
		}
	}
	if i := bytes.LastIndexAny(s.rest, "\r\n"); i >= 0 {
		s.rest = s.rest[i+1:]
	}
	if len(s.rest) > 256 {
		s.rest = nil
	}
	return len(p), nil
}

// tail keeps the end of what is written to it.
type tail struct {
	most int
	b    []byte
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-t.most):]
	return len(p), nil
}

// String returns it without the empty lines around it.
func (t *tail) String() string { return strings.TrimSpace(string(t.b)) }
