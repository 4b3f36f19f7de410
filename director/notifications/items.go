package notifications

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/webhook"
)

// Wait is a wait of a plan that a person ends.
type Wait struct {
	Plan, Cluster string
	Operation     plan.Operation
	Status        plan.Status
	Reason        string
	Since         time.Time
}

// Question is what a plan waits for a hook to answer.
type Question struct {
	ID, Hook, Phase, Plan, Cluster, Node string
	Since                                time.Time
}

// Backup is how the backups and the restore drills of a cluster are.
type Backup struct {
	Cluster   string
	Newest    time.Time // zero without a backup
	Late      bool
	DrillLate bool
	Drill     string    // plan of the newest drill, if it failed
	Problem   string    // of that one
	Drilled   time.Time // when the last drill succeeded; zero without one
}

// Schedule is how the runs of a schedule ended.
type Schedule struct {
	Name, Job string
	Failed    time.Time // slot of the newest run that ended, if it failed
	Problem   string    // of that one
	Succeeded time.Time // slot of the newest run that succeeded; zero for none
	Late      bool      // it backs up the director, and none has succeeded for two slots
}

// mostText is how much of a text of others a line has.
const mostText = 300

// seen is what the last look brought.
type seen struct {
	plans   []director.NotificationItem // and questions of hooks
	backups []director.NotificationItem // and runs of schedules
	certs   []director.Certificate
	slow    time.Time     // when backups and certificates were looked at
	within  time.Duration // how far the certificates reach
}

// look looks at what is so.
func (s *Service) look(ctx context.Context, docs []model.Stored, now time.Time) error {
	waits, err := s.c.World.Waits(ctx)
	if err != nil {
		return err
	}
	questions, err := s.c.World.Questions(ctx)
	if err != nil {
		return err
	}
	s.seen.plans = nil
	for _, w := range waits {
		s.seen.plans = append(s.seen.plans, w.item())
	}
	for _, q := range questions {
		s.seen.plans = append(s.seen.plans, q.item())
	}
	var within time.Duration
	for _, d := range docs {
		within = max(within, time.Duration(d.Notification.Within))
	}
	if now.Sub(s.seen.slow) < slowly && within <= s.seen.within {
		return nil
	}
	backups, err := s.c.World.Backups(ctx)
	if err != nil {
		return err
	}
	schedules, err := s.c.World.Schedules(ctx)
	if err != nil {
		return err
	}
	certs, err := s.c.World.Certificates(ctx, now.Add(within))
	if err != nil {
		return err
	}
	s.seen.backups = nil
	for _, b := range backups {
		s.seen.backups = append(s.seen.backups, b.items()...)
	}
	for _, one := range schedules {
		s.seen.backups = append(s.seen.backups, one.items()...)
	}
	s.seen.certs, s.seen.slow, s.seen.within = certs, now, within
	return nil
}

// of returns what the notification is to tell of all that was seen.
func (s *seen) of(n model.Notification, now time.Time) []director.NotificationItem {
	var out []director.NotificationItem
	for _, i := range slices.Concat(s.plans, s.backups, ending(s.certs, time.Duration(n.Within), now)) {
		if n.Tells(i.About) && n.For(i.Cluster) {
			out = append(out, i)
		}
	}
	return out
}

func line(format string, args ...any) string {
	return webhook.Clip(fmt.Sprintf(format, args...), mostText)
}

func planPath(id string) string { return "/plans/" + url.PathEscape(id) }

func (w Wait) item() director.NotificationItem {
	i := director.NotificationItem{
		// Another wait of the plan has another time. Before its start a plan waits for one thing.
		Key: fmt.Sprintf("plan/%s/%d", w.Plan, w.Since.UnixMicro()), About: model.AboutApprovals, Cluster: w.Cluster,
		Text: line("Plan %s (%s of cluster %s): %s", w.Plan, w.Operation, w.Cluster, w.Reason),
		Path: planPath(w.Plan), Since: w.Since,
	}
	switch w.Status {
	case plan.StatusFailed:
		i.About = model.AboutFailures
	case plan.StatusPlanned, plan.StatusApproved:
		i.Key = "plan/" + w.Plan + "/start"
	}
	return i
}

func (q Question) item() director.NotificationItem {
	about := "cluster " + q.Cluster
	if q.Node != "" {
		about = "node " + q.Node + " of " + about
	}
	return director.NotificationItem{
		Key: "hook/" + q.ID, About: model.AboutApprovals, Cluster: q.Cluster,
		Text: line("Plan %s waits for an answer to hook %s: %s of %s", q.Plan, q.Hook, q.Phase, about),
		Path: planPath(q.Plan), Since: q.Since,
	}
}

func (b Backup) items() []director.NotificationItem {
	var out []director.NotificationItem
	add := func(about, key, path string, since time.Time, format string, args ...any) {
		out = append(out, director.NotificationItem{
			Key: about + "/" + b.Cluster + "/" + key, About: about, Cluster: b.Cluster, Text: line(format, args...),
			Path: path, Since: since,
		})
	}
	switch {
	case b.Late && b.Newest.IsZero():
		add(
			model.AboutBackups, "late", "/backups", b.Newest,
			"Cluster %s has no backup, and should have one", b.Cluster,
		)
	case b.Late:
		add(model.AboutBackups, "late", "/backups", b.Newest, "The backup of cluster %s is late: the newest is from %s",
			b.Cluster, moment(b.Newest))
	}
	if b.Problem != "" {
		add(model.AboutDrills, b.Drill, planPath(b.Drill), time.Time{}, "The restore drill of cluster %s failed: %s",
			b.Cluster, b.Problem)
	}
	switch {
	case b.DrillLate && b.Drilled.IsZero():
		add(model.AboutDrills, "late", "/backups", b.Drilled, "No restore drill of cluster %s has succeeded yet",
			b.Cluster)
	case b.DrillLate:
		add(model.AboutDrills, "late", "/backups", b.Drilled,
			"The restore drill of cluster %s is late: the last that succeeded was at %s", b.Cluster, moment(b.Drilled))
	}
	return out
}

// aboutJob is what a failure of a job is about; others are failures.
var aboutJob = map[string]string{
	jobBackup: model.AboutBackups, "etcd-backup": model.AboutBackups, "restore-drill": model.AboutDrills,
}

// jobBackup is the job that backs up the director itself.
const jobBackup = "backup"

func (c Schedule) items() []director.NotificationItem {
	var out []director.NotificationItem
	add := func(about, key string, since time.Time, format string, args ...any) {
		out = append(out, director.NotificationItem{
			Key: "schedule/" + c.Name + "/" + key, About: about, Text: line(format, args...), Path: "/schedules",
			Since: since,
		})
	}
	if !c.Failed.IsZero() {
		// One that fails every few minutes is told once a day.
		add(cmp.Or(aboutJob[c.Job], model.AboutFailures), c.Failed.UTC().Format(time.DateOnly), c.Failed,
			"The run of schedule %s (job %s) at %s failed: %s", c.Name, c.Job, moment(c.Failed), c.Problem)
	}
	switch {
	case c.Late && c.Succeeded.IsZero():
		add(model.AboutBackups, "late", c.Succeeded, "Schedule %s has made no backup of the director yet", c.Name)
	case c.Late:
		add(model.AboutBackups, "late", c.Succeeded,
			"The backup of the director is late: the last of schedule %s that succeeded was at %s", c.Name,
			moment(c.Succeeded))
	}
	return out
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// urgent is how long before its end a certificate is told of again.
const urgent = 3 * 24 * time.Hour

// ending returns the certificates that end within the time: those of a cluster that end on the same day are one item,
// and each of its authorities is one of its own, wherever it was seen.
func ending(certs []director.Certificate, within time.Duration, now time.Time) []director.NotificationItem {
	var order []string
	groups := map[string][]director.Certificate{}
	for _, c := range certs {
		if !c.EndsWithin(within, now) {
			continue
		}
		day := c.Cluster + "/" + c.Ends.UTC().Format(time.DateOnly)
		if r := c.Rotation(); r != "" {
			day += "/" + r
		}
		if groups[day] == nil {
			order = append(order, day)
		}
		groups[day] = append(groups[day], c)
	}
	var out []director.NotificationItem
	for _, day := range order {
		out = append(out, certificates(day, groups[day], now))
	}
	return out
}

// certificates is the item of certificates that end on the same day.
func certificates(day string, of []director.Certificate, now time.Time) director.NotificationItem {
	first := slices.MinFunc(of, func(a, b director.Certificate) int { return a.Ends.Compare(b.Ends) })
	stage, verb := "soon", "ends"
	switch left := first.Ends.Sub(now); {
	case left <= 0:
		stage, verb = "ended", "has ended"
	case left <= urgent:
		stage = "urgent"
	}
	whose, path := "the director", "/certificates"
	if first.Cluster != "" {
		whose, path = "cluster "+first.Cluster, "/certificates?cluster="+url.QueryEscape(first.Cluster)
	}
	name := first.Name
	if first.Node != "" {
		name += " on " + first.Node
	}
	text := line("The certificate %s of %s %s at %s", name, whose, verb, moment(first.Ends))
	if r := first.Rotation(); r != "" {
		what := strings.TrimSuffix(r, "-ca")
		text = line("The %s authority of %s %s at %s; change it: directorctl rotate %s %s", what, whose, verb,
			moment(first.Ends), r, first.Cluster)
		if stage == "ended" {
			text = line("The %s authority of %s %s at %s; change it: directorctl certs rotate %s --cold", what, whose,
				verb, moment(first.Ends), first.Cluster)
		}
	} else if len(of) > 1 {
		text = line("%d certificates of %s end on one day: %s %s first, at %s", len(of), whose, name, verb,
			moment(first.Ends))
	}
	return director.NotificationItem{
		Key: model.AboutCertificates + "/" + day + "/" + stage, About: model.AboutCertificates, Cluster: first.Cluster,
		Text: text, Path: path,
	}
}

// arrange sorts items by urgency, and then by the time since when they hold.
func arrange(items []director.NotificationItem) {
	rank := func(i director.NotificationItem) int { return slices.Index(model.Abouts(), i.About) }
	slices.SortStableFunc(items, func(a, b director.NotificationItem) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key))
	})
}
