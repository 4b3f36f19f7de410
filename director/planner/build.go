package planner

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director/plan"
)

type builder struct {
	op    plan.Operation
	steps []plan.Step
}

func (b *builder) add(s plan.Step) string {
	s.Safety = safetyOf(b.op, s)
	b.steps = append(b.steps, s)
	return s.ID
}

func (b *builder) play(playbook, subject, title string, needs, limit []string, estimate time.Duration, effects ...plan.Effect) string {
	s := plan.Step{
		ID: playbook + "/" + subject, Kind: StepPlay, Title: title, Needs: needs, Effects: effects,
		Params:   encode(PlayParams{Playbook: "install/" + playbook + ".yml", Limit: limit}),
		Attempts: 3, Timeout: 30 * time.Minute, Estimate: estimate,
	}
	if len(limit) == 1 {
		s.Node = limit[0]
	}
	return b.add(s)
}

// estimated puts what steps of the same class have taken of late in the place of the planner's own guesses.
func (w World) estimated(steps []plan.Step) []plan.Step {
	for i := range steps {
		if took, known := w.Times[steps[i].Class()]; known {
			steps[i].Estimate = took.Round(time.Millisecond)
		}
	}
	return steps
}

// clones returns the budgets that a clone takes: an upload or a clone is work for the host's and the provider's storage.
func clones(provider, host string) []string {
	out := []string{BudgetClones + "/" + provider}
	if host != "" {
		out = append(out, BudgetClones+"/"+provider+"/"+host)
	}
	return out
}

// BudgetClones is the first part of the budgets of VMs that are made at once: followed by the provider, or by provider and host.
const BudgetClones = "clones"

// count renders a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("planner: " + err.Error()) // plain structs of our own
	}
	return b
}
