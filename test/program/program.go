// Package program builds programs of this repository for tests. A test binary that plays them takes far longer to
// start than they do: it carries the whole director.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const module = "github.com/director-kaas/kaas"

// Build builds cmd/NAME for each name into the directory of the test's own binary, and returns that directory. What is
// there already stays. Call it from TestMain: the directory ends with the run of the tests.
func Build(ctx context.Context, names ...string) (dir string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir = filepath.Dir(self)
	for _, name := range names {
		if err := build(ctx, dir, name); err != nil {
			return "", fmt.Errorf("building %s for tests: %w", name, err)
		}
	}
	return dir, nil
}

func build(ctx context.Context, dir, name string) error {
	program := filepath.Join(dir, name)
	if _, err := os.Stat(program); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	part := fmt.Sprintf("%s.%d", program, os.Getpid()) // another test's binary may have the same directory
	//nolint:gosec // one of our own programs
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", part, module+"/cmd/"+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return os.Rename(part, program)
}
