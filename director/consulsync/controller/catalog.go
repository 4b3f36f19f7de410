package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulsync"
)

const (
	// Consul takes 128 operations and 512 KiB in a transaction. An entry is two operations, the node one.
	batchEntries = 60
	batchBytes   = 200 << 10

	nodeAddress = "127.0.0.1" // every entry has its own, which is what DNS answers with
	checkName   = "Endpoints in Kubernetes"
	// A query that waits for a change waits this long. A Consul that came back empty may answer no sooner: its index is
	// behind the one that the query waits for.
	blocking = 30 * time.Second
)

// catalog is the part of Consul that belongs to the cluster.
type catalog struct {
	client   *api.Client
	lists    *lists
	identity consulsync.Identity
	blocking time.Duration // how long a query waits for a change
}

// consistent asks the leader, who confirms that it still is one. Without a leader the call fails: a list that may be
// old never decides what is deleted.
func consistent(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx)
}

// complete returns an error unless a list is complete. Consul leaves out what a token may not read, and says so.
func complete(meta *api.QueryMeta, what string) error {
	const op = "consulsync.read"
	switch {
	case meta == nil || !meta.KnownLeader:
		return director.Errorf(director.KindUnavailable, op, "consul has no leader")
	case meta.ResultsFilteredByACLs:
		return director.Errorf(director.KindForbidden, op, "the token may not read all of %s", what).
			WithHint("give the token's policy the rights of docs/operate/consul-sync.md")
	}
	return nil
}

// held is what Consul has of the cluster.
type held struct {
	entries []consulsync.Actual
	nodes   map[int]bool // the nodes that are as they should be
}

// read returns everything on the cluster's nodes. It fails rather than return less than all of it.
func (c *catalog) read(ctx context.Context) (held, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	h := held{nodes: map[int]bool{}}
	var numbers []int
	meta, err := c.lists.nodes(ctx, c.identity.Cluster, func(name string) {
		if n, ok := c.identity.Number(name); ok {
			numbers = append(numbers, n)
		}
	})
	if err != nil {
		return held{}, failed("read the nodes", err)
	}
	if err := complete(meta, "the cluster's nodes"); err != nil {
		return held{}, err
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		if err := c.readNode(ctx, n, &h); err != nil {
			return held{}, err
		}
	}
	return h, nil
}

// readNode adds everything on one of the cluster's nodes.
func (c *catalog) readNode(ctx context.Context, number int, h *held) error {
	name, first := c.identity.Node(number), len(h.entries)
	has, meta, err := c.lists.services(ctx, name, func(e entry) {
		slices.Sort(e.Tags)
		h.entries = append(h.entries, consulsync.Actual{
			Entry: consulsync.Entry{
				Node: number, ID: e.ID, Name: e.Service, Address: e.Address, Port: e.Port, Tags: e.Tags, Meta: e.Meta,
			},
			Index: e.ModifyIndex,
		})
	})
	if err != nil {
		return failed("read the entries", err)
	}
	if err := complete(meta, "node "+name); err != nil {
		return err
	}
	if has == nil { // it has gone meanwhile
		return nil
	}
	h.nodes[number] = c.identity.Owns(has.Meta) && has.Address == nodeAddress
	entries := h.entries[first:]
	passes := make(map[string]bool, len(entries)) // of the services that have their check
	meta, err = c.lists.checks(ctx, name, func(k check) {
		if k.CheckID == k.ServiceID {
			passes[k.ServiceID] = k.Status == api.HealthPassing
		}
	})
	if err != nil {
		return failed("read the checks", err)
	}
	if err := complete(meta, "the checks of "+name); err != nil {
		return err
	}
	for i, e := range entries {
		entries[i].Passing, entries[i].Checked = passes[e.ID]
	}
	return nil
}

// outcome is what became of a set of changes.
type outcome struct {
	put, deleted int
	failed       map[string]string // why, by the id of the entry
}

// apply writes what is to be written and then deletes what is to be deleted, in transactions. What Consul refuses does
// not keep the rest. An entry is only deleted as it was read: one that has changed since stays for the next pass. The
// error says that Consul did not answer.
func (c *catalog) apply(ctx context.Context, ch consulsync.Changes, nodes map[int]bool) (outcome, error) {
	out := outcome{failed: map[string]string{}}
	refused, err := c.makeNodes(ctx, ch.Put, nodes)
	if err != nil {
		return out, err
	}
	put := slices.DeleteFunc(slices.Clone(ch.Put), func(e consulsync.Entry) bool {
		why, no := refused[e.Node]
		if no {
			out.failed[e.ID] = why
		}
		return no
	})
	err = c.batches(ctx, len(put), func(i int) (string, []*api.TxnOp) {
		return put[i].ID, c.put(put[i])
	}, &out.put, out.failed)
	if err != nil {
		return out, err
	}
	err = c.batches(ctx, len(ch.Delete), func(i int) (string, []*api.TxnOp) {
		return ch.Delete[i].ID, []*api.TxnOp{{Service: &api.ServiceTxnOp{
			Verb: api.ServiceDeleteCAS, Node: c.identity.Node(ch.Delete[i].Node),
			Service: api.AgentService{
				ID: ch.Delete[i].ID, Service: ch.Delete[i].Name, ModifyIndex: ch.Delete[i].Index,
			},
		}}}
	}, &out.deleted, out.failed)
	return out, err
}

// makeNodes writes the nodes that entries need and that are not as they should be. It returns why Consul refused one.
func (c *catalog) makeNodes(
	ctx context.Context, put []consulsync.Entry, well map[int]bool,
) (refused map[int]string, err error) {
	refused, asked := map[int]string{}, map[int]bool{}
	maps.Copy(asked, well)
	for _, e := range put {
		if asked[e.Node] {
			continue
		}
		asked[e.Node] = true
		ok, why, err := c.txn(ctx, []*api.TxnOp{{Node: &api.NodeTxnOp{Verb: api.NodeSet, Node: api.Node{
			Node: c.identity.Node(e.Node), Address: nodeAddress, Meta: c.identity.Meta(),
		}}}})
		if err != nil {
			return nil, err
		}
		if !ok {
			refused[e.Node] = why[0]
		}
	}
	return refused, nil
}

func (c *catalog) put(e consulsync.Entry) []*api.TxnOp {
	status, output := api.HealthPassing, "at least one endpoint is ready"
	if !e.Passing {
		status, output = api.HealthCritical, "no endpoint is ready"
	}
	return []*api.TxnOp{
		{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: c.identity.Node(e.Node), Service: api.AgentService{
			ID: e.ID, Service: e.Name, Address: e.Address, Port: e.Port, Tags: e.Tags, Meta: e.Meta,
		}}},
		{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: api.HealthCheck{
			Node: c.identity.Node(e.Node), CheckID: e.ID, Name: checkName, Status: status, Output: output,
			ServiceID: e.ID, ServiceName: e.Name,
		}}},
	}
}

// batches sends n items in transactions. A transaction that Consul refuses is sent again without the items that were
// refused, which are written to failed with the reason.
func (c *catalog) batches(
	ctx context.Context, n int, item func(int) (string, []*api.TxnOp), done *int, failed map[string]string,
) error {
	for start := 0; start < n; {
		var ids []string
		var ops [][]*api.TxnOp
		size := 0
		for ; start < n && len(ids) < batchEntries && size < batchBytes; start++ {
			id, o := item(start)
			ids, ops, size = append(ids, id), append(ops, o), size+weight(o)
		}
		for len(ids) > 0 {
			ok, refused, err := c.txn(ctx, slices.Concat(ops...))
			if err != nil {
				return err
			}
			if ok {
				*done += len(ids)
				break
			}
			ids, ops = withoutRefused(ids, ops, refused, failed)
		}
	}
	return nil
}

// withoutRefused returns the items of a transaction that are worth another try.
func withoutRefused(
	ids []string, ops [][]*api.TxnOp, refused map[int]string, failed map[string]string,
) (left []string, leftOps [][]*api.TxnOp) {
	at := 0
	for i, id := range ids {
		why := ""
		for range ops[i] {
			if w, ok := refused[at]; ok && why == "" {
				why = w
			}
			at++
		}
		if why != "" {
			failed[id] = why
			continue
		}
		left, leftOps = append(left, id), append(leftOps, ops[i])
	}
	if len(left) == len(ids) { // Consul named none of them: the next pass tries again
		for _, id := range ids {
			failed[id] = "consul refused the transaction"
		}
		return nil, nil
	}
	return left, leftOps
}

// weight estimates the size of operations in a request.
func weight(ops []*api.TxnOp) int {
	n := 512
	for _, o := range ops {
		if o.Service == nil {
			continue
		}
		s := o.Service.Service
		n += 3*len(s.ID) + 2*len(s.Service) + len(s.Address)
		for _, t := range s.Tags {
			n += len(t) + 8
		}
		for k, v := range maps.All(s.Meta) {
			n += len(k) + len(v) + 16
		}
	}
	return n
}

// txn runs a transaction. refused has the reasons by the index of the operation.
func (c *catalog) txn(ctx context.Context, ops []*api.TxnOp) (ok bool, refused map[int]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ok, resp, _, err := c.client.Txn().Txn(ops, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return false, nil, failed("write", err)
	}
	if ok {
		return true, nil, nil
	}
	refused = map[int]string{}
	for _, e := range resp.Errors {
		refused[e.OpIndex] = e.What
	}
	return false, refused, nil
}

// wait returns when the entries on the cluster's first node may have changed after index, or when it has waited long
// enough, with the index of what it saw. Index 0 returns at once. What others change on further nodes, if there are
// any, is found by the next comparison.
func (c *catalog) wait(ctx context.Context, index uint64) (uint64, error) {
	o := (&api.QueryOptions{WaitIndex: index, WaitTime: c.blocking, Filter: "ID == \"\""}).WithContext(ctx)
	_, meta, err := c.client.Catalog().NodeServiceList(c.identity.Node(0), o)
	if err != nil {
		return 0, failed("wait for a change", err)
	}
	return next(index, meta.LastIndex), nil
}

// next returns the index for the next query that waits. Consul asks its clients to begin again when the index went
// back, as it does after a restore, and never to wait at 0.
func next(before, now uint64) uint64 {
	if now < before {
		return 0
	}
	return max(now, 1)
}

// instances returns the instances of a service of Consul. With an index it waits until something changes after it.
func (c *catalog) instances(
	ctx context.Context, service, tag string, index uint64,
) ([]consulsync.Instance, uint64, error) {
	o := (&api.QueryOptions{WaitIndex: index, WaitTime: c.blocking}).WithContext(ctx)
	list, meta, err := c.client.Health().Service(service, tag, false, o)
	if err == nil && index > 0 && !meta.KnownLeader {
		// Consul's cache says so of every wait that ended without a change, also where there is a leader.
		list, meta, err = c.client.Health().Service(service, tag, false, consistent(ctx))
	}
	if err != nil {
		return nil, 0, failed("read the instances of "+service, err)
	}
	if err := complete(meta, "the service "+service); err != nil {
		return nil, 0, err
	}
	if len(list) == 0 && meta.DefaultACLPolicy == "deny" {
		if err := c.authenticated(ctx); err != nil {
			return nil, 0, err
		}
	}
	all := make([]consulsync.Instance, 0, len(list))
	for _, s := range list {
		i := consulsync.Instance{
			Address: s.Service.Address, Port: s.Service.Port, Passing: s.Checks.AggregatedStatus() == api.HealthPassing,
			Cluster: s.Service.Meta[consulsync.MetaCluster],
		}
		if i.Address == "" {
			i.Address = s.Node.Address
		}
		all = append(all, i)
	}
	return all, next(index, meta.LastIndex), nil
}

// authenticated returns an error without a valid token: Consul answers anonymous questions with empty lists and does
// not say that they were filtered.
func (c *catalog) authenticated(ctx context.Context) error {
	self, _, err := c.client.ACL().TokenReadSelf((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return failed("check the token", err)
	}
	if self.AccessorID == "00000000-0000-0000-0000-000000000002" {
		return director.Errorf(
			director.KindUnauthenticated, "consulsync.read", "there is no token, and Consul denies by default",
		).WithHint("set consul.tokenFile")
	}
	return nil
}

// failed gives an error of the client its kind and a message for people.
func failed(what string, err error) error {
	op := "consulsync.consul"
	if e, ok := errors.AsType[api.StatusError](err); ok {
		body := strings.TrimSpace(e.Body)
		switch {
		case e.Code == 403 || e.Code == 401:
			return director.Errorf(director.KindForbidden, op, "cannot %s: Consul refused the token: %s", what, body).
				WithHint("give the token's policy the rights of docs/operate/consul-sync.md, or set a new token")
		case strings.Contains(body, "No path to datacenter"):
			return director.Errorf(director.KindInvalid, op, "cannot %s: Consul does not know the datacenter", what).
				WithHint("correct consul.datacenter")
		}
		return director.Errorf(director.KindUnavailable, op, "cannot %s: Consul answered %d: %s", what, e.Code, body)
	}
	// The client has no status for a transaction that was refused as a whole.
	if text := err.Error(); strings.Contains(text, "ACL not found") || strings.Contains(text, "Permission denied") {
		return director.Errorf(director.KindForbidden, op, "cannot %s: Consul refused the token: %w", what, err).
			WithHint("give the token's policy the rights of docs/operate/consul-sync.md, or set a new token")
	}
	return director.Errorf(director.KindUnavailable, op, "cannot %s: %w", what, err).
		WithHint("check consul.addresses and the network")
}
