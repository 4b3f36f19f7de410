package appliance

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/whole"
)

// writeFile replaces a file, makes its directory, and leaves one that is the same untouched.
func writeFile(path string, text []byte, mode os.FileMode) error {
	if info, err := os.Lstat(path); err == nil && info.Mode() == mode {
		if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, text) {
			return nil
		}
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = whole.Write(path, text, mode)
	}
	if err != nil {
		return director.Errorf(director.KindInternal, "appliance.write", "%s cannot be written: %w", path, err)
	}
	return nil
}

// command runs a program of the VM and returns its standard output. What it is given on standard input is in no error.
func command(ctx context.Context, in []byte, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(in)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &limited{&errs}
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	if err := cmd.Run(); err != nil {
		return out.Bytes(), director.Errorf(
			director.KindInternal, "appliance.run", "%s: %w: %s", name, err,
			printable(strings.TrimSpace(errs.String())),
		)
	}
	return out.Bytes(), nil
}

// limited keeps the first bytes of what is written.
type limited struct{ to *bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := 1024 - l.to.Len(); room > 0 {
		l.to.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

var _ io.Writer = (*limited)(nil)
