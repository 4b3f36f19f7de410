package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// A director whose disk is nearly full makes and starts no plan, says why, and can be read. With space again, it
// takes plans by itself.
func TestNoPlanOnAFullDisk(t *testing.T) {
	t.Parallel()
	c := simulating(t, threeHosts)
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", c.StateDir, "tmpfs", 0, "size=600m"); err != nil {
		t.Fatalf("a file system cannot be mounted, which needs root as all of make test does: %v", err)
	}
	t.Cleanup(func() { // after the director has stopped
		if err := unix.Unmount(c.StateDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	_, api := opened(t, c)
	p, err := api.MakePlan(t.Context(), "demo", plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(c.StateDir, "filler")
	if err := os.WriteFile(filler, make([]byte, 400<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_, making := api.MakePlan(t.Context(), "demo", plan.Request{})
	_, starting := api.StartPlan(t.Context(), p.ID, p.Hash)
	for _, err := range []error{making, starting} {
		if director.KindOf(err) != director.KindExhausted ||
			!strings.Contains(err.Error(), "no plan is made or started") ||
			director.HintOf(err) == "" {
			t.Errorf("on a full disk: %v (%s)", err, director.HintOf(err))
		}
	}
	if got, err := api.Plan(t.Context(), p.ID); err != nil || got.Status != string(plan.StatusPlanned) {
		t.Errorf("the plan is %s: %v", got.Status, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := api.StartPlan(t.Context(), p.ID, p.Hash); err != nil {
		t.Errorf("with space again: %v", err)
	}
}
