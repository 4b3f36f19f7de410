package discovery

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// policyPrefix begins the name of the policy of a cluster's sync, before the uid.
const policyPrefix = director.ConsulPrefix + "sync-"

// aclRule is what the director's token needs to make tokens.
const aclRule = `acl = "write"`

// note is what the description of a policy says: whose it is, and which token it was made for. A token that a policy
// names, and that is not there, was revoked.
type note struct{ owner, made string }

func (n note) String() string { return "owner=" + n.owner + " made=" + n.made }

func readNote(text string) (n note) {
	for _, word := range strings.Fields(text) {
		if v, ok := strings.CutPrefix(word, "owner="); ok {
			n.owner = v
		}
		if v, ok := strings.CutPrefix(word, "made="); ok {
			n.made = v
		}
	}
	return n
}

// tokens returns what it was made for, if that are several.
func (n note) tokens() map[string]bool {
	out := map[string]bool{}
	for name := range strings.SplitSeq(n.made, ",") {
		out[name] = name != ""
	}
	return out
}

// MakeToken brings the token of the sync of the cluster with that uid to its Consul, with its policy, and tells what
// became of it. A token that was revoked stays so. It is idempotent. Errors: forbidden for a director whose own token
// may make none.
func (s *Service) MakeToken(ctx context.Context, uid string, t director.ConsulToken) (director.TokenState, error) {
	doc, h, err := s.open(ctx, t.Consul)
	if err != nil {
		return "", err
	}
	if doc.Consul.Credentials == "" {
		return director.TokenNone, nil
	}
	state, _, err := h.makeToken(ctx, s.Director, uid, t)
	return state, err
}

// KeepToken ends all tokens of the cluster's sync but that with the accessor. It is idempotent.
func (s *Service) KeepToken(ctx context.Context, consul, uid, accessor string) error {
	doc, h, err := s.open(ctx, consul)
	if err != nil || doc.Consul.Credentials == "" {
		return err
	}
	p, err := h.policy(ctx, s.Director, policyPrefix+uid)
	if err != nil || p == nil {
		return err
	}
	return h.endTokens(ctx, p.ID, accessor)
}

// EndSync ends all tokens of the cluster's sync, and removes its policy and what it has registered. It is idempotent.
func (s *Service) EndSync(ctx context.Context, consul, uid string) error {
	doc, h, err := s.open(ctx, consul)
	if err != nil {
		return err
	}
	if doc.Consul.Credentials != "" {
		if err := h.endPolicy(ctx, s.Director, policyPrefix+uid); err != nil {
			return err
		}
	}
	have, err := h.read(ctx, s.Director)
	if err != nil {
		return err
	}
	synced := slices.DeleteFunc(have.Entries, func(a Actual) bool {
		return !nodeOf(uid, a.Node) || a.Meta[MetaOwner] != s.Director || a.Meta[MetaCluster] != uid ||
			a.Meta[MetaWriter] != ""
	})
	return each(writers, synced, func(a Actual) error { return h.remove(ctx, a) })
}

// open returns the document of a Consul, and its first host that answers.
func (s *Service) open(ctx context.Context, consul string) (model.Stored, host, error) {
	doc, err := s.consul(ctx, consul)
	if err != nil {
		return doc, host{}, err
	}
	c, err := s.client(ctx, doc)
	if err != nil {
		return doc, host{}, err
	}
	h, err := c.first(ctx)
	return doc, h, err
}

// policy returns the policy of the name, which is the director's with that id; nil if there is none.
func (h host) policy(ctx context.Context, id, name string) (*api.ACLPolicy, error) {
	p, _, err := h.api.ACL().PolicyReadByName(name, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, h.explainACL(err)
	}
	if p != nil && readNote(p.Description).owner != id {
		return nil, director.Errorf(
			director.KindConflict, "discovery.token", "the policy %s in Consul is not of this director", p.Name,
		).WithHint("look at it, and delete it: consul acl policy delete -name %s", p.Name)
	}
	return p, nil
}

// makeToken writes in an order in which a run that was killed leaves nothing that the next one takes for revoked. It
// also returns the other tokens that the policy had before.
func (h host) makeToken(
	ctx context.Context, id, uid string, t director.ConsulToken,
) (director.TokenState, []*api.ACLTokenListEntry, error) {
	write := (&api.WriteOptions{}).WithContext(ctx)
	p, err := h.policy(ctx, id, policyPrefix+uid)
	if aclsOff(err) {
		return director.TokenNone, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	if p == nil {
		if p, _, err = h.api.ACL().PolicyCreate(&api.ACLPolicy{
			Name: policyPrefix + uid, Description: note{owner: id}.String(), Rules: t.Rules,
		}, write); err != nil {
			return "", nil, h.explainACL(err)
		}
	}
	list, err := h.tokens(ctx, p.ID)
	if err != nil {
		return "", nil, err
	}
	others := slices.DeleteFunc(slices.Clone(list), func(e *api.ACLTokenListEntry) bool {
		return e.AccessorID == t.Accessor
	})
	there, made := len(others) < len(list), readNote(p.Description).made == t.Accessor
	if !there && made {
		return director.TokenRevoked, others, nil
	}
	if !there {
		if _, _, err := h.api.ACL().TokenCreate(&api.ACLToken{
			AccessorID: t.Accessor, SecretID: t.Secret.Reveal(), Description: policyPrefix + uid,
			Policies: []*api.ACLTokenPolicyLink{{ID: p.ID}},
		}, write); err != nil {
			return "", nil, h.explainACL(err)
		}
	}
	if !made || p.Rules != t.Rules {
		p.Description, p.Rules = note{owner: id, made: t.Accessor}.String(), t.Rules
		if _, _, err := h.api.ACL().PolicyUpdate(p, write); err != nil {
			return "", nil, h.explainACL(err)
		}
	}
	return director.TokenThere, others, nil
}

func (h host) tokens(ctx context.Context, policy string) ([]*api.ACLTokenListEntry, error) {
	list, _, err := h.api.ACL().TokenListFiltered(
		api.ACLTokenFilterOptions{Policy: policy}, (&api.QueryOptions{}).WithContext(ctx),
	)
	if err != nil {
		return nil, h.explainACL(err)
	}
	return list, nil
}

// endTokens ends the tokens of the policy, but for one.
func (h host) endTokens(ctx context.Context, policy, but string) error {
	list, err := h.tokens(ctx, policy)
	if err != nil {
		return err
	}
	for _, t := range list {
		if t.AccessorID == but {
			continue
		}
		if _, err := h.api.ACL().TokenDelete(t.AccessorID, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
			return h.explainACL(err)
		}
	}
	return nil
}

// endPolicy ends the tokens of a policy before it: tokens without one would never be found.
func (h host) endPolicy(ctx context.Context, id, name string) error {
	p, err := h.policy(ctx, id, name)
	if err != nil || p == nil {
		if aclsOff(err) {
			return nil
		}
		return err
	}
	if err := h.endTokens(ctx, p.ID, ""); err != nil {
		return err
	}
	if _, err := h.api.ACL().PolicyDelete(p.ID, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
		return h.explainACL(err)
	}
	return nil
}

// repairTokens brings the tokens of syncs to a Consul that was away, or has lost them, and ends those of clusters that
// have no sync with it any more.
func (s *Service) repairTokens(ctx context.Context, h host, doc model.Stored, w World) error {
	if doc.Consul.Credentials == "" {
		return nil
	}
	name := doc.Metadata.Name
	var synced []Cluster
	for _, c := range w.Clusters {
		if c.Sync != nil && c.Sync.Consul == name && c.Sync.Accessor != "" {
			synced = append(synced, c)
		}
	}
	list, _, err := h.api.ACL().PolicyList((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		err = h.explainACL(err)
		if aclsOff(err) || (director.KindOf(err) == director.KindForbidden && len(synced) == 0) {
			return nil // it makes no tokens, and has made none
		}
		return err
	}
	for _, p := range list {
		uid, ours := strings.CutPrefix(p.Name, policyPrefix)
		if !ours || readNote(p.Description).owner != s.Director {
			continue
		}
		// Asked again: a plan may have installed a sync since.
		t, known, err := s.Tokens.ConsulToken(ctx, uid)
		if err != nil {
			return err
		}
		if known && t.Consul == name {
			continue
		}
		if err := h.endPolicy(ctx, s.Director, p.Name); err != nil {
			return err
		}
	}
	return s.bringTokens(ctx, h, synced)
}

// endFormer ends tokens of the list that the sync of a cluster has had: a Consul that was restored has them again. It
// asks after the list was read: what a plan makes is known here before it is in Consul.
func (s *Service) endFormer(ctx context.Context, h host, uid string, list []*api.ACLTokenListEntry) error {
	if len(list) == 0 {
		return nil
	}
	t, known, err := s.Tokens.ConsulToken(ctx, uid)
	if err != nil || !known || t.Former {
		return err
	}
	return each(writers, list, func(e *api.ACLTokenListEntry) error {
		if e.AccessorID == t.Accessor {
			return nil
		}
		if _, err := h.api.ACL().TokenDelete(e.AccessorID, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
			return h.explainACL(err)
		}
		return nil
	})
}

// bringTokens makes tokens that are not there, and names the clusters whose tokens were revoked.
func (s *Service) bringTokens(ctx context.Context, h host, synced []Cluster) error {
	var mu sync.Mutex
	var revoked []string
	err := each(writers, synced, func(c Cluster) error {
		state, others, err := h.makeToken(ctx, s.Director, c.UID, *c.Sync)
		if err == nil {
			err = s.endFormer(ctx, h, c.UID, others)
		}
		if state == director.TokenRevoked {
			mu.Lock()
			defer mu.Unlock()
			revoked = append(revoked, c.Name)
		}
		return err
	})
	if err != nil || len(revoked) == 0 {
		return err
	}
	slices.Sort(revoked)
	return director.Errorf(
		director.KindConflict, "discovery.token", "the token of the sync was revoked in Consul: %s",
		strings.Join(revoked, ", "),
	).WithHint("give each of them another one: directorctl rotate consul-token %s", revoked[0])
}

const msgACLsOff = "ACL support disabled"

// aclsOff tells whether the Consul has no ACLs at all.
func aclsOff(err error) bool { return err != nil && strings.Contains(err.Error(), msgACLsOff) }

// explainACL is explain for what only a token that makes tokens may do.
func (h host) explainACL(err error) error {
	e := explain(h.name, err)
	if director.KindOf(e) == director.KindForbidden {
		return director.Errorf(
			director.KindForbidden, "discovery.token", "the director's token may not make tokens for clusters: %w", err,
		).WithHint("add to its policy: %s", aclRule)
	}
	return e
}
