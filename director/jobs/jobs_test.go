package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/jobs"
)

const op = "test.job"

func free() (func(), error) { return func() {}, nil }

func table(t *testing.T, now func() time.Time) *jobs.Table[string] {
	t.Helper()
	tab := jobs.New[string](op, slog.New(slog.DiscardHandler), now)
	t.Cleanup(func() { _ = tab.Close(context.Background()) })
	return tab
}

// ended waits for the end of the job.
func ended(t *testing.T, tab *jobs.Table[string], id string) jobs.Job[string] {
	t.Helper()
	for {
		j, err := tab.Job(id)
		if err != nil {
			t.Fatal(err)
		}
		if j.Ended() {
			return j
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the job does not end")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestJobsRunOnce(t *testing.T) {
	t.Parallel()
	tab, go1, runs := table(t, time.Now), make(chan struct{}), 0
	work := func(_ context.Context, to jobs.Progress) (string, error) {
		runs++
		to("copying")(3, 4)
		<-go1
		return "made", nil
	}
	for range 2 {
		if _, err := tab.Begin("a", free, work); err != nil {
			t.Fatal(err)
		}
	}
	close(go1)
	j := ended(t, tab, "a")
	made := "made"
	if diff := cmp.Diff(jobs.Job[string]{ID: "a", Stage: jobs.Done, Done: 3, Total: 4, Result: &made}, j); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	if runs != 1 {
		t.Errorf("the work ran %d times", runs)
	}
}

func TestFailedJobs(t *testing.T) {
	t.Parallel()
	full := director.Errorf(director.KindExhausted, "disk", "is full")
	for name, tt := range map[string]struct {
		err  error
		want director.Kind
	}{
		"an error of the director": {full, director.KindExhausted},
		"another":                  {errors.New("odd"), director.KindUnavailable},
	} {
		tab, freed := table(t, time.Now), false
		take := func() (func(), error) { return func() { freed = true }, nil }
		_, err := tab.Begin("a", take, func(context.Context, jobs.Progress) (string, error) { return "", tt.err })
		if err != nil {
			t.Fatal(err)
		}
		j := ended(t, tab, "a")
		if j.Stage != jobs.Failed || director.KindOf(j.Err) != tt.want || j.Result != nil || !freed {
			t.Errorf("%s: %+v, freed %v", name, j, freed)
		}
	}
}

func TestCancelledJobs(t *testing.T) {
	t.Parallel()
	tab, freed := table(t, time.Now), false
	take := func() (func(), error) { return func() { freed = true }, nil }
	work := func(ctx context.Context, _ jobs.Progress) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	if _, err := tab.Begin("a", take, work); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"none", "a", "a"} {
		if err := tab.Cancel(t.Context(), id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	j, err := tab.Job("a")
	if err != nil || j.Stage != jobs.Failed || director.KindOf(j.Err) != director.KindUnavailable || !freed {
		t.Errorf("%+v, %v, freed %v", j, err, freed)
	}
}

func TestJobsThatDoNotBegin(t *testing.T) {
	t.Parallel()
	tab := table(t, time.Now)
	never := func(context.Context, jobs.Progress) (string, error) {
		t.Error("the work ran")
		return "", nil
	}
	held := director.Errorf(director.KindConflict, "hold", "is held")
	if _, err := tab.Begin("a", func() (func(), error) { return nil, held }, never); !errors.Is(err, held) {
		t.Errorf("of what is held: %v", err)
	}
	if _, err := tab.Job("a"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("a job that did not begin: %v", err)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Begin("a", free, never); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("after the end: %v", err)
	}
}

func TestEndsAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	tab := table(t, func() time.Time { return now })
	work := func(context.Context, jobs.Progress) (string, error) { return "", nil }
	if _, err := tab.Begin("a", free, work); err != nil {
		t.Fatal(err)
	}
	ended(t, tab, "a")
	now = now.Add(jobs.Life + time.Second)
	if _, err := tab.Begin("b", free, work); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Job("a"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("after its life: %v", err)
	}
	ended(t, tab, "b")
}
