package steps

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// barracks is a Consul that takes what it is brought, or fails.
type barracks struct {
	away
	err   error
	key   director.Secret
	noKey error
	state director.TokenState
	kept  int
	ended []string
}

func (b *barracks) GossipKey(context.Context, string) (director.Secret, error) { return b.key, b.noKey }

func (b *barracks) KeepAgents(context.Context, string, string) (director.TokenState, error) {
	b.kept++
	return b.state, b.err
}

func (b *barracks) EndAgents(_ context.Context, consul, _ string) error {
	b.ended = append(b.ended, consul)
	return b.err
}

// agentsOf is a director with agents of Consul, as a test runs steps on it.
type agentsOf struct {
	*testing.T
	env    Env
	consul *barracks
	notes  []string
}

// run runs a step of a plan for the machines, by name and id, and returns what is sealed then.
func (a *agentsOf) run(
	id string, verb step.ConsulTokenVerb, consul string, machines map[string]string,
) (director.ConsulAgents, error) {
	a.Helper()
	f := step.Facts{UID: "u1"}
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		f.Nodes = append(f.Nodes, plan.MachineSpec{Name: name, ID: machines[name]})
	}
	facts, err := json.Marshal(f)
	if err != nil {
		a.Fatal(err)
	}
	r := plan.Run{
		Plan: &plan.Plan{ID: id, Content: plan.Content{Format: plan.Plain, Facts: facts}},
		Note: func(_ context.Context, note string) { a.notes = append(a.notes, note) },
	}
	p := step.ConsulTokenParams{ConsulParams: step.ConsulParams{Consul: consul, UID: "u1", Cluster: "demo"}, Do: verb}
	failed := a.env.consul().consulAgents(a.Context(), r, p)
	have, _, err := a.env.ConsulAgents(a.Context(), "u1")
	if err != nil {
		a.Fatal(err)
	}
	return have, failed
}

// do is run that has to succeed.
func (a *agentsOf) do(
	id string, verb step.ConsulTokenVerb, consul string, machines map[string]string,
) director.ConsulAgents {
	a.Helper()
	have, err := a.run(id, verb, consul, machines)
	if err != nil {
		a.Fatal(err)
	}
	return have
}

// The life of the tokens of agents: each run again gives the same, another machine gets another token, and a Consul
// that is away fails no plan.
func TestConsulAgents(t *testing.T) {
	t.Parallel()
	b := &barracks{state: director.TokenThere, key: "gossip"}
	a := &agentsOf{T: t, consul: b, env: Env{
		Registrar: b,
		Clusters:  Clusters{Keys: Keys{Secrets: vault{}, Sealer: &countingSealer{}}},
	}}
	first := a.do("p1", step.TokenMake, "dc1", map[string]string{"w1": "m1"})
	if first.Gossip != "gossip" || first.Tokens["w1"].Machine != "m1" || first.Tokens["w1"].Secret == "" {
		t.Errorf("made is %+v", first)
	}
	again := a.do("p2", step.TokenMake, "dc1", map[string]string{"w1": "m1", "w2": "m2"})
	if again.Tokens["w1"].Secret != first.Tokens["w1"].Secret || again.Tokens["w2"].Secret == "" {
		t.Errorf("another plan gives %+v after %+v", again, first)
	}
	other := a.do("p3", step.TokenMake, "dc1", map[string]string{"w1": "m1", "w2": "m3"})
	if other.Tokens["w1"].Secret != first.Tokens["w1"].Secret ||
		other.Tokens["w2"].Secret == again.Tokens["w2"].Secret {
		t.Errorf("another machine of the name has %+v after %+v", other, again)
	}
	renewed := a.do("p4", step.TokenRenew, "dc1", map[string]string{"w1": "m1"})
	if renewed.Tokens["w1"].Secret == first.Tokens["w1"].Secret || !renewed.Former {
		t.Errorf("a renewal gives %+v", renewed)
	}
	second := a.do("p4", step.TokenRenew, "dc1", map[string]string{"w1": "m1"})
	if second.Tokens["w1"].Secret != renewed.Tokens["w1"].Secret {
		t.Errorf("its second run gives %+v", second)
	}
	if settled := a.do("p4", step.TokenSettle, "dc1", nil); settled.Former || len(settled.Tokens) != 2 {
		t.Errorf("settled is %+v", settled)
	}
	vars := map[string]string{}
	if err := a.env.plays().agentVars(t.Context(), "u1", vars); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(vars["consul_agent_tokens"], `"w1":"`+renewed.Tokens["w1"].Secret.Reveal()) ||
		vars["consul_gossip_key"] != "gossip" {
		t.Errorf("a play gets %v", vars)
	}
	if b.kept != 6 || len(a.notes) != 0 {
		t.Errorf("%d times brought, and said %q", b.kept, a.notes)
	}
	a.troubles(renewed)
}

// troubles has the Consul away, and without rights.
func (a *agentsOf) troubles(have director.ConsulAgents) {
	b := a.consul
	b.err = director.Errorf(director.KindUnavailable, "test", "dc1 does not answer")
	b.noKey = director.Errorf(director.KindNotFound, "test", "there are no credentials")
	more := a.do("p5", step.TokenMake, "dc1", map[string]string{"w3": "m4"})
	if len(a.notes) != 2 || !strings.Contains(a.notes[1], "is left to the comparison of Consul/dc1") ||
		more.Tokens["w3"].Secret == "" || more.Gossip != have.Gossip {
		a.Errorf("a Consul that is away: %q, %+v", a.notes, more)
	}
	if _, err := a.run("p6", step.TokenRenew, "dc1", nil); director.KindOf(err) != director.KindNotFound {
		a.Errorf("a renewal without the key of the gossip: %v", err)
	}
	b.noKey, b.err = nil, director.Errorf(director.KindForbidden, "test", "the director may make no tokens")
	if _, err := a.run("p7", step.TokenMake, "dc1", nil); director.KindOf(err) != director.KindForbidden {
		a.Errorf("a right that is missing: %v", err)
	}
	b.err = nil
	if left := a.do("p8", step.TokenEnd, "dc2", nil); left.Consul != "dc1" {
		a.Errorf("the end in another Consul leaves %+v", left)
	}
	left := a.do("p8", step.TokenEnd, "dc1", nil)
	if left.Consul != "" || !slices.Equal(b.ended, []string{"dc2", "dc1"}) {
		a.Errorf("after the end there is %+v; ended are %v", left, b.ended)
	}
	b.state = director.TokenNone
	none := a.do("p9", step.TokenMake, "dc1", map[string]string{"w1": "m1"})
	if len(none.Tokens) > 0 || none.Consul != "dc1" {
		a.Errorf("a Consul without ACLs: %+v", none)
	}
}

// A VM finds the files of its agent at its first boot, of the plan's facts as they were frozen, and no secret.
func TestAgentFilesAtBoot(t *testing.T) {
	t.Parallel()
	env := sshEnv(t)
	p := localMachine("m1")
	seed := func(f *step.Facts) string {
		t.Helper()
		r := plan.Run{Plan: &plan.Plan{Content: plan.Content{Format: plan.Plain}}}
		if f != nil {
			var err error
			if r.Plan.Facts, err = json.Marshal(f); err != nil {
				t.Fatal(err)
			}
		}
		files, err := agentFiles(env.facts, r, p.Machine)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := env.vms().vmSpec(t.Context(), "c1", p, files...)
		if err != nil {
			t.Fatal(err)
		}
		return string(spec.Seed.UserData)
	}
	if err := env.SetConsulAgents(t.Context(), "c1", &director.ConsulAgents{
		Consul: "dc1", Gossip: "a2V5", Tokens: map[string]director.AgentToken{p.Machine.Name: {Secret: "s3cret"}},
	}); err != nil {
		t.Fatal(err)
	}
	with := seed(&step.Facts{UID: "c1", Agents: &step.Agents{
		Owner: "d1", Datacenter: "dc1", Domain: "consul", Join: []string{"10.0.0.11:8301"}, CA: "PEM\n",
	}})
	for _, want := range []string{
		"/etc/consul.d/director-agent.json", "/etc/consul.d/director-services.json", "/etc/consul.d/director-ca.pem",
		`"node_name": "kaas-demo-m1"`, `"10.0.0.11:8301"`, `"dns": 8600`,
		"/etc/systemd/system/kaas-consul.service", "ConditionPathExists=/etc/consul.d/director.json",
	} {
		if !strings.Contains(with, want) {
			t.Errorf("the seed has no %s:\n%s", want, with)
		}
	}
	for _, secret := range []string{"s3cret", "a2V5", "path: /etc/consul.d/director.json"} {
		if strings.Contains(with, secret) {
			t.Errorf("the seed has %s", secret)
		}
	}
	for what, text := range map[string]string{"no agents": seed(&step.Facts{UID: "c1"}), "no facts": seed(nil)} {
		if strings.Contains(text, "consul") {
			t.Errorf("a plan with %s has a seed with\n%s", what, text)
		}
	}
}
