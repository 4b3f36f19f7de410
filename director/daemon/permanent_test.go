package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/wire"
)

// An error that no further try can mend reaches who follows the plan within ten seconds of the task that failed, and
// nothing is tried again before.
func TestAPermanentErrorIsShownWithinTenSeconds(t *testing.T) {
	t.Parallel()
	const step, most = "control_plane/demo-master-1", 10 * time.Second
	c := simulating(t, demoDocuments)
	c.Simulation.Plays.Faults = []simulate.PlayFault{
		{Playbook: "control_plane", Outcome: "failed", Percent: 100, Msg: "the certificate is of somebody else"},
	}
	_, api := opened(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := api.MakePlan(ctx, "demo", plan.Request{})
	if err == nil {
		_, err = api.StartPlan(ctx, p.ID, p.Hash)
	}
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	var aborted, ended wire.Event
	var seen time.Time
	status, err := api.Follow(ctx, p.ID, 0, func(e wire.Event) error {
		switch {
		case e.Step == step && plan.EventKind(e.Kind) != plan.Noted:
			kinds = append(kinds, e.Kind)
			if plan.EventKind(e.Kind) == plan.Aborted {
				aborted, seen = e, time.Now()
			}
		case plan.EventKind(e.Kind) == plan.PlanFailed:
			ended = e
		}
		return nil
	}, nil, nil)
	if err != nil || status != string(plan.StatusFailed) {
		t.Fatalf("the plan ends as %q: %v", status, err)
	}
	if got := strings.Join(kinds, " "); got != "started aborted" {
		t.Fatalf("the step went through %q: it was tried again, or waited", got)
	}
	if !strings.Contains(aborted.Message, "the certificate is of somebody else") ||
		!strings.Contains(ended.Message, "the certificate is of somebody else") {
		t.Errorf("it says %q, and the plan %q", aborted.Message, ended.Message)
	}
	log, err := api.StepLog(ctx, p.ID, step, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	var failed time.Time
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e ansible.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		if e.Type == ansible.HostResult && e.Status == "failed" && failed.IsZero() {
			failed = e.Time
		}
	}
	if lines.Err() != nil || failed.IsZero() {
		t.Fatalf("the log has no task that failed: %v", lines.Err())
	}
	for what, at := range map[string]time.Time{
		"the step's failure": aborted.At, "the plan's": ended.At, "what a follower got": seen,
	} {
		if after := at.Sub(failed); after < 0 || after > most {
			t.Errorf("%s came %s after the task's", what, after)
		}
	}
	now, err := api.Plan(ctx, p.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range now.Steps {
		if s.ID == step &&
			(s.Status != string(plan.Failed) || s.Attempt != 1 || s.Failures != 0 || s.Attempts < 2 ||
				s.NotBefore != nil) {
			t.Errorf("the step is %+v", s)
		}
	}
}
