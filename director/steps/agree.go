package steps

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Journal tells what has happened to plans.
type Journal interface {
	// Events returns the events of a plan with Seq > after, at most limit, in order.
	Events(ctx context.Context, id string, after int64, limit int) ([]plan.Event, error)
}

// eventsPerPage bounds what is held in memory of a long journal.
const eventsPerPage = 500

// namedPods is how many pods a question names; it counts the others.
const namedPods = 10

// authorityAgree waits for a person before another authority signs, while pods run that may not trust it, and before
// the former one goes, in any case. To retry the step is to agree.
func (e keySteps) authorityAgree(ctx context.Context, r plan.Run, p step.AgreeParams) error {
	const op = "authority.agree"
	a, err := e.agreement(ctx, r, p.Since)
	if err != nil {
		return err
	}
	if a.by != "" {
		r.Note(ctx, a.by+" has agreed")
		return nil
	}
	var old []string
	look := func(ctx context.Context, api API) (_ string, err error) {
		old, err = api.OldTrust(ctx, a.published, a.begun, p.Away)
		return "", err
	}
	if err := e.await(ctx, r, p.UID, p.Cluster, p.Endpoint, look); err != nil {
		return err
	}
	retry := "directorctl retry " + r.Plan.ID
	if p.Do == step.AuthorityUse {
		if len(old) == 0 {
			return nil
		}
		return plan.Park(
			director.Errorf(
				director.KindConflict, op, "%s signs next, and %s since before all nodes trusted it: %s", p.Name,
				have(len(old)), some(old),
			),
			"restart those that read kube-root-ca.crt only at their start (kubectl rollout restart), which would not "+
				"trust API servers any more, and go on: "+retry,
		)
	}
	what := "nothing uses the former " + p.Authority + " authority; once it goes, what it has signed is refused"
	if len(old) > 0 {
		what += fmt.Sprintf("; %s since before all nodes trusted %s: %s", have(len(old)), p.Name, some(old))
	}
	return plan.Park(
		director.Errorf(director.KindConflict, op, "%s", what),
		"see that people and programs have other kubeconfigs, and have it go: "+retry,
	)
}

// agreement is what the journal has of a question, and of the step that gives pods the authorities that they read.
type agreement struct {
	// begun and published are when that step first started, and when it ended. It restarts the pods of kube-system
	// itself, once it has published: those that are newer than its start have what they need.
	begun, published time.Time
	by               string // who has had the plan go on after it had asked; "" for no one
}

func (e keySteps) agreement(ctx context.Context, r plan.Run, publishes string) (a agreement, err error) {
	asked := false
	for after := int64(0); ; {
		events, err := e.Journal.Events(ctx, r.Plan.ID, after, eventsPerPage)
		if err != nil {
			return a, err
		}
		for _, event := range events {
			after = event.Seq
			switch {
			case event.Step == publishes && event.Kind == plan.Started && a.begun.IsZero():
				a.begun = event.At
			case event.Step == publishes && (event.Kind == plan.Succeeded || event.Kind == plan.SkipAsked):
				a.published = event.At
			case event.Step != r.Step.ID:
			case event.Kind == plan.NeedsHuman:
				asked, a.by = true, ""
			case event.Kind == plan.Retried && asked:
				a.by = event.By
			}
		}
		if len(events) < eventsPerPage {
			if a.begun.IsZero() { // it was left out
				a.begun = a.published
			}
			return a, nil
		}
	}
}

func have(pods int) string {
	if pods == 1 {
		return "1 pod has run"
	}
	return fmt.Sprintf("%d pods have run", pods)
}

// some names the first of many.
func some(pods []string) string {
	if len(pods) <= namedPods {
		return strings.Join(pods, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(pods[:namedPods], ", "), len(pods)-namedPods)
}
