package schedule

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // an appliance may have no zones of its own

	"github.com/robfig/cron/v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// Slots tells when a schedule is due.
//
// A spec with fixed hours has each of its times on the wall clock once: a time that the change to summer time leaves
// out is due at the change, and one that the change back repeats is due the first time. A spec with every hour (*) and
// @every follow the time that really passes.
type Slots struct {
	spec  cron.Schedule
	fixed *cron.SpecSchedule // set for a spec with fixed hours; its zone is UTC
	zone  *time.Location
}

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// star marks a field that was written as *, as the parser leaves it.
const star = 1 << 63

// ParseSlots reads what a Schedule document says. Every problem comes back in one invalid error.
func ParseSlots(s model.Schedule) (Slots, error) {
	var fields []director.Field
	bad := func(path, hint, format string, args ...any) {
		fields = append(fields, director.Field{Path: path, Msg: fmt.Sprintf(format, args...), Hint: hint})
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil || s.TimeZone == "Local" {
		bad("spec.timeZone", "an IANA name such as Europe/Berlin, or UTC", "%q is not a time zone", s.TimeZone)
		zone = time.UTC
	}
	out := Slots{zone: zone}
	if strings.Contains(s.Cron, "TZ=") {
		bad("spec.cron", "write the zone in spec.timeZone", "has a time zone in it")
	} else if out.spec, err = parser.Parse(s.Cron); err != nil {
		bad(
			"spec.cron", "minute, hour, day of month, month, day of week, such as 30 2 * * *, or @daily",
			"%q is not a time to come back: %v", s.Cron, err,
		)
	}
	switch spec := out.spec.(type) {
	case *cron.SpecSchedule:
		spec.Location = zone
		if spec.Hour&star == 0 {
			wall := *spec
			wall.Location = time.UTC
			out.fixed = &wall
		}
		if spec.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
			bad("spec.cron", "", "%q never comes", s.Cron)
		}
	case cron.ConstantDelaySchedule:
		if spec.Delay < time.Minute {
			bad("spec.cron", "at least @every 1m", "%q is too often", s.Cron)
		}
	}
	return out, director.Invalid("schedule.parse", "the schedule is not valid", fields)
}

// Next returns the first slot after the time, in UTC.
func (s Slots) Next(after time.Time) time.Time {
	if s.fixed == nil {
		return s.spec.Next(after.In(s.zone)).UTC()
	}
	// The wall clock stops or jumps back at some slots, so it begins a little before: an hour covers every change that
	// there is.
	for wall := onWall(after.In(s.zone)).Add(-2 * time.Hour); ; {
		wall = s.fixed.Next(wall)
		if wall.IsZero() {
			return time.Time{}
		}
		if at := s.instant(wall); at.After(after) {
			return at.UTC()
		}
	}
}

// onWall is what a clock on the wall shows, as if it were UTC.
func onWall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant returns when the wall clock first shows the time, or the moment at which it jumps over it.
func (s Slots) instant(wall time.Time) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, s.zone)
	start, end := at.ZoneBounds()
	if !onWall(at).Equal(wall) { // the clock never shows it: at lies on one of the two sides of the jump
		if onWall(at).After(wall) && !start.IsZero() {
			return start
		}
		return end
	}
	// Of a time that the clock shows twice, time.Date does not say which it takes.
	if !start.IsZero() {
		_, offset := at.Zone()
		_, before := start.Add(-time.Second).Zone()
		if first := at.Add(
			time.Duration(offset-before) * time.Second,
		); first.Before(start) && onWall(first.In(s.zone)).Equal(wall) {
			return first
		}
	}
	return at
}

// most bounds the slots that Due counts at once; two months of minutes.
const most = 90_000

// Due returns how many slots lie in (after, until], the last of them and the one before it.
func (s Slots) Due(after, until time.Time) (n int, last, before time.Time) {
	for at := s.Next(after); !at.IsZero() && !at.After(until) && n < most; at = s.Next(at) {
		n, last, before = n+1, at, last
	}
	return n, last, before
}
