package ansible

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// EndSurvivors ends the processes that runs of a director left behind when it died, and removes their directories with
// the secrets in them. It returns the IDs of the plays whose processes were ended.
//
// It is for the director's start, before any step runs: a step that is run again must not meet its predecessor. A
// process is ended if its environment names the run's directory, if it is a master connection of ssh with its socket
// there, or if it is in the run's process group while the leader has the start time that was written down; one that
// merely got a process id again is none of these. Directories whose director is alive are left alone. What a dead run
// had started on a node continues there; it is safe to run the playbooks at the same time.
func (r *Runner) EndSurvivors(ctx context.Context) ([]string, error) {
	const op = "ansible.end_survivors"
	dirs, err := filepath.Glob(filepath.Join(r.cfg.StateDir, runPrefix+"*"))
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "the state directory cannot be read: %w", err)
	}
	var (
		ended    []string
		problems []error
	)
	for _, path := range dirs {
		d, err := openRunDir(path)
		switch {
		case errors.Is(err, os.ErrNotExist): // killed before it wrote who it is: nothing had started
		case err != nil:
			r.log.WarnContext(ctx, "run directory without a readable owner", "dir", path, "err", err)
		case d.owner.Director.alive():
			continue
		}
		n, err := d.belonging(d.leader()).end(ctx, survivorGrace)
		if n > 0 {
			ended = append(ended, d.owner.ID)
			r.log.InfoContext(ctx, "ended what was left of a run", "play", d.owner.ID, "processes", n)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", d.owner.ID, err))
			continue
		}
		d.remove()
	}
	if len(problems) > 0 {
		return ended, director.Errorf(
			director.KindInternal, op, "processes of an earlier director do not end: %w", errors.Join(problems...),
		).
			WithHint(
				"look for them with: grep -lz KAAS_RUN=%s /proc/[0-9]*/environ",
				strings.TrimSuffix(r.cfg.StateDir, "/"),
			)
	}
	return ended, nil
}

const survivorGrace = 2 * time.Second
