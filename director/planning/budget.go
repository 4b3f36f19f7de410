package planning

import (
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Allowances returns how many VMs may be made on the provider: by its document, and by the director's configuration for
// an hour over all providers.
func Allowances(name string, p *model.Provider, perHour int) []director.Allowance {
	out := []director.Allowance{
		{Provider: name, Most: p.Budget.Creations, Per: p.Budget.Span(), Field: "spec.budget of Provider/" + name},
		{Most: perHour, Per: time.Hour, Field: "creationsPerHour of the director's configuration"},
	}
	if p.Budget.Creations == 0 {
		return out[1:]
	}
	return out
}

// overBudget warns of a plan that makes more VMs than an allowance has in its span: it will wait on its way. The
// warning is part of the plan, so it says nothing of what is left just now.
func (s prechecks) overBudget(name string, p *model.Provider, c plan.Content) []string {
	count := 0
	for _, s := range c.Steps {
		if s.Kind == step.VMEnsure && !s.Back() {
			count++
		}
	}
	var out []string
	for _, l := range Allowances(name, p, s.CreationsPerHour) {
		if l.Most > 0 && count > l.Most {
			out = append(
				out,
				fmt.Sprintf("it makes up to %d VMs, and the creation budget is %s: it will wait on its way", count, l),
			)
		}
	}
	return out
}
