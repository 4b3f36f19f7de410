package steps

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulagent"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// SecretConsulAgents is what the agents on the nodes of a cluster are known by in a Consul.
const SecretConsulAgents = "consul-agents"

// consulAgents makes and ends the tokens of the agents on a cluster's nodes. What is sealed here says what Consul is to
// have, and is written first: a run that was killed, or a Consul that is away, leaves the rest to the next comparison.
func (e consulSteps) consulAgents(ctx context.Context, r plan.Run, p step.ConsulTokenParams) error {
	if e.Registrar == nil {
		return nil
	}
	have, known, err := e.ConsulAgents(ctx, p.UID)
	if err != nil {
		return err
	}
	known = known && have.Consul == p.Consul
	switch p.Do {
	case step.TokenEnd:
		if known {
			if err := e.SetConsulAgents(ctx, p.UID, nil); err != nil {
				return err
			}
		}
		return left(ctx, r, "removing the agents", p.ConsulParams, e.Registrar.EndAgents(ctx, p.Consul, p.UID))
	case step.TokenSettle:
		if !known {
			return nil
		}
		have.Former = false
	case step.TokenMake, step.TokenRenew:
		if have, err = e.wantAgents(ctx, r, p, have, known); err != nil {
			return err
		}
	}
	if err := e.SetConsulAgents(ctx, p.UID, &have); err != nil {
		return err
	}
	state, err := e.Registrar.KeepAgents(ctx, p.Consul, p.UID)
	switch {
	case director.KindOf(err) == director.KindForbidden:
		return err // a person has to give the right
	case err == nil && state == director.TokenNone:
		have.Tokens = nil
		return e.SetConsulAgents(ctx, p.UID, &have)
	}
	return left(ctx, r, "bringing the tokens of the agents", p.ConsulParams, err)
}

// wantAgents returns what is to be sealed: a token for each machine of the plan, another one for all if they are
// renewed, and the gossip key of now. A key that cannot be had is no obstacle where agents run with one.
func (e consulSteps) wantAgents(
	ctx context.Context, r plan.Run, p step.ConsulTokenParams, have director.ConsulAgents, known bool,
) (director.ConsulAgents, error) {
	facts, err := e.facts.of(r.Plan)
	if err != nil {
		return have, plan.Abort(err)
	}
	want := director.ConsulAgents{
		Consul: p.Consul, Tokens: map[string]director.AgentToken{}, Former: p.Do == step.TokenRenew,
	}
	if known {
		want.Former = want.Former || have.Former
		for node, t := range have.Tokens {
			want.Tokens[node] = t
		}
	}
	if want.Gossip, err = e.Registrar.GossipKey(ctx, p.Consul); err != nil {
		if !known || p.Do == step.TokenRenew {
			return have, err
		}
		r.Note(ctx, "the gossip key stays as it was: "+director.MessageOf(err))
		want.Gossip = have.Gossip
	}
	machines := map[string]plan.MachineSpec{}
	for _, m := range append(facts.Nodes, facts.Moves...) { // what follows a machine has its name
		machines[m.Name] = m
	}
	for node, m := range machines {
		t, there := want.Tokens[node]
		if !there || t.Machine != m.ID || (p.Do == step.TokenRenew && t.Plan != r.Plan.ID) {
			t = director.AgentToken{
				Machine: m.ID, Accessor: uuid.NewString(), Secret: director.Secret(uuid.NewString()), Plan: r.Plan.ID,
			}
		}
		t.Services = servicesOf(facts, m)
		want.Tokens[node] = t
	}
	return want, nil
}

// servicesOf returns the names that the agent on the machine registers, each once and sorted.
func servicesOf(f step.Facts, m plan.MachineSpec) []string {
	var names []string
	for _, s := range f.Services(m) {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sealedAgents is how the tokens of agents are sealed.
type sealedAgents struct {
	Consul string                 `json:"consul"`
	Gossip string                 `json:"gossip,omitempty"`
	Former bool                   `json:"former,omitempty"`
	Tokens map[string]sealedAgent `json:"tokens,omitempty"`
}

type sealedAgent struct {
	Machine  string `json:"machine"`
	Accessor string `json:"accessor"`
	Secret   string `json:"secret"`
	Plan     string `json:"plan"`

	Services []string `json:"services,omitempty"`
}

// ConsulAgents returns what the agents of the cluster with that uid are known by in Consul, and whether it has agents.
func (e Keys) ConsulAgents(ctx context.Context, uid string) (director.ConsulAgents, bool, error) {
	sealed, err := e.Secrets.Secret(ctx, uid, SecretConsulAgents)
	if err != nil || sealed == nil {
		return director.ConsulAgents{}, false, err
	}
	s, err := unsealJSON[sealedAgents](e.Sealer, uid, SecretConsulAgents, sealed)
	if err != nil {
		return director.ConsulAgents{}, false, err
	}
	a := director.ConsulAgents{
		Consul: s.Consul, Gossip: director.Secret(s.Gossip), Former: s.Former,
		Tokens: make(map[string]director.AgentToken, len(s.Tokens)),
	}
	for node, t := range s.Tokens {
		a.Tokens[node] = director.AgentToken{
			Machine: t.Machine, Accessor: t.Accessor, Secret: director.Secret(t.Secret), Plan: t.Plan,
			Services: t.Services,
		}
	}
	return a, true, nil
}

// SetConsulAgents keeps what the agents of the cluster with that uid are known by in Consul; nil for none.
func (e Keys) SetConsulAgents(ctx context.Context, uid string, a *director.ConsulAgents) error {
	if a == nil {
		return e.Secrets.SetSecret(ctx, uid, SecretConsulAgents, nil)
	}
	s := sealedAgents{
		Consul: a.Consul, Gossip: a.Gossip.Reveal(), Former: a.Former,
		Tokens: make(map[string]sealedAgent, len(a.Tokens)),
	}
	for node, t := range a.Tokens {
		s.Tokens[node] = sealedAgent{t.Machine, t.Accessor, t.Secret.Reveal(), t.Plan, t.Services}
	}
	plain, err := json.Marshal(s)
	if err != nil {
		return err
	}
	sealed, err := e.Sealer.Seal(uid, SecretConsulAgents, plain)
	if err != nil {
		return err
	}
	return e.Secrets.SetSecret(ctx, uid, SecretConsulAgents, sealed)
}

// agentFiles returns what a machine is told of its agent of Consul at its first boot: no secret. The role consul_agent
// finds the same there. A plan without facts, as those of a deletion are, has no agents.
func agentFiles(cache *factsCache, r plan.Run, m plan.MachineSpec) ([]cloudinit.File, error) {
	if r.Plan == nil || len(r.Plan.Facts) == 0 {
		return nil, nil
	}
	facts, err := cache.of(r.Plan)
	if err != nil {
		return nil, plan.Abort(err)
	}
	told, err := consulagent.OnNode(facts, m)
	if err != nil {
		return nil, err
	}
	var files []cloudinit.File
	for _, f := range told {
		files = append(files, cloudinit.File{Path: f.Path, Content: f.Text})
	}
	return files, nil
}

// agentVars adds the secrets of the agents of Consul to the variables of a run.
func (e playSteps) agentVars(ctx context.Context, uid string, vars map[string]string) error {
	agents, known, err := e.ConsulAgents(ctx, uid)
	if err != nil || !known {
		return err
	}
	tokens := make(map[string]string, len(agents.Tokens))
	for node, t := range agents.Tokens {
		tokens[node] = t.Secret.Reveal()
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		return err
	}
	vars["consul_agent_tokens"], vars["consul_gossip_key"] = string(text), agents.Gossip.Reveal()
	return nil
}
