package pretend

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// heldFor is how long a playbook is held at most, and holdTick how often it reads whether it still is.
const (
	heldFor  = 5 * time.Minute
	holdTick = 20 * time.Millisecond
)

// hold returns when the settings no longer name the play's playbook in Held, or after heldFor.
func (r *runner) hold(p play) error {
	name := strings.TrimSuffix(filepath.Base(p.file), filepath.Ext(p.file))
	if !slices.Contains(r.settings.Held, name) {
		return nil
	}
	tick := time.NewTicker(holdTick)
	defer tick.Stop()
	for end := time.Now().Add(heldFor); time.Now().Before(end); <-tick.C {
		now, err := load(r.file)
		if err != nil || !slices.Contains(now.Held, name) {
			return err
		}
	}
	return nil
}
