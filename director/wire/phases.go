package wire

import (
	"time"

	"github.com/director-kaas/kaas/director"
)

// PhaseRequest is a task of an outer plan.
type PhaseRequest struct {
	TaskID    string `json:"task_id" doc:"The caller's own id of the task. The same id with the same request returns the same task." minLength:"1" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@=+~-]*$"`
	Phase     string `json:"phase" doc:"What the outer plan is about to do, or has done." enum:"cluster,pre_node_lock,post_node_unlock,post_cluster,director"`
	Cluster   string `json:"cluster,omitempty" doc:"For cluster and post_cluster." maxLength:"64"`
	Host      string `json:"host,omitempty" doc:"For pre_node_lock and post_node_unlock: all nodes on this hypervisor host. Exactly one of host and node." maxLength:"253"`
	Node      string `json:"node,omitempty" doc:"For pre_node_lock and post_node_unlock: this node alone." maxLength:"80"`
	Provider  string `json:"provider,omitempty" doc:"Whose host it is. Needed where several providers have a host of the name." maxLength:"64"`
	Drain     *Drain `json:"drain,omitempty" doc:"How far drains go. Left out, they evict what is recreated elsewhere, within spec.maintenance.drainTimeout."`
	Undrained bool   `json:"undrained,omitempty" doc:"The word of a person that nodes are taken out without a drain: what runs there ends at once."`
	Install   bool   `json:"install,omitempty" doc:"For cluster: if the cluster is not installed, create it from its document."`

	HostKeys map[string]string `json:"host_keys,omitempty" doc:"For post_node_unlock: the public SSH host keys of VMs that the outer plan has recreated, by node. They are taken over, and not made."`

	Director string            `json:"director,omitempty" doc:"For director: the host name of the director to upgrade. Needed where there are several." maxLength:"253"`
	Upgrade  *ApplianceUpgrade `json:"upgrade,omitempty" doc:"For director: what it is upgraded with."`
}

// Request converts what was asked for.
func (r PhaseRequest) Request() director.PhaseRequest {
	out := director.PhaseRequest{
		Phase: director.PhaseName(r.Phase), Cluster: r.Cluster, Host: r.Host, Node: r.Node, Provider: r.Provider,
		Undrained: r.Undrained, Install: r.Install,
	}
	if d := r.Drain; d != nil {
		out.DrainTimeout, out.Unmanaged, out.DeleteEmptyDir = Span(d.TimeoutSeconds), d.Unmanaged, d.DeleteEmptyDir
	}
	out.SetHostKeys(r.HostKeys)
	out.Director = r.Director
	if u := r.Upgrade; u != nil {
		out.Upload, out.Within = u.Upload, time.Duration(u.Within)*time.Second
		out.DrainTimeout = max(out.DrainTimeout, time.Duration(u.Drain)*time.Second)
	}
	return out
}

// PhaseRequestOf is the inverse of Request.
func PhaseRequestOf(id string, r director.PhaseRequest) PhaseRequest {
	out := PhaseRequest{
		TaskID: id, Phase: string(r.Phase), Cluster: r.Cluster, Host: r.Host, Node: r.Node, Provider: r.Provider,
		Undrained: r.Undrained, Install: r.Install,
	}
	if r.Phase == director.PhaseDirector {
		out.Director = r.Director
		out.Upgrade = &ApplianceUpgrade{
			Upload: r.Upload, ApplianceWaits: ApplianceWaits{
				Drain: int(r.DrainTimeout / time.Second), Within: int(r.Within / time.Second),
			},
		}
	} else if d := (Drain{
		TimeoutSeconds: Seconds(r.DrainTimeout), Unmanaged: r.Unmanaged, DeleteEmptyDir: r.DeleteEmptyDir,
	}); d != (Drain{}) {
		out.Drain = &d
	}
	if r.HostKeys != "" {
		out.HostKeys = r.KeysOfHosts()
	}
	return out
}

// PhaseTask is a task of an outer plan with what it does.
type PhaseTask struct {
	PhaseRequest
	By         string         `json:"by" doc:"Who asked for it first."`
	State      string         `json:"state" doc:"waiting, running, parked, failed or done." enum:"waiting,running,parked,failed,done"`
	Message    string         `json:"message,omitempty" doc:"Why it is in its state."`
	Hint       string         `json:"hint,omitempty" doc:"What to do next."`
	StartedAt  time.Time      `json:"started_at" doc:"When it was taken."`
	FinishedAt *time.Time     `json:"finished_at,omitempty" doc:"Absent while the outcome may still change."`
	Clusters   []PhaseCluster `json:"clusters" doc:"What it does in each cluster that it concerns."`
	Progress   *PhaseUpgrade  `json:"progress,omitempty" doc:"Of the phase director: how far the upgrade is."`
}

// PhaseUpgrade is how far the upgrade of a director is.
type PhaseUpgrade struct {
	Host  string `json:"host" doc:"Of the director that is upgraded."`
	From  string `json:"from,omitempty" doc:"The version that ran when it was asked for."`
	To    string `json:"to,omitempty" doc:"The version in the archive."`
	Stage string `json:"stage,omitempty" doc:"Absent until it is asked for." enum:"checking,writing,draining,saving,trying,done,failed"`
	Done  int64  `json:"done,omitempty" doc:"Bytes of the root that are written."`
	Total int64  `json:"total,omitempty"`
}

// PhaseCluster is what a task does in one cluster.
type PhaseCluster struct {
	Cluster string      `json:"cluster"`
	State   string      `json:"state" enum:"waiting,running,parked,failed,done"`
	Message string      `json:"message,omitempty"`
	Hint    string      `json:"hint,omitempty"`
	Plans   []PhasePlan `json:"plans" doc:"The newest last; that one is at work, or has brought the outcome."`
	Nodes   []PhaseNode `json:"nodes" doc:"In the order in which they are worked on."`
}

// PhasePlan is a plan of a task.
type PhasePlan struct {
	ID         string `json:"id"`
	Operation  string `json:"operation"`
	Status     string `json:"status" doc:"Of the plan: planned, running, done ..."`
	Message    string `json:"message,omitempty"`
	StepsDone  int    `json:"steps_done"`
	StepsTotal int    `json:"steps_total"`
}

// PhaseNode is how far a task is with a node.
type PhaseNode struct {
	Name       string `json:"name"`
	Step       string `json:"step,omitempty" doc:"What is done with it now, or what stopped."`
	Status     string `json:"status,omitempty" doc:"Of that step."`
	StepsDone  int    `json:"steps_done"`
	StepsTotal int    `json:"steps_total" doc:"0 while no plan has work on it."`
}
