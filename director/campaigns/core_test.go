package campaigns

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

var day = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// in is a cluster of a wave with a plan of the status, agreed to or not.
func in(wave int, name string, status plan.Status, agreed bool) director.CampaignCluster {
	c := director.CampaignCluster{
		Name: name, Wave: wave, Verdict: director.CampaignPlanned, Plan: "p-" + name, Hash: "h-" + name,
		Status: string(status), Checked: true,
	}
	if agreed {
		c.AgreedHash = c.Hash
	}
	if status != plan.StatusPlanned && status != plan.StatusApproved {
		c.Started, c.Finished = day.Add(-2*time.Hour), day.Add(-time.Hour)
	}
	return c
}

func with(c director.CampaignCluster, change func(*director.CampaignCluster)) director.CampaignCluster {
	change(&c)
	return c
}

type list = []director.CampaignCluster

// progressCase is a campaign with how far it is.
type progressCase struct {
	clusters list
	change   func(*director.Campaign)
	status   Status
	next     step
	wave     int
}

func (c progressCase) check(t *testing.T) {
	t.Parallel()
	v := director.Campaign{Spec: filled(director.CampaignSpec{}), Clusters: c.clusters}
	if c.change != nil {
		c.change(&v)
	}
	p := ProgressOf(v, day)
	if p.Status != c.status || p.next != c.next || p.Wave != c.wave {
		t.Errorf("%s, next %+v, wave %d; want %s, %+v, %d", p.Status, p.next, p.Wave, c.status, c.next, c.wave)
	}
}

// What a director does next follows from the plans and from what people said.
func TestProgress(t *testing.T) {
	t.Parallel()
	done, planned := plan.StatusDone, plan.StatusPlanned
	for name, c := range map[string]progressCase{
		"a cluster is not planned yet": {
			list{in(0, "a", planned, false), {Name: "b"}}, nil, StatusPlanning, step{doPlan, "b"}, 0,
		},
		"all are planned":     {list{in(0, "a", planned, false)}, nil, StatusPlanning, step{verb: doAssign}, 0},
		"nobody has agreed":   {list{in(1, "a", planned, false)}, nil, StatusWaiting, step{}, 1},
		"a person has agreed": {list{in(1, "a", planned, true)}, nil, StatusRunning, step{doStart, "a"}, 1},
		"approved by itself":  {list{in(1, "a", plan.StatusApproved, true)}, nil, StatusRunning, step{doStart, "a"}, 1},
		"a plan runs":         {list{in(1, "a", plan.StatusRunning, true)}, nil, StatusRunning, step{}, 1},
		"a plan waits for help": {
			list{parkedPlan("a"), in(1, "b", planned, true)}, nil, StatusRunning, step{verb: doStop}, 1,
		},
		"a plan waits for help, and one may fail": {
			list{parkedPlan("a"), in(1, "b", planned, true)},
			func(c *director.Campaign) { c.Spec.Failures = "1" }, StatusRunning,
			step{doStart, "b"},
			1,
		},
		"the pause after a plan that waits for help": {
			list{parkedPlan("a"), in(2, "b", planned, true)},
			func(c *director.Campaign) { c.Spec.Failures, c.Spec.Pause = "1", "90m" }, StatusResting,
			step{},
			2,
		},
		"one at once": {
			list{in(1, "a", plan.StatusRunning, true), in(1, "b", planned, true)},
			func(c *director.Campaign) { c.Spec.AtOnce = 1 }, StatusRunning,
			step{},
			1,
		},
		"another hash than agreed to": {
			list{with(in(1, "a", planned, true), func(m *director.CampaignCluster) { m.Hash = "other" })},
			nil,
			StatusWaiting,
			step{},
			1,
		},
		"the others of the wave start": {
			list{in(1, "a", planned, false), in(1, "b", planned, true)}, nil, StatusRunning, step{doStart, "b"}, 1,
		},
		"a wave comes up": {
			list{in(1, "a", done, true), with(in(2, "b", planned, true), unchecked)},
			nil, StatusPlanning,
			step{doCheck, "b"},
			2,
		},
		"its plan was replaced": {
			list{with(in(1, "a", planned, true), func(m *director.CampaignCluster) {
				m.Status = string(plan.StatusDiscarded)
			})}, nil, StatusPlanning, step{doCheck, "a"}, 1,
		},
	} {
		t.Run(name, c.check)
	}
}

// What fails, rests and ends.
func TestProgressOfFailures(t *testing.T) {
	t.Parallel()
	done, planned, failed := plan.StatusDone, plan.StatusPlanned, plan.StatusFailed
	for name, c := range map[string]progressCase{
		"in the pause": {
			list{in(1, "a", done, true), in(2, "b", planned, true)},
			func(c *director.Campaign) { c.Spec.Pause = "90m" }, StatusResting,
			step{},
			2,
		},
		"after the pause": {
			list{in(1, "a", done, true), in(2, "b", planned, true)},
			func(c *director.Campaign) { c.Spec.Pause = "30m" }, StatusRunning,
			step{doStart, "b"},
			2,
		},
		"outside of the window": {
			list{in(1, "a", planned, true)}, func(c *director.Campaign) {
				c.Spec.Window = &director.CampaignWindow{Cron: "0 22 * * *", TimeZone: "UTC", For: time.Hour}
			}, StatusClosed, step{}, 1,
		},
		"one has failed, and none may": {
			list{in(1, "a", failed, true), in(1, "b", planned, true)}, nil, StatusRunning, step{verb: doStop}, 1,
		},
		"one has failed, and one may": {
			list{in(1, "a", failed, true), in(1, "b", planned, true)},
			func(c *director.Campaign) { c.Spec.Failures = "1" }, StatusRunning,
			step{doStart, "b"},
			1,
		},
		"a person continues with the failure": {
			list{with(in(1, "a", failed, true), tolerated), in(1, "b", planned, true)},
			nil, StatusRunning,
			step{doStart, "b"},
			1,
		},
		"given up after its start": {
			list{in(1, "a", plan.StatusDiscarded, true)}, nil, StatusRunning, step{verb: doStop}, 0,
		},
		"a person skipped it": {
			list{with(in(1, "a", failed, true), skipped), in(1, "b", planned, true)},
			nil, StatusRunning,
			step{doStart, "b"},
			1,
		},
		"paused": {
			list{in(1, "a", planned, true)}, func(c *director.Campaign) { c.Paused = day }, StatusPaused, step{}, 1,
		},
		"ended": {
			list{in(1, "a", planned, true)},
			func(c *director.Campaign) { c.Ended, c.EndedBy = day, "ann" },
			StatusEnded,
			step{},
			1,
		},
		"all are through": {
			list{in(1, "a", done, true), {Name: "b", Verdict: director.CampaignRefused}},
			nil, StatusDone,
			step{verb: doFinish},
			0,
		},
	} {
		t.Run(name, c.check)
	}
}

// parkedPlan is a cluster of the first wave whose plan needs a person since an hour.
func parkedPlan(name string) director.CampaignCluster {
	c := in(1, name, plan.StatusParked, true)
	c.Finished, c.Since = time.Time{}, day.Add(-time.Hour)
	return c
}

func unchecked(m *director.CampaignCluster) { m.Checked = false }
func tolerated(m *director.CampaignCluster) { m.Tolerated = m.Plan }
func skipped(m *director.CampaignCluster)   { m.SkippedAt = day }

func TestSizes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		canary, clusters int
		wave             string
		want             []int
	}{
		{1, 200, "10%", []int{1, 20, 20, 20, 20, 20, 20, 20, 20, 20, 19}},
		{0, 5, "2", []int{2, 2, 1}},
		{3, 2, "10%", []int{2}},
		{1, 3, "10%", []int{1, 1, 1}},
		{0, 0, "10%", nil},
		{2, 7, "100%", []int{2, 5}},
	} {
		got := sizes(director.CampaignSpec{Canary: c.canary, Wave: c.wave}, c.clusters)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v: %s", c, diff)
		}
	}
}

// Everything that is wrong is said at once.
func TestProblems(t *testing.T) {
	t.Parallel()
	spec := director.CampaignSpec{
		Selector: director.CampaignSelector{Labels: []string{""}, Statuses: []string{"gone"}},
		Target:   director.CampaignTarget{Release: "r", Operation: "cluster.delete"}, Canary: -1, Wave: "00%",
		Pause:    "soon",
		Failures: "101%", AtOnce: -1, Window: &director.CampaignWindow{
			Cron: "never", TimeZone: "Nowhere",
			For: time.Second,
		},
	}
	var paths []string
	for _, f := range problemsOf(spec) {
		paths = append(paths, f.Path)
		if f.Msg == "" || f.Hint == "" {
			t.Errorf("%+v has no message or no hint", f)
		}
	}
	want := []string{
		"wave", "failures", "pause", "canary", "at_once", "window.time_zone", "window.cron", "window.for",
		"selector.labels[0]", "selector.statuses[0]", "target.release", "target.operation",
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Error(diff)
	}
	good := filled(director.CampaignSpec{Target: director.CampaignTarget{Patch: []byte(`{"release":"r"}`)}})
	if got := problemsOf(good); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	s := director.CampaignSpec{Window: &director.CampaignWindow{
		Cron: "0 22 * * *", TimeZone: "UTC",
		For: 3 * time.Hour,
	}}
	for hour, want := range map[int]bool{21: false, 22: true, 24: true, 25: false} {
		at := time.Date(2026, 6, 1, hour, 30, 0, 0, time.UTC)
		open, opens := Open(s, at)
		if open != want || !open && opens.Hour() != 22 {
			t.Errorf("at %s: %t, opens at %s", at, open, opens)
		}
	}
}

// A cluster that is several minor versions behind is told the way.
func TestPath(t *testing.T) {
	t.Parallel()
	releases := map[string]string{"old": "v1.35.2", "a": "v1.36.1", "b": "v1.36.10", "new": "v1.38.0"}
	want := []string{"v1.36.10 (Release/b)", "v1.37 (no release of it)", "v1.38.0 (Release/new)"}
	if diff := cmp.Diff(want, pathOf("v1.35.2", "new", releases)); diff != "" {
		t.Error(diff)
	}
	if got := pathOf("v1.35.2", "a", releases); got != nil {
		t.Errorf("one minor version: %v", got)
	}
}

// The hash of a wave is that of its plans: another plan, or a cluster less, gives another hash.
func TestWaveHash(t *testing.T) {
	t.Parallel()
	hash := func(list ...director.CampaignCluster) string {
		return ProgressOf(director.Campaign{Spec: filled(director.CampaignSpec{}), Clusters: list}, day).Waves[0].Hash
	}
	a, b := in(1, "a", plan.StatusPlanned, false), in(1, "b", plan.StatusPlanned, false)
	whole := hash(a, b)
	if whole != hash(with(a, func(m *director.CampaignCluster) { m.Status = string(plan.StatusRunning) }), b) {
		t.Error("a start changes the hash")
	}
	for name, other := range map[string]string{
		"another plan": hash(with(a, func(m *director.CampaignCluster) { m.Hash = "x" }), b),
		"skipped":      hash(a, with(b, skipped)),
	} {
		if other == whole {
			t.Errorf("%s: the same hash", name)
		}
	}
}
