package daemon

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

const grantDocuments = demoDocuments + `---
apiVersion: kaas/v1
kind: Network
metadata: {name: hidden}
spec: {provider: lab, cidr: 10.99.0.0/24, pool: {from: 10.99.0.10, to: 10.99.0.99}}
---
apiVersion: kaas/v1
kind: Project
metadata: {name: web}
spec: {networks: [net], quota: {clusters: 2, machines: 9}}
---
apiVersion: kaas/v1
kind: Project
metadata: {name: other}
spec: {}
---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: shop}
spec: {release: k8s, provider: lab, image: node, network: net, project: web, workers: [{name: w, count: 1}]}
---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: theirs}
spec: {release: k8s, provider: lab, image: node, network: net, project: other}
`

const (
	grantWeb = "apiVersion: kaas/v1\nkind: Grant\nmetadata: {name: web}\n" +
		"spec: {users: [ann], role: ROLE, project: web}\n"
	grantShop = "apiVersion: kaas/v1\nkind: Grant\nmetadata: {name: shop}\n" +
		"spec: {users: [bob], role: operator, cluster: shop}\n"
)

func applied(ctx context.Context, api *client.Client, text string) error {
	_, err := api.Apply(ctx, []byte(text), "x", false)
	return err
}

func wantKind(t *testing.T, what string, err error, want director.Kind, says ...string) {
	t.Helper()
	if err == nil || director.KindOf(err) != want {
		t.Errorf("%s: got %v, want %s", what, err, want)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error()+" "+director.HintOf(err), s) {
			t.Errorf("%s: %v does not say %q", what, err, s)
		}
	}
}

// People with a grant in a project or on a cluster see that and nothing else, and work with it as their role says.
func TestGrants(t *testing.T) {
	t.Parallel()
	c := simulating(t, grantDocuments)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, admin := t.Context(), connect(t, c, d)
	wantKind(t, "a grant to a stranger", applied(ctx, admin, strings.Replace(grantWeb, "ROLE", "user", 1)),
		director.KindInvalid, "spec.users[0]", "there is no user ann")
	ann := person(t, c, d, admin, "ann", director.RoleNone)
	bob := person(t, c, d, admin, "bob", director.RoleNone)
	_, err = ann.Clusters(ctx)
	wantKind(t, "no grant", err, director.KindForbidden)
	for _, text := range []string{strings.Replace(grantWeb, "ROLE", "admin", 1), grantShop} {
		if err := applied(ctx, admin, text); err != nil {
			t.Fatal(err)
		}
	}
	me, err := ann.Me(ctx)
	if err != nil || len(me.Grants) != 1 || me.Grants[0].Project != "web" || me.Grants[0].Role != "admin" {
		t.Errorf("%+v, %v", me, err)
	}
	theirs, err := admin.MakePlan(ctx, "theirs", plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	for name, api := range map[string]*client.Client{"ann": ann, "bob": bob} {
		t.Run(name, func(t *testing.T) {
			seesAlone(t, api, "shop")
			nothingElse(t, api, theirs.ID)
		})
	}
	t.Run("plan and run", func(t *testing.T) { worksInside(t, admin, ann, bob) })
	t.Run("apply", func(t *testing.T) { appliesInside(t, admin, ann, bob) })
	wantKind(t, "the user of a grant is deleted", admin.DeleteUser(ctx, "ann"), director.KindConflict, "Grant/web")
	wantKind(t, "the project of a grant is deleted",
		admin.DeleteDocument(ctx, model.Ref{Kind: model.KindProject, Name: "web"}), director.KindConflict, "web")
}

// seesAlone holds all lists against the one cluster.
func seesAlone(t *testing.T, api *client.Client, cluster string) {
	t.Helper()
	ctx := t.Context()
	items, err := api.Clusters(ctx)
	if err != nil || len(items) != 1 || items[0].Name != cluster {
		t.Errorf("clusters: %+v, %v", items, err)
	}
	docs, err := api.Documents(ctx, model.KindCluster)
	if err != nil || len(docs) != 1 || docs[0].Name != cluster {
		t.Errorf("documents: %+v, %v", docs, err)
	}
	plans, err := api.Plans(ctx, client.PlanFilter{})
	if err != nil || len(plans) != 0 {
		t.Errorf("plans: %+v, %v", plans, err)
	}
	page, err := api.Stream(ctx, client.StreamFilter{})
	if err != nil || len(page.Items) == 0 {
		t.Errorf("stream: %+v, %v", page, err)
	}
	for _, e := range page.Items {
		if e.Cluster != cluster {
			t.Errorf("the stream tells of %s/%s", e.Kind, e.Name)
		}
	}
	if docs, err := api.Documents(ctx, model.KindRelease); err != nil || len(docs) != 1 {
		t.Errorf("releases: %+v, %v", docs, err)
	}
}

// nothingElse asks for what is there and may not be seen: the answer is the one for what is not there.
func nothingElse(t *testing.T, api *client.Client, theirPlan string) {
	t.Helper()
	ctx := t.Context()
	same := func(what string, there, absent error, name, other string) {
		t.Helper()
		wantKind(t, what, there, director.KindNotFound)
		if there == nil || absent == nil || strings.ReplaceAll(there.Error(), name, other) != absent.Error() {
			t.Errorf("%s: %v tells it from %v", what, there, absent)
		}
	}
	for what, ask := range map[string]func(name string) error{
		"cluster":    func(n string) error { _, err := api.Cluster(ctx, n); return err },
		"nodes":      func(n string) error { _, err := api.Nodes(ctx, n); return err },
		"plan for":   func(n string) error { _, err := api.MakePlan(ctx, n, plan.Request{}); return err },
		"kubeconfig": func(n string) error { _, err := api.Kubeconfig(ctx, n, 0); return err },
		"inventory":  func(n string) error { _, err := api.Inventory(ctx, n); return err },
		"document": func(n string) error {
			_, err := api.Document(ctx, model.Ref{Kind: model.KindCluster, Name: n})
			return err
		},
		"deletion": func(n string) error {
			return api.DeleteDocument(ctx, model.Ref{Kind: model.KindCluster, Name: n})
		},
	} {
		same(what, ask("theirs"), ask("absent"), "theirs", "absent")
	}
	for what, ask := range map[string]func(id string) error{
		"plan":    func(id string) error { _, err := api.Plan(ctx, id); return err },
		"start":   func(id string) error { _, err := api.StartPlan(ctx, id, "h"); return err },
		"discard": func(id string) error { _, err := api.DiscardPlan(ctx, id); return err },
		"archive": func(id string) error { _, err := api.Archive(ctx, id); return err },
		"log":     func(id string) error { _, err := api.StepLog(ctx, id, "s", 0, 0); return err },
	} {
		same(what, ask(theirPlan), ask("0000-absent"), theirPlan, "0000-absent")
	}
	for what, err := range map[string]error{
		"providers": second(api.Documents(ctx, model.KindProvider)), "users": second(api.Users(ctx, "")),
		"grants": second(api.Documents(ctx, model.KindGrant)), "credentials": second(api.Credentials(ctx)),
		"the audit trail": second(api.AuditTrail(ctx, client.AuditFilter{})), "VMs": second(api.VMs(ctx, true)),
		"schedules": second(api.Schedules(ctx)), "capacity": second(api.Capacity(ctx, model.VMSize{})),
		"a schedule's run": second(api.RunSchedule(ctx, "x")),
	} {
		wantKind(t, what, err, director.KindForbidden)
	}
}

func second[T any](_ T, err error) error { return err }

// worksInside makes and runs plans of the cluster that both have a grant for.
func worksInside(t *testing.T, admin, ann, bob *client.Client) {
	t.Helper()
	ctx := t.Context()
	for name, r := range map[string]plan.Request{
		"adopt_disks": {AdoptDisks: map[string]string{"shop-w-1": "k"}}, "lost_host": {LostHost: "h1"},
		"host_keys": {HostKeys: map[string]string{"shop-w-1": "ssh-ed25519 AAAA"}},
	} {
		_, err := bob.MakePlan(ctx, "shop", r)
		wantKind(t, "a plan that reaches beyond the cluster", err, director.KindInvalid, name)
	}
	p, err := bob.MakePlan(ctx, "shop", plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = ann.StartPlan(ctx, p.ID, p.Hash); err != nil {
		t.Fatal(err)
	}
	status, err := bob.Follow(
		ctx, p.ID, 0, func(wire.Event) error { return nil }, func(wire.EventGap) {}, func(error) {},
	)
	if err != nil || status != string(plan.StatusDone) {
		t.Errorf("%s, %v", status, err)
	}
	if _, err := ann.Kubeconfig(ctx, "shop", 0); err != nil {
		t.Errorf("an admin of the project: %v", err)
	}
	_, err = bob.Kubeconfig(ctx, "shop", 0)
	wantKind(t, "an operator's kubeconfig", err, director.KindForbidden)
	if err := applied(ctx, admin, strings.Replace(grantShop, "operator", "user", 1)); err != nil {
		t.Fatal(err)
	}
	_, err = bob.MakePlan(ctx, "shop", plan.Request{})
	wantKind(t, "after the role went down", err, director.KindForbidden)
	if err := applied(ctx, admin, grantShop); err != nil {
		t.Fatal(err)
	}
}

// appliesInside stores documents: an admin of a project may store its clusters, within its quota.
func appliesInside(t *testing.T, admin, ann, bob *client.Client) {
	t.Helper()
	ctx := t.Context()
	cluster := func(name, project, more string) string {
		return "apiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: " + name +
			"}\nspec: {release: k8s, provider: lab, " +
			"image: node, network: net, project: " + project + more + "}\n"
	}
	wantKind(t, "an operator applies", applied(ctx, bob, cluster("shop", "web", "")), director.KindForbidden)
	for what, c := range map[string]struct {
		text string
		kind director.Kind
		says string
	}{
		"another kind": {
			"apiVersion: kaas/v1\nkind: Project\nmetadata: {name: web}\nspec: {}\n",
			director.KindForbidden, "Project/web",
		},
		"no project":      {cluster("blog", `""`, ""), director.KindInvalid, "spec.project"},
		"another project": {cluster("blog", "other", ""), director.KindInvalid, "spec.project"},
		"moved away": {
			cluster("shop", "other", ", workers: [{name: w, count: 1}]"), director.KindInvalid,
			"spec.project",
		},
		"another's cluster": {cluster("theirs", "web", ""), director.KindConflict, "the name is taken"},
		"a network that hides": {
			strings.Replace(cluster("blog", "web", ""), "network: net", "network: hidden", 1),
			director.KindInvalid, "Project/web",
		},
		"variables": {cluster("blog", "web", ", vars: {setup_chrony: false}"), director.KindInvalid, "spec.vars"},
		"over the quota": {
			cluster("blog", "web", ", workers: [{name: w, count: 7}]"), director.KindInvalid,
			"spec.quota.machines",
		},
	} {
		wantKind(t, what, applied(ctx, ann, c.text), c.kind, c.says)
	}
	if err := applied(ctx, ann, cluster("blog", "web", "")); err != nil {
		t.Fatal(err)
	}
	_, err := bob.Cluster(ctx, "blog")
	wantKind(t, "a new cluster of the project, by a grant for another", err, director.KindNotFound)
	watch, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- ann.Watch(
			watch, client.StreamFilter{}, func(wire.StreamEvent) error { return nil }, func(wire.StreamGap) {},
			func(error) {},
		)
	}()
	if err := ann.DeleteDocument(ctx, model.Ref{Kind: model.KindCluster, Name: "blog"}); err != nil {
		t.Error(err)
	}
	err = admin.DeleteDocument(ctx, model.Ref{Kind: model.KindGrant, Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ann.Cluster(ctx, "shop")
	wantKind(t, "after the grant is gone", err, director.KindForbidden)
	select { // the stream ends within the time of a recheck, and is not opened again
	case err := <-ended:
		wantKind(t, "the stream", err, director.KindForbidden)
	case <-time.After(40 * time.Second):
		t.Error("a stream outlives the grant")
	}
	stop()
	if err := applied(ctx, admin, strings.Replace(grantWeb, "ROLE", "admin", 1)); err != nil {
		t.Fatal(err)
	}
}
