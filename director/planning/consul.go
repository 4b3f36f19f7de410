package planning

import (
	"context"
	"encoding/json"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Consuls looks into Consuls.
type Consuls interface {
	// TakenNodes returns what is wrong with agents on the machines in the Consul: nodes of others that have the names.
	TakenNodes(ctx context.Context, consul string, machines []string) ([]director.Field, error)
}

// consulPatience bounds the look into a Consul: no plan waits for one that hangs.
const consulPatience = 10 * time.Second

// checkAgents says whether agents of Consul that the plan runs on nodes could have the names of the nodes. A Consul
// that is away refuses no plan.
func (s prechecks) checkAgents(ctx context.Context, c plan.Content) []director.Field {
	if s.Consuls == nil {
		return nil
	}
	var p step.ConsulTokenParams
	for _, st := range c.Steps {
		var of step.ConsulTokenParams
		if st.Kind == step.ConsulAgents && json.Unmarshal(st.Params, &of) == nil &&
			(of.Do == step.TokenMake || of.Do == step.TokenRenew) {
			p = of
		}
	}
	if p.Consul == "" {
		return nil
	}
	facts, err := step.DecodeFacts(c)
	if err != nil {
		return nil // the plan is refused for that
	}
	var machines []string
	for _, m := range facts.Nodes { // what follows a machine has its name
		machines = append(machines, m.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, consulPatience)
	defer cancel()
	problems, err := s.Consuls.TakenNodes(ctx, p.Consul, machines)
	if err != nil {
		s.Log.WarnContext(ctx, "did not look for nodes of others in a Consul", "consul", p.Consul, "err", err)
	}
	return problems
}
