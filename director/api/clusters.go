package api

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/clusters"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/nodes"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

type clusterInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the cluster."`
}

type listClustersInput struct {
	ListInput
	NamePrefix string   `query:"name_prefix" maxLength:"64" doc:"Only clusters whose name begins so."`
	Text       string   `query:"q" maxLength:"100" doc:"Only clusters whose name, project, release, endpoint or a label contains this, in any case."`
	Facets     bool     `query:"facets" doc:"Also count the clusters that the query leaves on all pages, by status, plan status, release, project and version."`
	Label      []string `query:"label" maxItems:"20" doc:"Only clusters with all of these labels, each key=value or key, separated by commas."`
	Status     []string `query:"status" maxItems:"20" doc:"Only clusters with one of these, separated by commas."`
	Version    []string `query:"version" maxItems:"20" doc:"Only clusters in which one of these versions of Kubernetes is installed, separated by commas; v1.37 is each v1.37.x."`
	Project    string   `query:"project" maxLength:"64" doc:"Only clusters of this project."`
	PlanStatus []string `query:"plan_status" maxItems:"20" doc:"Only clusters whose plan has one of these statuses, separated by commas."`
	Limit      int      `query:"limit" minimum:"1" maximum:"500" default:"500" doc:"At most so many."`
}

type nodeInput struct {
	Name      string `path:"name" maxLength:"64" doc:"Name of the cluster."`
	Node      string `path:"node" maxLength:"80" doc:"Name of the node."`
	Unmanaged bool   `query:"unmanaged" doc:"As a drain that also evicts pods that nothing recreates."`
	EmptyDir  bool   `query:"delete_emptydir" doc:"As a drain that also evicts pods whose local data goes with them."`
}

type planInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the cluster."`
	Body *wire.PlanRequest
}

type inventoryInput struct {
	Name    string `path:"name" maxLength:"64" doc:"Name of the cluster."`
	Secrets bool   `query:"secrets" deprecated:"true" doc:"Refused: secrets are exported by a POST to the same path, with the password."`
}

type exportInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the cluster."`
	Body wire.InventoryExport
}

// orZero is an optional body.
func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// created is a body with the place of what was made.
type created[T any] struct {
	Location string `header:"Location"`
	Body     T
}

type rawText struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func schemaOf[T any](api huma.API) *huma.Schema {
	t := reflect.TypeFor[T]()
	return api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

func (s *clusterRoutes) clusters(api huma.API) {
	tags := []string{"Clusters"}
	operation(s.server, api, ofSome(listing[wire.Clusters](api, huma.Operation{
		OperationID: "list-clusters", Path: "/clusters", Tags: tags, Summary: "List the clusters with their state",
		Description: "Sorted by name, status, version, nodes or created_at.",
	}), ""), director.ActRead, kindCluster,
		func(ctx context.Context, a director.Actor, in *listClustersInput) (*anyOf, error) {
			return s.listClusters(ctx, api, a, in)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "get-cluster", Method: http.MethodGet, Path: "/clusters/{name}", Tags: tags,
		Summary: "Get the state of a cluster",
		Errors:  []int{http.StatusNotFound},
	}, director.ActRead, kindCluster, s.getCluster)
	operation(s.server, api, takesKeys(huma.Operation{
		OperationID: "make-plan", Method: http.MethodPost, Path: "/clusters/{name}/plans", Tags: tags,
		Summary: "Freeze a plan for a cluster",
		Description: "Nothing happens to the cluster until the plan is started. steps_total 0 means that nothing is " +
			"to be done. " + withoutSteps,
		DefaultStatus: http.StatusCreated, Errors: []int{http.StatusNotFound},
	}, s.planAgain(http.StatusCreated)), director.ActPlan, kindCluster, s.makePlan)
	operation(s.server, api, huma.Operation{
		OperationID: "list-nodes", Method: http.MethodGet, Path: "/clusters/{name}/nodes", Tags: tags,
		Summary: "Show the nodes of a cluster",
		Description: "What the director knows of each, what the hypervisor says of its VM, and what the cluster " +
			"itself says. The cluster is asked; it may take seconds.",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindCluster, s.listNodes)
	operation(s.server, api, huma.Operation{
		OperationID: "rehearse-drain", Method: http.MethodGet, Path: "/clusters/{name}/nodes/{node}/drain", Tags: tags,
		Summary:     "Tell what a drain of a node would move away, and what would block it",
		Description: "The cluster is asked for every eviction as a dry run. Nothing is changed.",
		Errors:      []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable},
	}, director.ActRead, kindCluster, s.rehearseDrain)
	access := &accessRoutes{s.server}
	access.shells(api, tags)
	access.kubeconfigs(api, tags)
	operation(s.server, api, huma.Operation{
		OperationID: "get-inventory", Method: http.MethodGet, Path: "/clusters/{name}/inventory", Tags: tags,
		Summary: "Render what a playbook run of the cluster would get",
		Errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, director.ActInventory, kindCluster, s.getInventory)
	operation(s.server, api, huma.Operation{
		OperationID: "export-inventory", Method: http.MethodPost, Path: "/clusters/{name}/inventory", Tags: tags,
		Summary: "Export what a person runs playbooks of the cluster with",
		Description: "The inventory with the keys of the cluster's authorities and an SSH key whose certificate " +
			"ends soon. It needs the password of who asks, also " +
			"with a valid token, and is an audit event of its own.",
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests},
	}, director.ActSecrets, kindCluster, s.exportInventory)
}

func (s *clusterRoutes) getCluster(
	ctx context.Context, _ director.Actor, in *clusterInput,
) (*body[wire.Cluster], error) {
	view, err := s.Clusters.ClusterView(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &body[wire.Cluster]{clusterOf(view)}, nil
}

func (s *clusterRoutes) makePlan(ctx context.Context, a director.Actor, in *planInput) (*created[wire.Plan], error) {
	r := orZero(in.Body).Request()
	if c := &r.Certificates; r.Operation == plan.ClusterRotateCerts && c.EndBefore.IsZero() && c.MadeBefore.IsZero() {
		c.EndBefore = time.Now().UTC().Add(certificates.Soon).Truncate(time.Second)
	}
	if err := mayAsk(a, r); err != nil {
		return nil, err
	}
	view, err := s.Planning.MakePlan(ctx, a.User, in.Name, r)
	if err != nil {
		return nil, err
	}
	return &created[wire.Plan]{Location: placeOf(view.Plan.ID), Body: shortOf(view)}, nil
}

func (s *clusterRoutes) listNodes(ctx context.Context, _ director.Actor, in *clusterInput) (*body[wire.Nodes], error) {
	v, err := s.Nodes.Nodes(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &body[wire.Nodes]{nodesOf(v)}, nil
}

func (s *clusterRoutes) rehearseDrain(
	ctx context.Context, _ director.Actor, in *nodeInput,
) (*body[wire.Evictions], error) {
	list, err := s.Nodes.Rehearse(
		ctx, in.Name, in.Node, kube.DrainLimits{Unmanaged: in.Unmanaged, LocalData: in.EmptyDir},
	)
	if err != nil {
		return nil, err
	}
	return &body[wire.Evictions]{wire.Evictions{Items: evictionsOf(list)}}, nil
}

func evictionsOf(list []kube.Eviction) []wire.Eviction {
	out := make([]wire.Eviction, len(list))
	for i, e := range list {
		out[i] = wire.Eviction(e)
	}
	return out
}

func (s *clusterRoutes) getInventory(
	ctx context.Context, _ director.Actor, in *inventoryInput,
) (*body[wire.Inventory], error) {
	if in.Secrets {
		return nil, director.Invalid("api.inventory", "secrets need your password", []director.Field{{
			Path: "secrets", Msg: "is not possible here",
			Hint: "POST the password to this path, or run: directorctl inventory CLUSTER export --secrets " +
				"--dir DIR",
		}})
	}
	files, err := s.Access.Inventory(ctx, in.Name)
	return inventoryBody(files, err)
}

func (s *clusterRoutes) exportInventory(
	ctx context.Context, a director.Actor, in *exportInput,
) (*body[wire.Inventory], error) {
	if err := s.accounts().confirm(ctx, a, director.Secret(in.Body.Password)); err != nil {
		return nil, err
	}
	files, err := s.Access.ExportInventory(ctx, a.User, in.Name, time.Duration(in.Body.TTLSeconds)*time.Second)
	return inventoryBody(files, err)
}

func inventoryBody(files map[string][]byte, err error) (*body[wire.Inventory], error) {
	if err != nil {
		return nil, err
	}
	out := wire.Inventory{Files: make(map[string]string, len(files))}
	for path, text := range files {
		out.Files[path] = string(text)
	}
	return &body[wire.Inventory]{out}, nil
}

func (s *clusterRoutes) listClusters(
	ctx context.Context, api huma.API, a director.Actor, in *listClustersInput,
) (*anyOf, error) {
	filters := []any{in.NamePrefix, in.Label, in.Status, in.PlanStatus, in.Project, in.Text, in.Version}
	q := clusters.Query{
		Text: in.Text, Versions: in.Version,
		NamePrefix: in.NamePrefix, Labels: in.Label, Statuses: in.Status, Project: in.Project,
		Visible:    auth.VisibleTo(a, kindCluster),
		NoMachines: len(in.Fields) > 0 && !slices.Contains(in.Fields, "machines"),
	}
	var err error
	if q.PlanStatuses, err = planStatuses("plan_status", in.PlanStatus); err != nil {
		return nil, err
	}
	if q.Page, err = in.page(in.Limit, "name", filters...); err == nil {
		err = oneOf(q.Page, clusters.Orders()...)
	}
	if err != nil {
		return nil, err
	}
	if !in.Facets {
		views, place, err := s.Clusters.ListClusters(ctx, q)
		if err != nil {
			return nil, err
		}
		return listAnswer(api, clustersOf(views), in.Fields, next(q.Page, place, filters...))
	}
	views, place, f, err := s.Clusters.CountedClusters(ctx, q)
	if err != nil {
		return nil, err
	}
	return listAnswer(api, clustersOf(views), in.Fields, next(q.Page, place, filters...), map[string]any{
		"total": f.Total,
		"facets": wire.Facets{
			Status: f.Statuses, PlanStatus: f.PlanStatuses, Release: f.Releases, Project: f.Projects,
			Version: f.Versions,
		},
	})
}

func clustersOf(views []clusters.View) []wire.Cluster {
	items := make([]wire.Cluster, len(views))
	for i, v := range views {
		items[i] = clusterOf(v)
	}
	return items
}

func textResponse(mediaType, text string) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: text, Content: map[string]*huma.MediaType{
		mediaType: {Schema: &huma.Schema{Type: huma.TypeString}},
	}}}
}

func placeOf(planID string) string { return prefixed("/plans/" + planID) }

func nodesOf(v nodes.View) wire.Nodes {
	out := wire.Nodes{Items: make([]wire.Node, len(v.Nodes)), Unseen: v.Unseen, Plan: v.Plan, AutoRepair: v.AutoRepair}
	for i, n := range v.Nodes {
		out.Items[i] = nodeOf(n)
	}
	return out
}

func nodeOf(n nodes.Node) wire.Node {
	out := wire.Node{
		Name: n.Name, Role: n.Role, Pool: n.Pool, Address: n.Address, Host: n.Host, State: n.State, Power: n.Power,
		KeptBy: n.KeptBy, HostLost: n.HostLost, HostDown: n.HostDown, Version: n.Version, Wanted: n.Wanted,
		Kubelet: n.Kubelet, Ready: n.Ready, Cordoned: n.Cordoned, Etcd: n.Etcd, Reason: n.Reason,
		Problem: n.Problem, Repair: string(n.Repair), Hint: n.Hint,
	}
	for _, c := range n.Certificates {
		out.Certificates = append(out.Certificates, wire.Certificate{
			Name: c.Name, EndsAt: c.Ends, SeenAt: c.Seen, Unchecked: c.Unchecked,
		})
	}
	return out
}

func clusterOf(v clusters.View) wire.Cluster {
	c := wire.Cluster{
		Name: v.Name, Project: v.Project, CreatedAt: v.Created, Generation: v.Generation, Status: v.Status,
		Release: v.Release, Version: v.Version, Endpoint: v.Endpoint, Nodes: v.Nodes, Plan: v.Plan,
		PlanStatus: string(v.PlanStatus), Machines: make([]wire.Machine, len(v.Machines)),
	}
	if v.Newer != nil {
		c.Newer = &wire.NewerRelease{Release: v.Newer.Release, Version: v.Newer.Version}
	}
	for i, m := range v.Machines {
		c.Machines[i] = wire.Machine{
			Name: m.Name, Role: m.Role, Pool: m.Pool, Address: m.Address, Host: m.Host, VMID: m.VMID, State: m.State,
			CPUs: m.CPUs, MemoryBytes: int64(m.Memory),
		}
		for _, n := range m.NICs {
			c.Machines[i].Interfaces = append(c.Machines[i].Interfaces, wire.Interface(n))
		}
	}
	return c
}
