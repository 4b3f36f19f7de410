package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
)

// servicesPrefix begins the name of a policy that lets agents of a cluster write certain services, before the uid and
// a sum of their names. What such a policy gives never changes: other names are another policy.
const servicesPrefix = director.ConsulPrefix + "services-"

// servicesPolicy returns the name of the policy for these services; "" for none.
func servicesPolicy(uid string, services []string) string {
	if len(services) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(services, "\n")))
	return servicesPrefix + uid + "-" + hex.EncodeToString(sum[:6])
}

func servicesRules(services []string) string {
	var b strings.Builder
	for _, s := range services {
		fmt.Fprintf(&b, "service %q { policy = \"write\" }\n", s)
	}
	return b.String()
}

// policies returns the names of the policies that the token of a node's agent has.
func (c Cluster) policies(t director.AgentToken) []string {
	out := []string{agentPrefix + c.UID}
	if more := servicesPolicy(c.UID, t.Services); more != "" {
		out = append(out, more)
	}
	return out
}

// keepServices brings the policies for what the agents of the cluster register to Consul.
func (s *Service) keepServices(ctx context.Context, h host, c Cluster) error {
	write := (&api.WriteOptions{}).WithContext(ctx)
	wanted := map[string]string{}
	for _, t := range c.agentTokens() {
		if name := servicesPolicy(c.UID, t.Services); name != "" {
			wanted[name] = servicesRules(t.Services)
		}
	}
	about := note{owner: s.Director}.String()
	for name, rules := range wanted {
		p, err := h.policy(ctx, s.Director, name)
		switch {
		case err != nil:
			return err
		case p == nil:
			_, _, err = h.api.ACL().PolicyCreate(&api.ACLPolicy{Name: name, Description: about, Rules: rules}, write)
		case p.Rules != rules:
			p.Rules = rules
			_, _, err = h.api.ACL().PolicyUpdate(p, write)
		}
		if err != nil {
			return h.explainACL(err)
		}
	}
	return nil
}

// allPolicies lists the policies of the Consul.
func (h host) allPolicies(ctx context.Context) ([]*api.ACLPolicyListEntry, error) {
	list, _, err := h.api.ACL().PolicyList((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, h.explainACL(err)
	}
	return list, nil
}

// servicesOf returns the uid of the cluster that a policy for services is of; "" for another policy.
func servicesOf(policy string) string {
	rest, ours := strings.CutPrefix(policy, servicesPrefix)
	if end := strings.LastIndex(rest, "-"); ours && end > 0 {
		return rest[:end]
	}
	return ""
}

// endServices removes the policies of the list for services of the cluster, but for those that tokens are to have.
func (s *Service) endServices(
	ctx context.Context, h host, list []*api.ACLPolicyListEntry, uid string, but map[string]bool,
) error {
	for _, p := range list {
		if servicesOf(p.Name) != uid || but[p.Name] || readNote(p.Description).owner != s.Director {
			continue
		}
		if _, err := h.api.ACL().PolicyDelete(p.ID, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
			return h.explainACL(err)
		}
	}
	return nil
}

// regrant gives the tokens of agents the policies that they are to have, and none besides.
func (s *Service) regrant(ctx context.Context, h host, c Cluster, list []*api.ACLTokenListEntry) error {
	tokens := map[string]director.AgentToken{}
	for _, t := range c.agentTokens() {
		tokens[t.Accessor] = t
	}
	other := slices.DeleteFunc(slices.Clone(list), func(e *api.ACLTokenListEntry) bool {
		t, ours := tokens[e.AccessorID]
		var has []string
		for _, p := range e.Policies {
			has = append(has, p.Name)
		}
		return !ours || slices.Equal(slices.Sorted(slices.Values(has)), c.policies(t))
	})
	return each(writers, other, func(e *api.ACLTokenListEntry) error {
		t, _, err := h.api.ACL().TokenRead(e.AccessorID, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return h.explainACL(err)
		}
		t.Policies = links(c.policies(tokens[e.AccessorID]))
		if _, _, err := h.api.ACL().TokenUpdate(t, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
			return h.explainACL(err)
		}
		return nil
	})
}

func links(policies []string) []*api.ACLTokenPolicyLink {
	out := make([]*api.ACLTokenPolicyLink, len(policies))
	for i, name := range policies {
		out[i] = &api.ACLTokenPolicyLink{Name: name}
	}
	return out
}
