package campaigns

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/schedule"
)

// The defaults of a campaign.
const (
	defaultWave   = "10%"
	defaultAtOnce = 10
	mostClusters  = 5000
	mostText      = 400       // bytes of an entry of a selector
	mostPatch     = 64 * 1024 // bytes
)

// filled is the spec with its defaults.
func filled(s director.CampaignSpec) director.CampaignSpec {
	s.Wave = cmp.Or(s.Wave, defaultWave)
	s.Pause = cmp.Or(s.Pause, director.PauseAgreed)
	s.Failures = cmp.Or(s.Failures, "0")
	s.AtOnce = cmp.Or(s.AtOnce, defaultAtOnce)
	if s.Window != nil {
		w := *s.Window
		w.TimeZone = cmp.Or(w.TimeZone, "UTC")
		s.Window = &w
	}
	return s
}

// problemsOf returns everything that is wrong with a filled spec.
func problemsOf(s director.CampaignSpec) []director.Field {
	var out []director.Field
	bad := func(path, msg, hint string) { out = append(out, director.Field{Path: path, Msg: msg, Hint: hint}) }
	if n, err := amount(s.Wave, 100); err != nil || n == 0 {
		bad("wave", fmt.Sprintf("%q is not a number of clusters", s.Wave), "write 10, or 10%")
	}
	if _, err := amount(s.Failures, 100); err != nil {
		bad("failures", fmt.Sprintf("%q is not a number of clusters", s.Failures), "write 0, 2, or 5%")
	}
	if _, err := pauseOf(s); err != nil {
		bad("pause", fmt.Sprintf("%q is not a pause", s.Pause), "write a time such as 1h, or "+director.PauseAgreed)
	}
	if s.Canary < 0 || s.Canary > mostClusters {
		bad("canary", "is out of range", fmt.Sprintf("write a number from 0 to %d", mostClusters))
	}
	if s.AtOnce < 1 || s.AtOnce > mostClusters {
		bad("at_once", "is out of range", fmt.Sprintf("write a number from 1 to %d", mostClusters))
	}
	if w := s.Window; w != nil {
		_, err := slotsOf(*w)
		for _, f := range director.FieldsOf(err) {
			path, ok := map[string]string{"spec.cron": "cron", "spec.timeZone": "time_zone"}[f.Path]
			if !ok {
				path = "cron"
			}
			bad("window."+path, f.Msg, f.Hint)
		}
		if w.For < time.Minute || w.For > 7*24*time.Hour {
			bad("window.for", "is out of range", "write a time from 1m to 168h")
		}
	}
	out = append(out, selectorProblems(s.Selector)...)
	return append(out, targetProblems(s.Target)...)
}

// statuses are those that a cluster may have.
var statuses = []string{"absent", "creating", "ready", "deleting", "failed", "changing"}

func selectorProblems(s director.CampaignSelector) []director.Field {
	var out []director.Field
	for _, list := range []struct {
		name  string
		items []string
		most  int
	}{
		{"clusters", s.Clusters, mostClusters},
		{"labels", s.Labels, 20},
		{"statuses", s.Statuses, 10},
		{"versions", s.Versions, 20},
	} {
		path := "selector." + list.name
		if len(list.items) > list.most {
			out = append(out, director.Field{
				Path: path, Msg: fmt.Sprintf("has %d entries", len(list.items)),
				Hint: fmt.Sprintf("give at most %d", list.most),
			})
			continue
		}
		for i, item := range list.items {
			at := fmt.Sprintf("%s[%d]", path, i)
			switch {
			case item == "" || len(item) > mostText:
				out = append(out, director.Field{
					Path: at, Msg: "is empty or too long", Hint: fmt.Sprintf("write 1 to %d bytes", mostText),
				})
			case list.name == "statuses" && !slices.Contains(statuses, item):
				out = append(out, director.Field{
					Path: at, Msg: fmt.Sprintf("%q is no status of a cluster", item),
					Hint: "one of " + strings.Join(statuses, ", "),
				})
			}
		}
	}
	return out
}

func targetProblems(t director.CampaignTarget) []director.Field {
	var out []director.Field
	bad := func(path, msg, hint string) {
		out = append(out, director.Field{Path: "target." + path, Msg: msg, Hint: hint})
	}
	set := 0
	for _, is := range []bool{t.Release != "" || t.Image != "", len(t.Patch) > 0, t.Operation != ""} {
		if is {
			set++
		}
	}
	if set != 1 {
		bad("release", fmt.Sprintf("%d targets are given, and there must be one", set),
			"give a release with its image, or a patch, or an operation")
	}
	if t.Release == "" && t.Image != "" {
		bad("image", "comes without a release", "name the release that the image is for")
	}
	if t.Operation != "" && t.Operation != string(plan.ClusterRotatePull) {
		bad("operation", "is nothing that a campaign can do", "write "+string(plan.ClusterRotatePull))
	}
	if len(t.Patch) > mostPatch {
		bad("patch", fmt.Sprintf("has %d bytes", len(t.Patch)), fmt.Sprintf("write at most %d", mostPatch))
		return out
	}
	var patch map[string]any
	if len(t.Patch) > 0 && (json.Unmarshal(t.Patch, &patch) != nil || len(patch) == 0) {
		bad("patch", "is not an object with fields of spec", `write it like {"maintenance": {"window": 2}}`)
	}
	return out
}

// amount is what a number, or a per cent value, is of all. Per cents are rounded down.
func amount(text string, all int) (int, error) {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || percent && n > 100 || n > mostClusters {
		return 0, fmt.Errorf("campaigns: %q is not an amount", text)
	}
	if percent {
		return all * n / 100, nil
	}
	return n, nil
}

// pauseOf is the time between waves; 0 for a pause that a person ends.
func pauseOf(s director.CampaignSpec) (time.Duration, error) {
	if s.Pause == director.PauseAgreed {
		return 0, nil
	}
	d, err := time.ParseDuration(s.Pause)
	if err == nil && (d < 0 || d > 90*24*time.Hour) {
		err = fmt.Errorf("campaigns: a pause of %s", d)
	}
	return d, err
}

func slotsOf(w director.CampaignWindow) (schedule.Slots, error) {
	return schedule.ParseSlots(model.Schedule{Cron: w.Cron, TimeZone: w.TimeZone})
}

// Open reports whether plans of the campaign may start now, and otherwise when they may again.
func Open(s director.CampaignSpec, now time.Time) (bool, time.Time) {
	if s.Window == nil {
		return true, time.Time{}
	}
	slots, err := slotsOf(*s.Window)
	if err != nil {
		return false, time.Time{} // it was valid when the campaign was made
	}
	if begun := slots.Next(now.Add(-s.Window.For)); !begun.IsZero() && !begun.After(now) {
		return true, time.Time{}
	}
	return false, slots.Next(now)
}

// sizes returns how many clusters each wave has.
func sizes(s director.CampaignSpec, clusters int) []int {
	var out []int
	left := clusters
	if s.Canary > 0 && left > 0 {
		out = append(out, min(s.Canary, left))
		left -= out[0]
	}
	n, err := amount(s.Wave, clusters)
	if n = max(n, 1); err != nil {
		n = 1
	}
	if digits, percent := strings.CutSuffix(s.Wave, "%"); percent {
		if p, err := strconv.Atoi(digits); err == nil {
			n = max(1, (clusters*p+99)/100)
		}
	}
	for left > 0 {
		out = append(out, min(n, left))
		left -= out[len(out)-1]
	}
	return out
}

// request is what a plan of the campaign is asked for.
func request(t director.CampaignTarget) plan.Request {
	switch {
	case t.Release != "":
		change := map[string]string{"release": t.Release}
		if t.Image != "" {
			change["image"] = t.Image
		}
		patch, _ := json.Marshal(change) // strings always marshal
		return plan.Request{Operation: plan.ClusterUpgrade, Change: patch}
	case len(t.Patch) > 0:
		return plan.Request{Change: t.Patch}
	}
	return plan.Request{Operation: plan.Operation(t.Operation)}
}
