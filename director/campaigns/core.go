// Package campaigns brings one change to many clusters: wave by wave, each cluster with a frozen plan of its own, and
// nothing starts before a person has agreed to the plans. The truth is in the plans: progress is derived from them.
// What the database adds is what people said, and which plan is a cluster's.
//
// A director moves a campaign on under a lease, one small step after another. Each step is one transaction that looks
// again whether the lease and what people said are the same: killed at any line, the next director continues.
package campaigns

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// State is how far a cluster of a campaign is.
type State string

// The states of a cluster.
const (
	Unplanned State = "unplanned" // its plan is not made yet
	Refused   State = "refused"   // no plan can be made; it is in no wave
	Nothing   State = "nothing"   // it is as the target says
	Outdated  State = "outdated"  // its plan was replaced; it is planned again when its wave comes up
	Planned   State = "planned"   // a person has to agree to its plan
	Agreed    State = "agreed"    // its plan starts in its turn
	Running   State = "running"   // its plan runs
	Done      State = "done"
	Failed    State = "failed"  // its plan has failed, or is parked: a person has to see to it
	Skipped   State = "skipped" // a person took it out
)

// States returns every state of a cluster in the order of a usual life.
func States() []State {
	return []State{Unplanned, Refused, Nothing, Outdated, Planned, Agreed, Running, Done, Failed, Skipped}
}

// settled reports whether nothing happens to the cluster any more by itself.
func (s State) settled() bool {
	return s == Refused || s == Nothing || s == Done || s == Failed || s == Skipped
}

// StateOf derives the state of a cluster from its plan.
func StateOf(c director.CampaignCluster) State {
	switch {
	case !c.SkippedAt.IsZero():
		return Skipped
	case c.Verdict == director.CampaignRefused:
		return Refused
	case c.Verdict == director.CampaignNothing:
		return Nothing
	case c.Verdict == director.CampaignUnplanned:
		return Unplanned
	}
	switch status := plan.Status(c.Status); status {
	case plan.StatusPlanned, plan.StatusApproved:
		if c.AgreedHash != "" && c.AgreedHash == c.Hash {
			return Agreed
		}
		return Planned
	case plan.StatusDone:
		return Done
	case plan.StatusFailed, plan.StatusCancelled, plan.StatusUndone, plan.StatusParked:
		return Failed // a parked plan may wait for days: other clusters must not run into the same wall meanwhile
	case plan.StatusDiscarded, "":
		if !c.Started.IsZero() {
			return Failed
		}
		return Outdated
	case plan.StatusRunning, plan.StatusPaused, plan.StatusCancelling, plan.StatusUndoing:
		return Running
	default:
		return Running
	}
}

// Status is how far a campaign is.
type Status string

// The statuses of a campaign.
const (
	StatusPlanning Status = "planning" // plans are made, at first or again for the wave that has come up
	StatusWaiting  Status = "waiting"  // for a person to agree to the wave
	StatusResting  Status = "resting"  // in the pause between two waves
	StatusClosed   Status = "closed"   // outside of the window of time
	StatusRunning  Status = "running"
	StatusPaused   Status = "paused" // a person, or the stop rule, lets no plan start
	StatusDone     Status = "done"   // every cluster is through
	StatusEnded    Status = "ended"  // a person ended it
)

// Statuses returns every status of a campaign in the order of a usual life.
func Statuses() []Status {
	return []Status{
		StatusPlanning, StatusWaiting, StatusResting, StatusClosed, StatusRunning, StatusPaused, StatusDone,
		StatusEnded,
	}
}

// Wave is how far a wave is.
type Wave struct {
	Number   int
	Clusters int
	Counts   map[State]int
	Hash     string // a person agrees by it; it covers the plans of all clusters of the wave
	Current  bool
	Over     bool
	ended    time.Time
}

// Progress is how far a campaign is.
type Progress struct {
	Status   Status
	Wave     int // the current one; 0 before there are waves and after the last
	Waves    []Wave
	Counts   map[State]int
	Failures int       // that count against the stop rule
	Allowed  int       // more than so many stop the campaign
	Until    time.Time // of a pause, or of a closed window
	next     step
}

// verb is what a director does next.
type verb string

const (
	doNothing verb = ""
	doPlan    verb = "plan"   // make the first plan of a cluster
	doAssign  verb = "assign" // put the clusters into waves
	doStop    verb = "stop"   // too many have failed
	doCheck   verb = "check"  // see whether the plan of a cluster still holds, or make it again
	doStart   verb = "start"  // start the plan of a cluster
	doFinish  verb = "finish"
)

// step is one thing that a director does next.
type step struct {
	verb    verb
	cluster string
}

// ProgressOf derives how far the campaign is. It is pure: the same campaign at the same time gives the same progress.
func ProgressOf(c director.Campaign, now time.Time) Progress { return progressOf(c, now, nil) }

// progressOf is ProgressOf without the clusters that are not to be touched now.
func progressOf(c director.Campaign, now time.Time, not map[string]bool) Progress {
	p := Progress{Counts: map[State]int{}}
	total, unplanned, assigned := 0, "", true
	for _, m := range c.Clusters {
		s := StateOf(m)
		p.Counts[s]++
		if s == Unplanned && unplanned == "" && !not[m.Name] {
			unplanned = m.Name
		}
		if m.Wave > 0 {
			total++
		}
		if m.Wave == 0 && !s.settled() {
			assigned = false
		}
		if s == Failed && m.Tolerated != m.Plan {
			p.Failures++
		}
	}
	p.Allowed, _ = amount(c.Spec.Failures, total)
	p.waves(c.Clusters)
	switch {
	case !c.Ended.IsZero() && c.EndedBy != "":
		p.Status = StatusEnded
	case !c.Ended.IsZero():
		p.Status = StatusDone
	case !c.Paused.IsZero():
		p.Status = StatusPaused
	case p.Counts[Unplanned] > 0:
		p.Status = StatusPlanning
		if unplanned != "" {
			p.next = step{doPlan, unplanned}
		}
	case !assigned:
		p.Status, p.next = StatusPlanning, step{verb: doAssign}
	case p.Failures > p.Allowed:
		p.Status, p.next = StatusRunning, step{verb: doStop}
	case p.Wave == 0:
		p.Status, p.next = StatusDone, step{verb: doFinish}
	default:
		p.current(c, now, not)
	}
	return p
}

// waves counts the clusters of each wave and finds the current one.
func (p *Progress) waves(clusters []director.CampaignCluster) {
	hashes := map[int][]string{}
	for _, m := range clusters {
		if m.Wave == 0 {
			continue
		}
		for len(p.Waves) < m.Wave {
			p.Waves = append(p.Waves, Wave{Number: len(p.Waves) + 1, Counts: map[State]int{}, Over: true})
		}
		w, s := &p.Waves[m.Wave-1], StateOf(m)
		w.Clusters++
		w.Counts[s]++
		w.Over = w.Over && s.settled()
		if at := settledAt(m, s); at.After(w.ended) {
			w.ended = at
		}
		if s != Skipped && s != Refused && s != Nothing && m.Hash != "" {
			hashes[m.Wave] = append(hashes[m.Wave], m.Name+" "+m.Hash)
		}
	}
	for i := range p.Waves {
		w := &p.Waves[i]
		w.Hash = hashOf(hashes[w.Number])
		if !w.Over && p.Wave == 0 {
			p.Wave, w.Current = w.Number, true
		}
	}
}

// settledAt is when the plan of the cluster came to its end; a parked plan has come to none, and counts from then on.
func settledAt(m director.CampaignCluster, s State) time.Time {
	if s == Failed && m.Finished.IsZero() {
		return m.Since
	}
	return m.Finished
}

// hashOf is the hash of a wave over the plans of its clusters, in their order.
func hashOf(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:])
}

// current says how far the current wave is, and what is next in it.
func (p *Progress) current(c director.Campaign, now time.Time, not map[string]bool) {
	wave := p.Waves[p.Wave-1]
	if until := p.rest(c.Spec); now.Before(until) {
		p.Status, p.Until = StatusResting, until
		return
	}
	open, opens := Open(c.Spec, now)
	stale := 0
	for _, m := range c.Clusters {
		s := StateOf(m)
		if m.Wave != p.Wave || s.settled() || s == Running {
			continue
		}
		due := step{}
		switch {
		case s == Outdated || !m.Checked:
			stale++
			due = step{doCheck, m.Name}
		case s == Agreed && open && wave.Counts[Running] < c.Spec.AtOnce:
			due = step{doStart, m.Name}
		}
		if !not[m.Name] && (p.next.verb == doNothing || p.next.verb == doStart && due.verb == doCheck) &&
			due.verb != doNothing {
			p.next = due
		}
	}
	switch {
	case wave.Counts[Running] > 0:
		p.Status = StatusRunning
	case stale > 0:
		p.Status = StatusPlanning
	case wave.Counts[Agreed] > 0 && !open:
		p.Status, p.Until = StatusClosed, opens
	case wave.Counts[Agreed] > 0:
		p.Status = StatusRunning
	default:
		p.Status = StatusWaiting
	}
}

// rest returns until when the pause before the current wave lasts; zero for none.
func (p *Progress) rest(s director.CampaignSpec) time.Time {
	pause, err := pauseOf(s)
	if err != nil || pause == 0 || p.Wave == 1 {
		return time.Time{}
	}
	var last time.Time
	for _, w := range p.Waves[:p.Wave-1] {
		if w.ended.After(last) {
			last = w.ended
		}
	}
	if last.IsZero() { // no cluster before it had anything to do
		return time.Time{}
	}
	return last.Add(pause)
}

// stopReason says why the campaign stops.
func stopReason(c director.Campaign, p Progress) string {
	var names []string
	for _, m := range c.Clusters {
		if StateOf(m) == Failed && m.Tolerated != m.Plan {
			names = append(names, m.Name)
		}
	}
	text := strings.Join(names[:min(len(names), 5)], ", ")
	if len(names) > 5 {
		text += fmt.Sprintf(" and %d more", len(names)-5)
	}
	return fmt.Sprintf("failed: %s; %d may fail", text, p.Allowed)
}
