package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Rotations makes plans that renew certificates.
type Rotations interface {
	// CertificateEnds returns when the first certificate of a node ends, by installed cluster; the zero time if nothing
	// was seen of it yet.
	CertificateEnds(ctx context.Context) (map[string]time.Time, error)
	// WaitingPlan returns the plan of the cluster that was made and has not started, with its operation; "" if there is
	// none.
	WaitingPlan(ctx context.Context, cluster string) (id string, op plan.Operation, err error)
	// MakeRotation freezes a plan that renews what ends before the time. It returns "" if nothing is to be done.
	MakeRotation(ctx context.Context, actor, cluster string, before time.Time) (id string, err error)
	// AuthorityEnds returns when the first certificate of an authority ends, by installed cluster and by the operation
	// that changes the authority.
	AuthorityEnds(ctx context.Context) (map[string]map[plan.Operation]time.Time, error)
	// MakePlanOf freezes a plan of the operation that needs no more than its name. It returns "" if nothing is to be
	// done.
	MakePlanOf(ctx context.Context, actor, cluster string, op plan.Operation) (id string, err error)
	// RunPlan starts the plan and returns when it has come to an end or waits for a person, with its status.
	RunPlan(ctx context.Context, actor, id string) (plan.Status, error)
}

// CertificatesJob makes plans for clusters whose certificates end soon. It starts them only where the document says so:
// one cluster after another, and none any more when its time is over or a plan did not end well.
func CertificatesJob(r Rotations, now func() time.Time) Job {
	about := "Makes a plan for each cluster that has a certificate which ends soon, as directorctl certs " +
		"rotate does, and says which authorities end. " +
		"It starts them only with start: true, one after another."
	return Job{Name: "certificates", About: about, Repeatable: true, Prepare: func(p *Params) Work {
		w := rotation{Rotations: r, now: now}
		w.within, w.start = p.Span("within", 30*day, time.Minute), p.Flag("start")
		w.window = p.Span("window", 4*time.Hour, time.Minute)
		w.authorities, w.authoritiesWithin = p.Flag("authorities"), p.Span("authoritiesWithin", 90*day, time.Minute)
		return w.run
	}}
}

type rotation struct {
	Rotations
	now               func() time.Time
	within, window    time.Duration
	authoritiesWithin time.Duration
	start             bool
	authorities       bool // are changed by plans of this job, too
}

func (w rotation) run(ctx context.Context, run director.ScheduleRun) (Result, error) {
	ends, err := w.CertificateEnds(ctx)
	if err != nil {
		return Result{}, err
	}
	authorities, err := w.AuthorityEnds(ctx)
	if err != nil {
		return Result{}, err
	}
	t := turn{rotation: w, actor: actorOf(run), begun: w.now()}
	t.before = t.begun.Add(w.within).UTC().Truncate(time.Second)
	for _, cluster := range slices.Sorted(maps.Keys(ends)) {
		ending := t.endingAuthorities(cluster, authorities[cluster])
		if !t.cluster(ctx, cluster, ends[cluster], ending) {
			break // what stopped one may stop the next
		}
	}
	result := Result{Plan: t.plan, Message: strings.Join(t.said, "\n")}
	if result.Message == "" && len(t.errs) == 0 {
		result.Message = fmt.Sprintf(
			"nothing to do: no certificate of %s ends before %s", count(len(ends), "cluster"),
			t.before.Format(time.RFC3339),
		)
	}
	return result, errors.Join(t.errs...)
}

// authorityNames are the authorities that the operations change.
var authorityNames = map[plan.Operation]string{
	plan.ClusterCA: "cluster", plan.ClusterEtcdCA: "etcd", plan.ClusterFrontProxyCA: "front-proxy",
}

// turn is one run of the job.
type turn struct {
	rotation
	actor         string
	begun, before time.Time
	plan          string // the first that was made
	said          []string
	errs          []error
}

// endingAuthorities says which authorities of the cluster end soon, and returns the operation that changes the first of
// those that have not ended yet; "" if there is none.
func (t *turn) endingAuthorities(cluster string, ends map[plan.Operation]time.Time) (first plan.Operation) {
	until := t.begun.Add(t.authoritiesWithin)
	operations := slices.SortedFunc(maps.Keys(ends), func(a, b plan.Operation) int {
		return cmp.Or(ends[a].Compare(ends[b]), strings.Compare(string(a), string(b)))
	})
	for _, op := range operations {
		end := ends[op]
		switch what := authorityNames[op]; {
		case end.After(until):
		case !end.After(t.begun):
			t.say(cluster, "its %s authority has ended, on %s; change it: directorctl certs rotate %s --cold", what,
				end.UTC().Format(time.RFC3339), cluster)
		default:
			t.say(cluster, "its %s authority ends on %s; change it: directorctl rotate %s-ca %s", what,
				end.UTC().Format(time.RFC3339), what, cluster)
			first = cmp.Or(first, op)
		}
	}
	return first
}

func (t *turn) say(cluster, format string, args ...any) {
	t.said = append(t.said, cluster+": "+fmt.Sprintf(format, args...))
}

// cluster plans for one cluster. It reports whether the run may continue. Where an authority is changed, which renews
// every certificate, nothing else is planned: one plan of a cluster waits at a time.
func (t *turn) cluster(ctx context.Context, cluster string, end time.Time, authority plan.Operation) bool {
	if !t.authorities {
		authority = ""
	}
	switch {
	case authority == "" && end.IsZero():
		t.say(cluster, "its certificates were not seen yet")
		return true
	case authority == "" && !end.Before(t.before):
		return true
	case t.now().Sub(t.begun) > t.window:
		t.say(cluster, "left to the next run, because the time of this one is over")
		return true
	}
	text, id, err := t.rotate(ctx, t.actor, cluster, t.before, authority)
	if err != nil {
		message, hint := explain(err)
		t.errs = append(t.errs, &director.Error{
			Kind: director.KindOf(err), Op: "schedule.certificates", Msg: "cluster " + cluster + ": " + message,
			Hint: hint, Err: err,
		})
		return !t.start || id == ""
	}
	t.plan = cmp.Or(t.plan, id)
	t.say(cluster, "%s", text)
	return true
}

// rotate plans for one cluster and starts the plan where that is wanted: of the authority's change, if one is named.
// id is "" if there is no plan.
func (w rotation) rotate(
	ctx context.Context, actor, cluster string, before time.Time, authority plan.Operation,
) (text, id string, err error) {
	wanted := cmp.Or(authority, plan.ClusterRotateCerts)
	id, op, err := w.WaitingPlan(ctx, cluster)
	switch {
	case err != nil:
		return "", "", err
	case id != "" && op != wanted && op != plan.ClusterRotateCerts:
		return "left alone, because plan " + id + " waits for its start", id, nil
	case id != "" && op == wanted && !w.start:
		return "plan " + id + " waits for its start", id, nil
	}
	if authority == "" {
		id, err = w.MakeRotation(ctx, actor, cluster, before)
	} else {
		id, err = w.MakePlanOf(ctx, actor, cluster, authority)
	}
	if err != nil || id == "" {
		return "needs nothing", id, err
	}
	if !w.start {
		return "plan " + id + " was made and waits: directorctl start " + id, id, nil
	}
	status, err := w.RunPlan(ctx, actor, id)
	if err == nil && authority != "" && status == plan.StatusParked {
		return "plan " + id + " changes its authority and waits for a person: directorctl get plan " + id, id, nil
	}
	if err == nil && status != plan.StatusDone {
		err = director.Errorf(director.KindConflict, "schedule.certificates", "plan %s is %s", id, status).
			WithHint("see: directorctl get plan %s; the clusters after it were not touched", id)
	}
	return "plan " + id + " renewed its certificates", id, err
}
