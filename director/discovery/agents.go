package discovery

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// agentPrefix begins the name of the policy of the agents of a cluster, before the uid. All their tokens have it, and
// each names its node besides.
const agentPrefix = director.ConsulPrefix + "agents-"

// agentRules are what an agent may besides writing its own node: answer DNS for all.
const agentRules = `node_prefix "" { policy = "read" }
service_prefix "" { policy = "read" }
`

// agentTokens keep the tokens of the agents on nodes.
type agentTokens struct{ *Service }

func (s *Service) agents() agentTokens { return agentTokens{s} }

// GossipKey returns the gossip key of the Consul, or "" if its document names none.
func (s *Service) GossipKey(ctx context.Context, consul string) (director.Secret, error) {
	doc, err := s.consul(ctx, consul)
	if err != nil || doc.Consul.Gossip == "" {
		return "", err
	}
	account, err := s.Accounts.OpenConsul(ctx, consul, doc.Consul.Gossip, *doc.Consul)
	if err != nil {
		return "", err
	}
	return director.Secret(strings.TrimSpace(account.Password.Reveal())), gossipKey(account)
}

// KeepAgents brings the tokens of the agents of the cluster's machines to Consul, and ends others of the cluster. A
// token that was revoked is a conflict, and stays so. It is idempotent. Errors: forbidden for a director whose own
// token may make none.
func (s *Service) KeepAgents(ctx context.Context, consul, uid string) (director.TokenState, error) {
	doc, h, err := s.open(ctx, consul)
	if err != nil {
		return "", err
	}
	if doc.Consul.Credentials == "" {
		return director.TokenNone, nil
	}
	c, err := s.agents().cluster(ctx, uid)
	if err != nil || !c.agentsIn(consul) {
		return "", err
	}
	list, err := h.allPolicies(ctx)
	var revoked []string
	if err == nil {
		revoked, err = s.agents().keepAgents(ctx, h, doc, c, list)
	}
	if aclsOff(err) {
		return director.TokenNone, nil
	}
	if err != nil {
		return "", err
	}
	return director.TokenThere, revokedAgents(revoked)
}

// EndAgents ends all tokens of the agents of the cluster, and removes their policy and the nodes whose agents are gone.
// It is idempotent.
func (s *Service) EndAgents(ctx context.Context, consul, uid string) error {
	doc, h, err := s.open(ctx, consul)
	if err != nil {
		return err
	}
	if doc.Consul.Credentials != "" {
		if err := h.endPolicy(ctx, s.Director, agentPrefix+uid); err != nil {
			return err
		}
		list, err := h.allPolicies(ctx)
		if err == nil {
			err = s.endServices(ctx, h, list, uid, nil)
		}
		if err != nil && !aclsOff(err) {
			return err
		}
	}
	have, err := h.read(ctx, s.Director)
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(have.Agents, func(n CatalogNode) bool { return n.Meta[MetaCluster] != uid || n.Alive })
	return each(writers, gone, func(n CatalogNode) error { return h.removeNode(ctx, n) })
}

// cluster returns the cluster as it is now; a zero one if it is gone.
func (s agentTokens) cluster(ctx context.Context, uid string) (Cluster, error) {
	world, err := s.world(ctx)
	for _, c := range world.manned() {
		if c.UID == uid {
			return c, err
		}
	}
	return Cluster{}, err
}

// agentsIn tells whether a plan has installed agents of the Consul on the cluster's nodes.
func (c Cluster) agentsIn(consul string) bool { return c.Agents != nil && c.Agents.Consul == consul }

// machine returns the living machine that a node of that name is.
func (c Cluster) machine(node string) (director.Machine, bool) {
	i := slices.IndexFunc(c.Machines, func(m director.Machine) bool { return m.Name == node })
	if i < 0 {
		return director.Machine{}, false
	}
	return c.Machines[i], true
}

// agentTokens returns the tokens that Consul is to have: those of living machines, by the name of the node.
func (c Cluster) agentTokens() map[string]director.AgentToken {
	out := map[string]director.AgentToken{}
	for node, t := range c.Agents.Tokens {
		if slices.ContainsFunc(c.Machines, func(m director.Machine) bool { return m.ID == t.Machine }) {
			out[node] = t
		}
	}
	return out
}

// surplus returns the tokens that are not those of the cluster's agents. While nodes are given others, the former ones
// of nodes that there are stay.
func (c Cluster) surplus(list []*api.ACLTokenListEntry) []*api.ACLTokenListEntry {
	if c.Agents == nil {
		return nil // they end with the policy
	}
	wanted := map[string]bool{}
	for _, t := range c.agentTokens() {
		wanted[t.Accessor] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(t *api.ACLTokenListEntry) bool {
		return wanted[t.AccessorID] || c.Agents.Former && slices.ContainsFunc(
			t.NodeIdentities, func(n *api.ACLNodeIdentity) bool {
				_, there := c.machine(strings.TrimPrefix(n.NodeName, director.ConsulPrefix))
				return there
			},
		)
	})
}

// keepAgents brings the tokens of a cluster's agents to Consul and ends others, and policies of the list that none is
// to have. It returns the nodes whose tokens were revoked. The policy names the tokens that it was made for: one that
// it names, and that is not there, was revoked.
func (s agentTokens) keepAgents(
	ctx context.Context, h host, doc model.Stored, c Cluster, policies []*api.ACLPolicyListEntry,
) ([]string, error) {
	write := (&api.WriteOptions{}).WithContext(ctx)
	p, err := s.agentPolicy(ctx, h, c.UID)
	if err != nil {
		return nil, err
	}
	if err := s.keepServices(ctx, h, c); err != nil {
		return nil, err
	}
	list, err := h.tokens(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	there, known := map[string]bool{}, readNote(p.Description).tokens()
	for _, t := range list {
		there[t.AccessorID] = true
	}
	var revoked, made, fresh []string
	tokens := c.agentTokens()
	for _, node := range slices.Sorted(maps.Keys(tokens)) {
		accessor := tokens[node].Accessor
		made = append(made, short(accessor))
		switch {
		case there[accessor]:
		case known[short(accessor)]:
			revoked = append(revoked, node)
		default:
			fresh = append(fresh, node)
		}
	}
	if err := each(writers, fresh, func(node string) error {
		return h.makeAgent(ctx, doc.Consul.Datacenter, c, node, tokens[node])
	}); err != nil {
		return nil, err
	}
	if err := s.regrant(ctx, h, c, list); err != nil {
		return nil, err
	}
	about := note{s.Director, strings.Join(made, ",")}.String()
	if p.Description != about || p.Rules != agentRules {
		p.Description, p.Rules = about, agentRules
		if _, _, err := h.api.ACL().PolicyUpdate(p, write); err != nil {
			return nil, h.explainACL(err)
		}
	}
	if err := s.endSurplus(ctx, h, c, list); err != nil {
		return revoked, err
	}
	used := map[string]bool{}
	for _, t := range tokens {
		used[servicesPolicy(c.UID, t.Services)] = true
	}
	return revoked, s.endServices(ctx, h, policies, c.UID, used)
}

// agentPolicy returns the policy of the agents of a cluster, which it makes if there is none.
func (s agentTokens) agentPolicy(ctx context.Context, h host, uid string) (*api.ACLPolicy, error) {
	p, err := h.policy(ctx, s.Director, agentPrefix+uid)
	if err != nil || p != nil {
		return p, err
	}
	if p, _, err = h.api.ACL().PolicyCreate(&api.ACLPolicy{
		Name: agentPrefix + uid, Description: note{owner: s.Director}.String(), Rules: agentRules,
	}, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
		return nil, h.explainACL(err)
	}
	return p, nil
}

// makeAgent makes the token of a node's agent.
func (h host) makeAgent(ctx context.Context, datacenter string, c Cluster, node string, t director.AgentToken) error {
	_, _, err := h.api.ACL().TokenCreate(&api.ACLToken{
		AccessorID: t.Accessor, SecretID: t.Secret.Reveal(), Description: agentPrefix + c.UID + " " + node,
		Policies:       links(c.policies(t)),
		NodeIdentities: []*api.ACLNodeIdentity{{NodeName: Node(node), Datacenter: datacenter}},
	}, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return h.explainACL(err)
	}
	return nil
}

// endSurplus ends the tokens of the list that are not those of the cluster's agents. It asks again before: a plan may
// have made tokens for new machines since.
func (s agentTokens) endSurplus(ctx context.Context, h host, c Cluster, list []*api.ACLTokenListEntry) error {
	gone := c.surplus(list)
	if len(gone) == 0 {
		return nil
	}
	c, err := s.cluster(ctx, c.UID)
	if err != nil {
		return err
	}
	return each(writers, c.surplus(gone), func(t *api.ACLTokenListEntry) error {
		if _, err := h.api.ACL().TokenDelete(t.AccessorID, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
			return h.explainACL(err)
		}
		return nil
	})
}

// short is what a policy names a token by.
func short(accessor string) string { return accessor[:min(len(accessor), 13)] }

// repairAgents brings the tokens of agents to a Consul that was away, or has lost them, ends those of machines and
// clusters that are gone, and removes the nodes of machines that are gone.
func (s agentTokens) repairAgents(ctx context.Context, h host, doc model.Stored, w World, nodes []CatalogNode) error {
	name := doc.Metadata.Name
	if err := s.removeAgents(ctx, h, name, w, nodes); err != nil || doc.Consul.Credentials == "" {
		return err
	}
	with := slices.DeleteFunc(slices.Clone(w.manned()), func(c Cluster) bool {
		return !c.agentsIn(name) || len(c.Agents.Tokens) == 0
	})
	list, err := h.allPolicies(ctx)
	if err != nil {
		if aclsOff(err) || (director.KindOf(err) == director.KindForbidden && len(with) == 0) {
			return nil // it makes no tokens, and has made none
		}
		return err
	}
	if err := s.endForeign(ctx, h, name, list); err != nil {
		return err
	}
	var revoked []string
	for _, c := range with {
		nodes, err := s.keepAgents(ctx, h, doc, c, list)
		if err != nil {
			return err
		}
		if len(nodes) > 0 {
			revoked = append(revoked, c.Name)
		}
	}
	return revokedAgents(revoked)
}

// endForeign ends the policies of the list, and the tokens of those of agents, that are of clusters without agents of
// the Consul.
func (s agentTokens) endForeign(ctx context.Context, h host, consul string, list []*api.ACLPolicyListEntry) error {
	for _, p := range list {
		uid, ours := strings.CutPrefix(p.Name, agentPrefix)
		if !ours {
			uid = servicesOf(p.Name)
		}
		if uid == "" || readNote(p.Description).owner != s.Director {
			continue
		}
		// Asked again: a plan may have installed agents since.
		a, known, err := s.Tokens.ConsulAgents(ctx, uid)
		if err != nil {
			return err
		}
		if known && a.Consul == consul {
			continue
		}
		if err := h.endPolicy(ctx, s.Director, p.Name); err != nil {
			return err
		}
	}
	return nil
}

// removeAgents removes the nodes of machines that are gone, once other members see that their agents are. Before that,
// Consul would register them again.
func (s agentTokens) removeAgents(ctx context.Context, h host, consul string, w World, nodes []CatalogNode) error {
	left := func(w World, nodes []CatalogNode) []CatalogNode {
		return slices.DeleteFunc(slices.Clone(nodes), func(n CatalogNode) bool {
			return n.Alive || n.Name != Node(n.Meta[MetaNode]) || w.hasAgent(consul, n)
		})
	}
	gone := left(w, nodes)
	if len(gone) == 0 {
		return nil
	}
	w, err := s.world(ctx) // a plan may have brought machines since
	if err != nil {
		return err
	}
	return each(writers, left(w, gone), func(n CatalogNode) error { return h.removeNode(ctx, n) })
}

// hasAgent tells whether a node in the Consul is that of a machine with an agent.
func (w World) hasAgent(consul string, n CatalogNode) bool {
	return slices.ContainsFunc(w.manned(), func(c Cluster) bool {
		_, there := c.machine(n.Meta[MetaNode])
		return there && c.UID == n.Meta[MetaCluster] && c.agentsIn(consul)
	})
}

// revokedAgents is the error for tokens that a person has ended, of nodes or of whole clusters.
func revokedAgents(names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return director.Errorf(
		director.KindConflict, "discovery.agents", "tokens of agents were revoked in Consul: %s",
		strings.Join(names, ", "),
	).WithHint("give the cluster others: directorctl rotate consul-token CLUSTER")
}

// absent returns the nodes of clusters with agents whose agent is not there, or does not answer. They are no services,
// and are told as such.
func absent(w World, consul string, nodes []CatalogNode) []Registered {
	at := make(map[[2]string]CatalogNode, len(nodes))
	for _, n := range nodes {
		at[[2]string{n.Meta[MetaCluster], n.Name}] = n
	}
	var out []Registered
	for _, c := range w.manned() {
		if !c.agentsIn(consul) {
			continue
		}
		for _, m := range c.Machines {
			n, there := at[[2]string{c.UID, Node(m.Name)}]
			if m.Kubernetes == "" && !c.directors || n.Alive {
				continue
			}
			r := Registered{
				Entry: Entry{
					Node: Node(m.Name), Cluster: c.UID, ID: serfHealth, Service: "agent", Address: m.Address,
					Port: gossipPort, Tags: []string{m.Name},
				},
				ClusterName: c.Name, Drift: DriftMissing,
			}
			if there {
				r.Drift = DriftChanged
			}
			out = append(out, r)
		}
	}
	return out
}

// gossipPort is where the agents on nodes take gossip.
const gossipPort = 8301
