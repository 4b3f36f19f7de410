package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/clusters"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/nodes"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// Fleet is what the API offers of all clusters together, as they were seen last. No cluster is asked.
type Fleet interface {
	// List lists the nodes of all clusters; the usual order is by name.
	List(ctx context.Context, q nodes.Query) ([]nodes.Listed, *director.Place, error)
	// Count counts the nodes by state. The states of the query do not narrow.
	Count(ctx context.Context, q nodes.Query) (nodes.Count, error)
}

// Waits is what the API offers of what plans wait for.
type Waits interface {
	// Waits returns what plans wait for, the longest wait first.
	Waits(ctx context.Context, q journal.WaitQuery) ([]journal.Waiting, error)
	// PlanCounts counts the plans by their status.
	PlanCounts(ctx context.Context, visible *director.Visible) (map[string]int, error)
}

type fleetInput struct {
	ListInput
	Text      string   `query:"q" maxLength:"100" doc:"Only nodes whose name, cluster, address, host or pool contains this, in any case."`
	Cluster   []string `query:"cluster" maxItems:"100" doc:"Only nodes of these clusters, separated by commas."`
	Role      []string `query:"role" maxItems:"2" doc:"master or worker."`
	Condition []string `query:"condition" maxItems:"5" doc:"Only nodes in one of these conditions, separated by commas."`
	Host      string   `query:"host" maxLength:"253" doc:"Only nodes on this hypervisor host."`
	Version   string   `query:"version" maxLength:"32" doc:"Only nodes whose kubelet reports this version."`
	Problem   string   `query:"problem" enum:"true,false" doc:"Only nodes with a problem, or only nodes without."`
	Limit     int      `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"At most so many."`
}

type waitsInput struct {
	Owner   string `query:"owner" enum:"person,director,plan" doc:"Only waits that these end."`
	Cluster string `query:"cluster" maxLength:"63" doc:"Only waits of plans of this cluster."`
	Mine    bool   `query:"mine" doc:"Only waits that the asking user may end."`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"500" doc:"At most so many."`
}

func (s *clusterRoutes) fleet(api huma.API) {
	operation(s.server, api, ofSome(listing[wire.FleetNodes](api, huma.Operation{
		OperationID: "list-all-nodes", Path: "/nodes", Tags: []string{"Clusters"},
		Summary: "List the nodes of all clusters as they were seen last",
		Description: "No cluster is asked: the director looks at every cluster about once a minute, and seen_at says " +
			"when one answered last. Changes are events of the kind Node. Sorted by name, cluster, role, host, " +
			"address, condition, version, seen_at or ends_at (the soonest end of a certificate).",
	}), ""), director.ActRead, kindCluster,
		func(ctx context.Context, a director.Actor, in *fleetInput) (*anyOf, error) {
			return s.listFleet(ctx, api, a, in)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "get-cluster-health", Method: http.MethodGet, Path: "/clusters/{name}/health",
		Tags: []string{"Clusters"}, Summary: "Tell how a cluster is, by its nodes as they were seen last",
		Description: "No cluster is asked: the director looks at every cluster about once a minute.",
		Errors:      []int{http.StatusNotFound},
	}, director.ActRead, kindCluster, s.health)
	operation(s.server, api, ofSome(huma.Operation{
		OperationID: "summary", Method: http.MethodGet, Path: "/summary", Tags: []string{"Clusters"},
		Summary: "Count clusters, nodes, plans and waits",
		Description: "What of these the asking user may see. Nodes and certificates are counted as they were seen " +
			"last.",
	}, ""), director.ActRead, kindCluster, s.summary)
	operation(s.server, api, ofSome(huma.Operation{
		OperationID: "list-waits", Method: http.MethodGet, Path: "/waits", Tags: []string{"Plans"},
		Summary: "List what plans wait for: why, who ends it, since when and until when",
		Description: "Of plans that have not ended, and of the newest plans of clusters if they failed or were " +
			"cancelled. The longest wait is first. Steps of a plan that wait for the same are one wait.",
	}, ""), director.ActRead, kindPlan, s.waits)
}

func (s *clusterRoutes) listFleet(
	ctx context.Context, api huma.API, a director.Actor, in *fleetInput,
) (*anyOf, error) {
	for _, c := range in.Condition {
		if !slices.Contains(nodes.States(), c) {
			return nil, invalidQuery("condition", "there is no "+c, "some of "+strings.Join(nodes.States(), ", "))
		}
	}
	filters := []any{in.Text, in.Cluster, in.Role, in.Condition, in.Host, in.Version, in.Problem}
	q := nodes.Query{
		Text: in.Text, Clusters: in.Cluster, Roles: in.Role, States: in.Condition, Host: in.Host, Version: in.Version,
		Visible: auth.VisibleTo(a, kindCluster),
	}
	if in.Problem != "" {
		has := in.Problem == "true"
		q.Problem = &has
	}
	var err error
	if q.Page, err = in.page(in.Limit, "name", filters...); err == nil {
		err = oneOf(q.Page, "name", "cluster", "role", "host", "address", "condition", "version", "seen_at", "ends_at")
	}
	if err != nil {
		return nil, err
	}
	asked := q
	if q.Sort == "condition" {
		q.Sort = "state" // the column is named so
	}
	list, place, err := s.Fleet.List(ctx, q)
	if err != nil {
		return nil, err
	}
	count, err := s.Fleet.Count(ctx, q)
	if err != nil {
		return nil, err
	}
	total := count.Total
	if len(in.Condition) > 0 {
		total = 0
		for c, n := range count.States {
			if slices.Contains(in.Condition, c) {
				total += n
			}
		}
	}
	items := make([]wire.FleetNode, len(list))
	for i, n := range list {
		items[i] = fleetNodeOf(n)
	}
	return listAnswer(api, items, in.Fields, next(asked.Page, place, filters...), map[string]any{
		"total": total, "conditions": count.States,
	})
}

func fleetNodeOf(n nodes.Listed) wire.FleetNode {
	return wire.FleetNode{
		Node: nodeOf(n.Node), Cluster: n.Cluster, Provider: n.Provider, Condition: n.Status,
		SeenAt: wire.Optional(n.Seen), Unseen: n.Unseen,
	}
}

type noInput struct{}

func (s *clusterRoutes) health(
	ctx context.Context, _ director.Actor, in *clusterInput,
) (*body[wire.ClusterHealth], error) {
	if _, err := s.Clusters.ClusterView(ctx, in.Name); err != nil {
		return nil, err
	}
	list, _, err := s.Fleet.List(ctx, nodes.Query{
		Page: director.Page{Sort: "name"}, Clusters: []string{in.Name},
	})
	if err != nil {
		return nil, err
	}
	h := nodes.HealthOf(list)
	out := wire.ClusterHealth{
		State: h.State, Cause: h.Cause, Nodes: len(list), Conditions: h.States, Versions: h.Versions,
		EtcdMembers: append([]string{}, h.Members...), NoMembers: h.Strangers, SeenAt: wire.Optional(h.Seen),
	}
	if h.Certificate.Name != "" {
		out.Certificate = &wire.NextCertificate{Node: h.Node, Name: h.Certificate.Name, EndsAt: h.Certificate.Ends}
	}
	return &body[wire.ClusterHealth]{out}, nil
}

func (s *clusterRoutes) summary(ctx context.Context, a director.Actor, _ *noInput) (*body[wire.Summary], error) {
	visible := auth.VisibleTo(a, kindCluster)
	facets, err := s.Clusters.CountClusters(ctx, clusters.Query{Visible: visible})
	if err != nil {
		return nil, err
	}
	count, err := s.Fleet.Count(ctx, nodes.Query{Visible: visible})
	if err != nil {
		return nil, err
	}
	plans, err := s.Waits.PlanCounts(ctx, auth.VisibleTo(a, kindPlan))
	if err != nil {
		return nil, err
	}
	waits, err := s.Waits.Waits(ctx, journal.WaitQuery{Visible: auth.VisibleTo(a, kindPlan)})
	if err != nil {
		return nil, err
	}
	out := wire.Summary{
		At: s.Now().UTC().Truncate(time.Second), Clusters: facets.Total, ClusterStatus: facets.Statuses,
		Releases: facets.Releases, Plans: plans, Waits: map[string]int{},
		Nodes: count.Total, Conditions: count.States, Problems: count.Problem,
		Certificates: wire.Certificates{
			Ended: count.Ended, Ending: count.Ending, Before: count.Soon, NextAt: wire.Optional(count.Next),
		},
	}
	for _, owner := range journal.Owners() {
		out.Waits[owner] = 0
	}
	for _, status := range plan.Statuses() {
		out.Plans[string(status)] += 0
	}
	for _, state := range nodes.States() {
		out.Conditions[state] += 0
	}
	mine, err := s.mine(ctx, a, waits)
	if err != nil {
		return nil, err
	}
	for _, w := range waits {
		out.Waits[w.Kind]++
		if mine(w) {
			out.Mine++
		}
	}
	return &body[wire.Summary]{out}, nil
}

func (s *clusterRoutes) waits(ctx context.Context, a director.Actor, in *waitsInput) (*body[wire.PlanWaits], error) {
	list, err := s.Waits.Waits(ctx, journal.WaitQuery{
		Owner: in.Owner, Cluster: in.Cluster, Visible: auth.VisibleTo(a, kindPlan),
	})
	if err != nil {
		return nil, err
	}
	mine, err := s.mine(ctx, a, list)
	if err != nil {
		return nil, err
	}
	if in.Mine {
		list = slices.DeleteFunc(list, func(w journal.Waiting) bool { return !mine(w) })
	}
	out := wire.PlanWaits{Items: []wire.PlanWait{}, Total: len(list)}
	for _, w := range list[:min(len(list), in.Limit)] {
		item := wire.PlanWait{
			Plan: w.Plan, Cluster: w.Cluster, Operation: string(w.Operation), Status: string(w.Status),
			Summary: w.Summary, Owner: w.Kind, Reason: w.Reason, Step: w.Step, Steps: w.Steps, Mine: mine(w),
			Since: wire.Optional(w.Since), Until: wire.Optional(w.Deadline),
		}
		if w.Kind != journal.OwnerPerson && w.Owner != "the director" {
			item.Who = w.Owner
		}
		out.Items = append(out.Items, item)
	}
	return &body[wire.PlanWaits]{out}, nil
}

// mine tells the waits that the actor may end: those for a person, in plans that the actor may run. Where another
// person has to agree to a plan, its maker cannot.
func (s *clusterRoutes) mine(
	ctx context.Context, a director.Actor, waits []journal.Waiting,
) (func(journal.Waiting) bool, error) {
	runs := map[string]bool{}
	for _, w := range waits {
		if _, known := runs[w.Plan]; known {
			continue
		}
		err := s.permit(ctx, a, asked{action: director.ActRun, object: director.Object{Kind: kindPlan, Name: w.Plan}})
		switch director.KindOf(err) {
		case director.KindForbidden, director.KindNotFound:
		default:
			if err != nil {
				return nil, err
			}
		}
		runs[w.Plan] = err == nil
	}
	return func(w journal.Waiting) bool {
		second := w.Approval && w.By == a.User && s.Settings.Approval == "other"
		return w.Kind == journal.OwnerPerson && runs[w.Plan] && !second
	}, nil
}
