package planner

import (
	"fmt"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Create returns the plan that brings the cluster of w from nothing, or from an unfinished creation, to its document.
// Errors: exhausted if the pool has too few addresses, conflict if the cluster is installed already.
func Create(w World) (plan.Content, error) {
	if w.Installed != nil {
		return plan.Content{}, conflict("planner.create", "cluster "+w.Cluster.Metadata.Name+" is installed already",
			"have its changes planned: directorctl plan "+w.Cluster.Metadata.Name)
	}
	r, err := w.compare(nil)
	if err != nil {
		return plan.Content{}, err
	}
	c := w.Cluster.Cluster
	d := w.draft(plan.ClusterCreate)
	machines := r.all()
	d.Summary = fmt.Sprintf("Create cluster %s: %s and %s, Kubernetes %s on provider %s.",
		d.Cluster, director.Count(c.Masters.Count, "master"), director.Count(c.WorkerCount(), "worker"),
		w.Release.Release.Kubernetes, c.Provider)
	for _, m := range r.remove { // the document has become smaller since an earlier try
		d.deleteVM(m, nil, group{})
	}
	d.create(machines)
	d.concerns(r.known()...)
	d.Facts = encode(w.facts(machines))
	return d.done(), nil
}

// create writes the steps. VMs boot side by side; a worker is prepared while the control plane comes up; masters join
// one by one.
func (d *draft) create(machines []sized) {
	w, c := d.w, d.w.Cluster.Cluster
	masters := mastersOf(machines)
	endpoint := w.endpoint(masters)
	cluster := w.params().clusterParams(endpoint, machines)

	release := d.releasePush()
	network := d.makeNetwork()
	image := d.imageEnsure()
	pki := d.makePKI(cluster)
	agents := d.consul().agentTokens()
	prepared := map[string]string{}
	var mastersPrepared []string
	for _, m := range machines {
		boot := d.boot(m, []string{network, image}, group{})
		prepared[m.Name] = d.play(playbook{
			name: "install/prepare", id: "prepare", title: "Prepare " + m.Name, limit: []string{m.Name},
			estimate: 50 * time.Second,
			effects: []plan.Effect{
				{
					Verb: "change", Object: "file", Name: m.Name,
					Detail: "host name, registry trust, container runtime, time",
				},
			},
		}, []string{boot, release, pki, agents}, group{})
		if m.Role == director.RoleMaster {
			mastersPrepared = append(mastersPrepared, prepared[m.Name])
		}
	}
	before := []string{pki}
	if c.API.VIP.IsValid() {
		before = append(before, d.balance(masters, nil, mastersPrepared))
	}
	control, joined := d.controlPlane(masters, prepared, before)
	for _, m := range machines[len(masters):] {
		joined = append(joined, d.play(playbook{
			name: "install/workers", id: "workers", title: "Join worker " + m.Name, limit: []string{m.Name},
			estimate: 40 * time.Second,
			effects:  []plan.Effect{{Verb: "create", Object: "api", Name: "node/" + m.Name}},
		}, []string{control, prepared[m.Name]}, group{}))
	}
	ready := d.allReady(cluster, 45*time.Second, joined)
	d.consul().register(ready)
	verified := d.verify(unique(joined)...) // the check waits for the nodes as well
	told := d.tellRegistries([]string{ready, verified})
	d.record(outerRegistries{w}.recordedIn(cluster), d.consul().discover(whatChanged, told)...)
}

// allReady waits until the nodes of the cluster are ready.
func (d *draft) allReady(cluster step.ClusterParams, estimate time.Duration, needs []string) string {
	return d.add(plan.Step{
		ID: step.KubeReady + "/" + d.Cluster, Kind: step.KubeReady, Title: "Wait until all nodes are ready",
		Needs: unique(needs), Params: encode(cluster), Attempts: 3, Timeout: 15 * time.Minute, Estimate: estimate,
	})
}

func (d *draft) makeNetwork() string {
	w, c := d.w, d.w.Cluster.Cluster
	return d.add(plan.Step{
		ID: step.NetworkEnsure + "/" + c.Network, Kind: step.NetworkEnsure, Title: "Make network " + c.Network,
		Params: encode(step.NetworkParams{
			Provider: c.Provider, Name: c.Network, UID: w.Network.UID, Network: *w.Network.Network,
		}),
		Effects: []plan.Effect{
			{
				Verb: "create", Object: "network", Name: c.Network,
				Detail: w.Network.Network.Mode + " " + w.Network.Network.CIDR.String(),
			},
		},
		Attempts: 5, Timeout: 2 * time.Minute, Estimate: 2 * time.Second,
	})
}

func (d *draft) makePKI(cluster step.ClusterParams) string {
	title, timeout := "Make the certificate authorities", time.Minute
	if issuer := cluster.Document.Certificates.Authority; issuer != "" {
		title, timeout = "Have CertificateAuthority/"+issuer+" issue the certificate authorities", issueTimeout
	}
	return d.add(plan.Step{
		ID: step.ClusterPKI + "/" + d.Cluster, Kind: step.ClusterPKI, Title: title,
		Params: encode(cluster),
		Effects: []plan.Effect{
			{
				Verb: "create", Object: "secret", Name: d.Cluster,
				Detail: "cluster, etcd and front-proxy CA, service account key, encryption key; sealed",
			},
		},
		Attempts: 3, Timeout: timeout, Estimate: time.Second,
	})
}

// controlPlane brings up the masters one after the other. It returns the step of the first one, and those that the
// last one and the pod network end with.
func (d *draft) controlPlane(masters []sized, prepared map[string]string, before []string) (string, []string) {
	c := d.w.Cluster.Cluster
	var control string
	for i, m := range masters {
		title, detail := "Join master "+m.Name, "etcd member, API server, controller manager, scheduler"
		if i == 0 {
			title = "Bring up the control plane on " + m.Name
			detail = "etcd, API server, controller manager, scheduler"
		}
		before = []string{d.play(playbook{
			name: "install/control_plane", id: "control_plane", title: title, limit: []string{m.Name},
			estimate: 3 * time.Minute,
			effects: []plan.Effect{
				{Verb: "create", Object: "api", Name: m.Address + ":" + strconv.Itoa(model.APIPort), Detail: detail},
			},
		}, append([]string{prepared[m.Name]}, before...), group{})}
		if i == 0 {
			control = before[0]
			// The other masters join behind it: a member that comes to etcd makes it wait for two disks, and the many
			// objects of a pod network meanwhile are what makes slow hosts miss etcd's time limits.
			before = append(before, d.play(playbook{
				name: "install/pod_network", id: "pod_network", subject: d.Cluster, title: "Install the pod network",
				estimate: 25 * time.Second,
				effects: []plan.Effect{
					{Verb: "create", Object: "api", Name: c.Pods.Plugin, Detail: "pods " + c.Pods.CIDR.String()},
				},
			}, before, group{}))
		}
	}
	return control, before
}
