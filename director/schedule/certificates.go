package schedule

import (
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
	// RunPlan starts the plan and returns when it has come to an end or waits for a person, with its status.
	RunPlan(ctx context.Context, actor, id string) (plan.Status, error)
}

// CertificatesJob makes plans for clusters whose certificates end soon. It starts them only where the document says so:
// one cluster after another, and none any more when its time is over or a plan did not end well.
func CertificatesJob(r Rotations, now func() time.Time) Job {
	about := "Makes a plan for each cluster that has a certificate which ends soon, as directorctl certs " +
		"rotate does. " +
		"It starts them only with start: true, one after another."
	return Job{Name: "certificates", About: about, Repeatable: true, Prepare: func(p *Params) Work {
		w := rotation{Rotations: r, now: now}
		w.within, w.start = p.Span("within", 30*day, time.Minute), p.Flag("start")
		w.window = p.Span("window", 4*time.Hour, time.Minute)
		return w.run
	}}
}

type rotation struct {
	Rotations
	now            func() time.Time
	within, window time.Duration
	start          bool
}

func (w rotation) run(ctx context.Context, run director.ScheduleRun) (Result, error) {
	ends, err := w.CertificateEnds(ctx)
	if err != nil {
		return Result{}, err
	}
	begun := w.now()
	before := begun.Add(w.within).UTC().Truncate(time.Second)
	var said []string
	var errs []error
	result := Result{}
	for _, cluster := range slices.Sorted(maps.Keys(ends)) {
		switch end := ends[cluster]; {
		case end.IsZero():
			said = append(said, cluster+": its certificates were not seen yet")
			continue
		case !end.Before(before):
			continue
		case w.now().Sub(begun) > w.window:
			said = append(said, cluster+": left to the next run, because the time of this one is over")
			continue
		}
		text, id, err := w.rotate(ctx, actorOf(run), cluster, before)
		if err != nil {
			message, hint := explain(err)
			errs = append(errs, &director.Error{
				Kind: director.KindOf(err), Op: "schedule.certificates", Msg: "cluster " + cluster + ": " + message,
				Hint: hint, Err: err,
			})
			if w.start && id != "" {
				break // what stopped one may stop the next
			}
			continue
		}
		if result.Plan == "" {
			result.Plan = id
		}
		said = append(said, cluster+": "+text)
	}
	result.Message = strings.Join(said, "\n")
	if result.Message == "" && len(errs) == 0 {
		result.Message = fmt.Sprintf(
			"nothing to do: no certificate of %s ends before %s", count(len(ends), "cluster"),
			before.Format(time.RFC3339),
		)
	}
	return result, errors.Join(errs...)
}

// rotate plans for one cluster and starts the plan where that is wanted. id is "" if there is no plan.
func (w rotation) rotate(
	ctx context.Context, actor, cluster string, before time.Time,
) (text, id string, err error) {
	id, op, err := w.WaitingPlan(ctx, cluster)
	switch {
	case err != nil:
		return "", "", err
	case id != "" && op != plan.ClusterRotateCerts:
		return "left alone, because plan " + id + " waits for its start", id, nil
	case id != "" && !w.start:
		return "plan " + id + " waits for its start", id, nil
	}
	if id, err = w.MakeRotation(ctx, actor, cluster, before); err != nil || id == "" {
		return "needs nothing", id, err
	}
	if !w.start {
		return "plan " + id + " was made and waits: directorctl start " + id, id, nil
	}
	status, err := w.RunPlan(ctx, actor, id)
	if err == nil && status != plan.StatusDone {
		err = director.Errorf(director.KindConflict, "schedule.certificates", "plan %s is %s", id, status).
			WithHint("see: directorctl get plan %s; the clusters after it were not touched", id)
	}
	return "plan " + id + " renewed its certificates", id, err
}
