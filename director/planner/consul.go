package planner

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// consulLimit bounds a step that asks a Consul: no plan waits for one that hangs.
const consulLimit = 90 * time.Second

// syncImage is the image of the program that syncs Services with Consul.
const syncImage = "consul-sync"

// How much of the discovery a plan brings to the cluster.
type discovering int

const (
	whatChanged discovering = iota // since the cluster was installed
	newImage                       // that, and the sync in any case
	renewed                        // all, with another token
)

// consulDraft plan what a cluster has in Consul, and the agents of its nodes.
type consulDraft struct{ *draft }

func (d *draft) consul() consulDraft { return consulDraft{d} }

// Consul returns the plan that brings what the cluster and its Consul learn of each other to their documents, with
// other tokens for the sync and for agents. Errors: conflict for a cluster that is not installed, or has nothing
// to bring.
func Consul(w World, r plan.Request) (plan.Content, error) {
	const op = "planner.consul"
	_, all, err := w.rotatable(op)
	if err != nil {
		return plan.Content{}, err
	}
	is, was := w.Cluster.Cluster.Discovery, w.Installed.Cluster.Discovery
	if !learns(is) && !learns(was) {
		return plan.Content{}, conflict(
			op, "cluster "+w.Cluster.Metadata.Name+
				" exports and imports nothing, has no agents, and asks no Consul for names",
			"set export, import, dns or agents in spec.discovery first",
		)
	}
	d := w.draft(plan.ClusterConsul)
	d.Request = r
	return d.consul().consulPlan(all, renewed), nil
}

// consulPlan is the plan for the sync alone.
func (d consulDraft) consulPlan(machines []sized, how discovering) plan.Content {
	w := d.w
	needs := []string{d.releasePush()}
	needs = d.discover(how, d.tellRegistries(needs))
	params := w.params().clusterParams(w.endpoint(mastersOf(machines)), machines)
	d.record(outerRegistries{w}.recordedIn(params), needs...)
	d.Facts = encode(w.facts(machines))
	d.Summary = "Bring what cluster " + d.Cluster + " and Consul learn of each other to the documents"
	is := w.Cluster.Cluster.Discovery
	switch {
	case how == renewed && is.Agents:
		d.Summary = "Give cluster " + d.Cluster + " other tokens for Consul, and bring its agents to the documents."
	case how == renewed && is.Syncs():
		d.Summary = "Give the sync of cluster " + d.Cluster +
			" with Consul another token, and bring it to the documents."
	case is.Agents != w.Installed.Cluster.Discovery.Agents:
		d.Summary += ": agents on the nodes, and no pod is touched."
	case is.Agents && len(w.offersOthers()) > 0:
		d.Summary += ": the agents on the nodes register other services, and no pod is touched."
	default:
		d.Summary += ": no node is touched."
	}
	return d.done()
}

// rediscovers tells whether another discovery than the installed one has work for a plan.
func (w World) rediscovers() bool {
	is, was := w.Cluster.Cluster.Discovery, w.Installed.Cluster.Discovery
	return (learns(is) || learns(was)) && !reflect.DeepEqual(is, was) || is.Agents && len(w.offersOthers()) > 0
}

// discover brings the sync with Consul and the name servers of the cluster to the document, and returns the last steps.
func (d consulDraft) discover(how discovering, needs []string) []string {
	is := d.w.Cluster.Cluster.Discovery
	var was model.Discovery
	if d.w.Installed != nil {
		was = d.w.Installed.Cluster.Discovery
	}
	if is.Syncs() && (how != whatChanged || !reflect.DeepEqual(is, was)) {
		needs = d.sync(is, how == renewed, needs)
	}
	if was.Syncs() && !is.Syncs() {
		needs = []string{d.play(playbook{
			name: "consul_sync_remove", subject: d.Cluster, title: "Remove the sync with Consul",
			effects: []plan.Effect{{
				Verb: "delete", Object: "api", Name: syncImage, Detail: "with the Services that it has imported",
			}}, estimate: 20 * time.Second,
		}, needs, group{})}
	}
	if was.Syncs() && (!is.Syncs() || was.Consul != is.Consul) {
		needs = []string{d.endToken(was.Consul, needs)}
	}
	needs = d.bringAgents(how, needs)
	if d.w.Installed == nil {
		return needs // the pod network comes with these settings
	}
	if is.DNS && (how == renewed || !was.DNS || is.Consul != was.Consul) || was.DNS && !is.DNS {
		needs = []string{d.play(playbook{
			name: "cluster_dns", subject: d.Cluster, title: "Tell the cluster's name servers who answers for Consul",
			effects:  []plan.Effect{{Verb: "change", Object: "api", Name: "coredns"}},
			estimate: 15 * time.Second,
		}, needs, group{})}
	}
	return needs
}

// sync installs the sync of Services, or brings it to the documents.
func (d consulDraft) sync(is model.Discovery, renew bool, needs []string) []string {
	if _, has := d.w.Bundle.ImageTags[syncImage]; !has {
		d.warn(fmt.Sprintf("Release/%s has no image %s: Services are not synced with Consul before an upgrade to one "+
			"that has it", d.w.Cluster.Cluster.Release, syncImage))
		return needs
	}
	do, title := step.TokenMake, "Have a token for the sync in Consul"
	if renew {
		do, title = step.TokenRenew, "Make another token for the sync in Consul"
	}
	needs = []string{d.token(do, is.Consul, title, plan.Effect{
		Verb: "create", Object: "secret", Name: "Consul/" + is.Consul,
		Detail: "ACL policy and token of the cluster; sealed",
	}, needs)}
	needs = []string{d.play(playbook{
		name: "consul_sync", subject: d.Cluster, title: "Sync Services with Consul",
		vars: map[string]any{
			"consul_settings": d.syncSettings(is), "consul_ca": d.w.Consul.Consul.TLS.CA,
		},
		effects:  []plan.Effect{{Verb: "create", Object: "api", Name: syncImage, Detail: "in kube-system"}},
		estimate: 30 * time.Second,
	}, needs, group{})}
	if renew {
		needs = []string{d.token(step.TokenSettle, is.Consul, "End the former tokens of the sync", plan.Effect{
			Verb: "delete", Object: "secret", Name: "Consul/" + is.Consul, Detail: "former tokens of the cluster",
		}, needs)}
	}
	return needs
}

// syncSettings is the configuration of the sync, in JSON. It holds no secret.
func (d consulDraft) syncSettings(is model.Discovery) string {
	c := d.w.Consul.Consul
	addresses := make([]string, len(c.Addresses))
	for i, a := range c.Addresses {
		addresses[i] = a
		if u, err := url.Parse(a); err == nil && u.Port() == "" {
			addresses[i] = "https://" + net.JoinHostPort(u.Hostname(), model.ConsulPort)
		}
	}
	consul := map[string]any{"addresses": addresses, "datacenter": c.Datacenter}
	if c.TLS.ServerName != "" {
		consul["serverName"] = c.TLS.ServerName
	}
	export := map[string]any{
		"loadBalancer": is.Export.LoadBalancer, "ingress": is.Export.Ingress, "annotated": is.Export.Annotated,
	}
	if len(is.Export.Names) > 0 {
		export["names"] = is.Export.Names
	}
	imports := make([]map[string]any, len(is.Import))
	for i, m := range is.Import {
		imports[i] = map[string]any{
			"service": m.Service, "namespace": m.Namespace, "name": m.ServiceName(), "port": m.Port,
		}
	}
	text, err := json.Marshal(map[string]any{
		"owner": d.w.Director.ID, "cluster": d.w.Cluster.UID, "consul": consul, "export": export, "import": imports,
	})
	if err != nil {
		panic(err) // maps of texts and numbers
	}
	return string(text)
}

// tokenRules are the ACL rules of a cluster's sync: it makes the cluster's nodes, and writes no names of the director.
// Consul lets who may write a service write it on nodes of others, too. A more exact rule counts before one that is
// less so.
func tokenRules(uid string, d model.Discovery) string {
	var b strings.Builder
	rule := func(kind, name, policy string) { fmt.Fprintf(&b, "%s %q { policy = %q }\n", kind, name, policy) }
	rule("node_prefix", "", "read")
	rule("node", director.ConsulNode(uid), "write")
	rule("node_prefix", director.ConsulMoreNodes(uid), "write")
	every := "read"
	if d.Export.Any() && len(d.Export.Names) == 0 {
		every = "write"
	}
	rule("service_prefix", "", every)
	if d.Export.Any() {
		for _, name := range d.Export.Names {
			if begin, all := strings.CutSuffix(name, "*"); all {
				rule("service_prefix", begin, "write")
			} else {
				rule("service", name, "write")
			}
		}
	}
	rule("service_prefix", director.ConsulPrefix, "read")
	rule("service", "consul", "read")
	return b.String()
}

// token adds a step of the cluster's token in the Consul.
func (d consulDraft) token(do step.ConsulTokenVerb, consul, title string, effect plan.Effect, needs []string) string {
	p := step.ConsulTokenParams{
		ConsulParams: step.ConsulParams{Consul: consul, UID: d.w.Cluster.UID, Cluster: d.Cluster}, Do: do,
	}
	if do == step.TokenMake || do == step.TokenRenew {
		p.Rules = tokenRules(d.w.Cluster.UID, d.w.Cluster.Cluster.Discovery)
	}
	return d.add(plan.Step{
		ID: step.ConsulToken + "/" + string(do), Kind: step.ConsulToken, Title: title, Needs: unique(needs),
		Params: encode(p), Effects: []plan.Effect{effect},
		Attempts: 3, Timeout: consulLimit, Estimate: time.Second,
	})
}

// endToken ends what the sync of the cluster has in the Consul.
func (d consulDraft) endToken(consul string, needs []string) string {
	return d.token(step.TokenEnd, consul, "Remove the sync from Consul", plan.Effect{
		Verb: "delete", Object: "secret", Name: "Consul/" + consul,
		Detail: "ACL policy and tokens of the cluster, and what its sync has registered",
	}, needs)
}

// register registers the cluster in the Consul that it names, if it names one.
func (d consulDraft) register(needs ...string) {
	d.consul(step.ConsulRegister, "Register the cluster in Consul", "create", needs)
}

// deregister removes the cluster's entries and tokens from the Consuls that it has named, and returns what to wait for.
func (d consulDraft) deregister(needs []string) []string {
	synced := d.w.Cluster.Cluster.Discovery
	watched := synced
	if d.w.Installed != nil && d.w.Installed.Cluster.Discovery.Syncs() {
		synced = d.w.Installed.Cluster.Discovery
	}
	if d.w.Installed != nil && d.w.Installed.Cluster.Discovery.Agents {
		watched = d.w.Installed.Cluster.Discovery
	}
	if watched.Agents {
		needs = append([]string{d.endAgents(watched.Consul, needs)}, needs...)
	}
	if synced.Syncs() {
		needs = append([]string{d.endToken(synced.Consul, needs)}, needs...)
	}
	if id := d.consul(step.ConsulDeregister, "Remove the cluster from Consul", "delete", needs); id != "" {
		needs = append([]string{id}, needs...)
	}
	return needs
}

func (d consulDraft) consul(kind, title, verb string, needs []string) string {
	name := d.w.Cluster.Cluster.Discovery.Consul
	if name == "" {
		return ""
	}
	return d.add(plan.Step{
		ID: kind + "/" + d.Cluster, Kind: kind, Title: title, Needs: unique(needs),
		Params: encode(step.ConsulParams{Consul: name, UID: d.w.Cluster.UID, Cluster: d.Cluster}),
		Effects: []plan.Effect{{
			Verb: verb, Object: "api", Name: "Consul/" + name, Detail: "entries of the API server",
		}},
		Attempts: 3, Timeout: consulLimit, Estimate: time.Second,
	})
}
