package steps

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// SecretConsul is what the sync of a cluster with a Consul is known by there.
const SecretConsul = "consul-token"

// Registrar writes and removes what a cluster has in a Consul, by the name of its document. All methods are idempotent.
type Registrar interface {
	Register(ctx context.Context, consul, uid string) error
	Deregister(ctx context.Context, consul, uid string) error
	// MakeToken brings the policy and the token to Consul, and tells what became of it. One that Consul has had, and
	// that was revoked, is not brought again.
	MakeToken(ctx context.Context, uid string, t director.ConsulToken) (director.TokenState, error)
	// KeepToken ends all tokens of the cluster's sync but one.
	KeepToken(ctx context.Context, consul, uid, accessor string) error
	// EndSync ends all tokens of the cluster's sync, and removes its policy and its entries.
	EndSync(ctx context.Context, consul, uid string) error
	// GossipKey returns the gossip key of the Consul, or "" if its document names none.
	GossipKey(ctx context.Context, consul string) (director.Secret, error)
	// KeepAgents brings the tokens of the agents of the cluster's machines to Consul, as ConsulAgents tells them, and
	// ends others. A token that was revoked is a conflict, and is not brought again.
	KeepAgents(ctx context.Context, consul, uid string) (director.TokenState, error)
	// EndAgents ends all tokens of the cluster's agents, and removes their policy and their nodes.
	EndAgents(ctx context.Context, consul, uid string) error
}

// consulSteps register clusters in Consuls, and install the agents of nodes.
type consulSteps struct {
	Keys
	Registrar Registrar
	facts     *factsCache
}

// consulRegister writes the entries of a cluster that has just come up.
func (e consulSteps) consulRegister(ctx context.Context, r plan.Run, p step.ConsulParams) error {
	if e.Registrar == nil {
		return nil
	}
	return left(ctx, r, "registering the cluster", p, e.Registrar.Register(ctx, p.Consul, p.UID))
}

// consulDeregister removes the entries of a cluster whose VMs are gone.
func (e consulSteps) consulDeregister(ctx context.Context, r plan.Run, p step.ConsulParams) error {
	if e.Registrar == nil {
		return nil
	}
	return left(ctx, r, "removing the cluster's entries", p, e.Registrar.Deregister(ctx, p.Consul, p.UID))
}

// left leaves to the next comparison what a Consul did not take: no plan fails for it, or waits.
func left(ctx context.Context, r plan.Run, what string, p step.ConsulParams, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	r.Note(ctx, what+" is left to the comparison of Consul/"+p.Consul+": "+director.MessageOf(err))
	return nil
}

// consulToken makes and ends tokens of the cluster's sync. What is sealed here says what Consul is to have, and is
// written first: a run that was killed, or a Consul that is away, leaves the rest to the next comparison.
func (e consulSteps) consulToken(ctx context.Context, r plan.Run, p step.ConsulTokenParams) error {
	if e.Registrar == nil {
		return nil
	}
	have, known, err := e.ConsulToken(ctx, p.UID)
	if err != nil {
		return err
	}
	known = known && have.Consul == p.Consul
	switch p.Do {
	case step.TokenSettle:
		if !known || have.Accessor == "" {
			return nil
		}
		have.Former = false
		if err := e.setConsulToken(ctx, p.UID, have); err != nil {
			return err
		}
		err := e.Registrar.KeepToken(ctx, p.Consul, p.UID, have.Accessor)
		return left(ctx, r, "ending the former tokens", p.ConsulParams, err)
	case step.TokenEnd:
		if known {
			if err := e.Secrets.SetSecret(ctx, p.UID, SecretConsul, nil); err != nil {
				return err
			}
		}
		return left(ctx, r, "removing the sync", p.ConsulParams, e.Registrar.EndSync(ctx, p.Consul, p.UID))
	case step.TokenMake, step.TokenRenew:
	}
	if !known || have.Accessor == "" || (p.Do == step.TokenRenew && have.Plan != r.Plan.ID) {
		have = freshToken(p, r.Plan.ID)
	}
	have.Rules, have.Former = p.Rules, have.Former || p.Do == step.TokenRenew
	return e.makeToken(ctx, r, p, have)
}

func freshToken(p step.ConsulTokenParams, planID string) director.ConsulToken {
	return director.ConsulToken{
		Consul: p.Consul, Accessor: uuid.NewString(), Secret: director.Secret(uuid.NewString()), Plan: planID,
	}
}

// makeToken brings the token to Consul. A missing right is said at once; a Consul that is away gets it later.
func (e consulSteps) makeToken(
	ctx context.Context, r plan.Run, p step.ConsulTokenParams, t director.ConsulToken,
) error {
	for {
		if err := e.setConsulToken(ctx, p.UID, t); err != nil {
			return err
		}
		state, err := e.Registrar.MakeToken(ctx, p.UID, t)
		if err != nil {
			if director.KindOf(err) != director.KindUnavailable {
				return err
			}
			return left(ctx, r, "making the token", p.ConsulParams, err)
		}
		switch state {
		case director.TokenRevoked: // by a person, so it is not used again
			rules, former := t.Rules, t.Former
			t = freshToken(p, r.Plan.ID)
			t.Rules, t.Former = rules, former
			continue
		case director.TokenNone:
			t.Accessor, t.Secret = "", ""
			return e.setConsulToken(ctx, p.UID, t)
		case director.TokenThere:
		}
		return nil
	}
}

// sealedToken is how a token is sealed.
type sealedToken struct {
	Consul   string `json:"consul"`
	Accessor string `json:"accessor"`
	Secret   string `json:"secret"`
	Rules    string `json:"rules"`
	Plan     string `json:"plan"`
	Former   bool   `json:"former,omitempty"`
}

// ConsulToken returns what the sync of the cluster with that uid is known by in Consul, and whether it has a sync.
func (e Keys) ConsulToken(ctx context.Context, uid string) (director.ConsulToken, bool, error) {
	sealed, err := e.Secrets.Secret(ctx, uid, SecretConsul)
	if err != nil || sealed == nil {
		return director.ConsulToken{}, false, err
	}
	s, err := unsealJSON[sealedToken](e.Sealer, uid, SecretConsul, sealed)
	return director.ConsulToken{
		Consul: s.Consul, Accessor: s.Accessor, Secret: director.Secret(s.Secret), Rules: s.Rules, Plan: s.Plan,
		Former: s.Former,
	}, err == nil, err
}

// setConsulToken keeps what the sync of the cluster with that uid is known by in Consul.
func (e consulSteps) setConsulToken(ctx context.Context, uid string, t director.ConsulToken) error {
	plain, err := json.Marshal(sealedToken{t.Consul, t.Accessor, t.Secret.Reveal(), t.Rules, t.Plan, t.Former})
	if err != nil {
		return err
	}
	sealed, err := e.Sealer.Seal(uid, SecretConsul, plain)
	if err != nil {
		return err
	}
	return e.Secrets.SetSecret(ctx, uid, SecretConsul, sealed)
}
