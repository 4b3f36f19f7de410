package planner

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// agents is what the agents of Consul on the cluster's nodes are told; nil for a cluster without. A drill has none.
func (w World) agents() *step.Agents {
	c := w.Consul.Consul
	if _, drill := director.DrillOf(w.Cluster.UID); drill || c == nil || !w.Cluster.Cluster.Discovery.Agents {
		return nil
	}
	a := &step.Agents{
		Owner: w.Director.ID, Datacenter: c.Datacenter, Domain: c.Domain, Join: c.Agents.Servers(), CA: c.TLS.CA,
		AutoEncrypt: c.Agents.AutoEncrypt, URL: c.Agents.Program.URL, SHA256: c.Agents.Program.SHA256,
		ProgramCA: c.Agents.Program.CA,
	}
	if len(c.Agents.Networks) == 0 {
		return a
	}
	for _, n := range c.Agents.Networks {
		a.Networks = append(a.Networks, n.String())
	}
	for _, server := range a.Join {
		if host, _, err := net.SplitHostPort(server); err == nil {
			if _, err := netip.ParseAddr(host); err == nil {
				a.Networks = append(a.Networks, host)
			}
		}
	}
	return a
}

// agentTokens has tokens for the agents on all nodes of the plan, once in the plan, and returns the step. It returns ""
// for a cluster without agents.
func (d consulDraft) agentTokens() string {
	if d.w.agents() == nil {
		return ""
	}
	id := step.ConsulAgents + "/" + string(step.TokenMake)
	if slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return s.ID == id }) {
		return id
	}
	consul := d.w.Cluster.Cluster.Discovery.Consul
	return d.agentStep(step.TokenMake, consul, "Have tokens for the agents of Consul on nodes", plan.Effect{
		Verb: "create", Object: "secret", Name: "Consul/" + consul, Detail: "an ACL token of each node; sealed",
	}, nil)
}

// bringAgents brings the agents on the nodes of a cluster that runs to the document, and returns the last steps. Nodes
// that the plan prepares have theirs by then.
func (d consulDraft) bringAgents(how discovering, needs []string) []string {
	if d.w.Installed == nil {
		return needs
	}
	is, was := d.w.Cluster.Cluster.Discovery, d.w.Installed.Cluster.Discovery
	other := was.Agents && is.Agents && was.Consul != is.Consul
	if was.Agents && !is.Agents || other {
		needs = d.playMembers(playbook{
			name: "consul_agents_remove", subject: d.Cluster, title: "Remove the agents of Consul from the nodes",
			effects:  []plan.Effect{{Verb: "delete", Object: "file", Name: d.Cluster, Detail: "agents of Consul"}},
			estimate: 20 * time.Second,
		}, "it keeps its agent of Consul until it is recreated", needs)
		needs = []string{d.endAgents(was.Consul, needs)}
	}
	changed := d.w.offersOthers()
	if !is.Agents || was.Agents && !other && how != renewed && len(changed) == 0 {
		return needs
	}
	if was.Agents && !other && how != renewed {
		return d.registerServices(changed, needs)
	}
	if how == renewed {
		needs = []string{d.agentStep(step.TokenRenew, is.Consul, "Make other tokens for agents of Consul", plan.Effect{
			Verb: "create", Object: "secret", Name: "Consul/" + is.Consul, Detail: "an ACL token of each node; sealed",
		}, needs)}
	} else {
		needs = append(slices.Clone(needs), d.agentTokens())
	}
	needs = d.playMembers(playbook{
		name: "consul_agents", subject: d.Cluster, title: "Run an agent of Consul on each node",
		effects: []plan.Effect{{
			Verb: "create", Object: "file", Name: d.Cluster, Detail: "program, configuration and unit of the agents",
		}},
		estimate: 30 * time.Second,
	}, "it gets its agent of Consul when it rejoins", needs)
	if how == renewed {
		needs = []string{d.agentStep(step.TokenSettle, is.Consul, "End the former tokens of the agents", plan.Effect{
			Verb: "delete", Object: "secret", Name: "Consul/" + is.Consul, Detail: "former tokens of the agents",
		}, needs)}
	}
	return needs
}

// registerServices brings the agents on nodes of the pools other services.
func (d consulDraft) registerServices(pools []string, needs []string) []string {
	return d.playMembers(playbook{
		name: "consul_agents", subject: d.Cluster,
		title: "Have the agents of Consul register the services of the nodes",
		effects: []plan.Effect{{
			Verb: "change", Object: "file", Name: d.Cluster, Detail: "services in the configuration of the agents",
		}},
		estimate: 20 * time.Second,
	}, "its services in Consul follow when it rejoins", append(slices.Clone(needs), d.agentTokens()), pools...)
}

// offersOthers returns the pools whose nodes offer other services than when the cluster was installed, by the name that
// machines have of them. Nodes of a pool that is new have theirs from the start.
func (w World) offersOthers() []string {
	if w.Installed == nil {
		return nil
	}
	var out []string
	was, is := w.Installed.Cluster, w.Cluster.Cluster
	if !sameServices(was.Masters.Services, is.Masters.Services) {
		out = append(out, "master")
	}
	for _, p := range is.Workers {
		i := slices.IndexFunc(was.Workers, func(o model.WorkerPool) bool { return o.Name == p.Name })
		if i >= 0 && !sameServices(was.Workers[i].Services, p.Services) {
			out = append(out, p.Name)
		}
	}
	return out
}

func sameServices(a, b []model.VMService) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// playMembers runs the playbook on the members that stay as they are, of all pools or of some. A machine that is off
// must not stop the others.
func (d *draft) playMembers(p playbook, dead string, needs []string, pools ...string) []string {
	var off []string
	for _, m := range d.w.members() {
		switch {
		case len(pools) > 0 && !slices.Contains(pools, m.Pool):
		case slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return s.ID == step.NodeLeft+"/"+m.Name }):
		case d.w.up(m.Name):
			p.limit = append(p.limit, m.Name)
		default:
			off = append(off, m.Name)
		}
	}
	if len(off) > 0 {
		d.warn(strings.Join(off, ", ") + " does not answer: " + dead)
	}
	if len(p.limit) == 0 {
		return needs
	}
	return []string{d.play(p, needs, group{})}
}

// endAgents ends what the agents of the cluster have in the Consul.
func (d consulDraft) endAgents(consul string, needs []string) string {
	return d.agentStep(step.TokenEnd, consul, "Remove the agents of the nodes from Consul", plan.Effect{
		Verb: "delete", Object: "secret", Name: "Consul/" + consul, Detail: "policy, tokens and nodes of the agents",
	}, needs)
}

// agentStep adds a step of the tokens of the agents in the Consul.
func (d consulDraft) agentStep(
	do step.ConsulTokenVerb, consul, title string, effect plan.Effect, needs []string,
) string {
	return d.add(plan.Step{
		ID: step.ConsulAgents + "/" + string(do), Kind: step.ConsulAgents, Title: title, Needs: unique(needs),
		Params: encode(step.ConsulTokenParams{
			ConsulParams: step.ConsulParams{Consul: consul, UID: d.w.Cluster.UID, Cluster: d.Cluster}, Do: do,
		}),
		Effects: []plan.Effect{effect}, Attempts: 3, Timeout: consulLimit, Estimate: time.Second,
	})
}

// learns tells whether the cluster and a Consul learn more of each other than where API servers are.
func learns(d model.Discovery) bool { return d.Syncs() || d.DNS || d.Agents }
