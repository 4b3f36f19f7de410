package wire

import "time"

// FleetNode is a node of any cluster as it was seen last.
type FleetNode struct {
	Node
	Cluster   string     `json:"cluster"`
	Provider  string     `json:"provider"`
	Condition string     `json:"condition" enum:"ready,cordoned,pending,problem,unseen" doc:"ready; cordoned: ready, and takes no new pods; pending: no member of the cluster yet, or no more; problem: something is wrong with it; unseen: its cluster could not be asked, or was not looked at yet."`
	SeenAt    *time.Time `json:"seen_at,omitempty" doc:"When its cluster answered last. Absent if it never did."`
	Unseen    string     `json:"unseen,omitempty" doc:"Why the cluster could not be asked since."`
}

// FleetNodes is a page of the nodes of all clusters.
type FleetNodes struct {
	Items      []FleetNode    `json:"items" nullable:"false"`
	Continue   string         `json:"continue,omitempty" doc:"Absent at the end of the list; otherwise the query's continue for what follows."`
	Total      int            `json:"total" doc:"How many nodes the query leaves, on all pages."`
	Conditions map[string]int `json:"conditions" doc:"How many nodes are in each condition. The query's condition does not narrow it."`
}

// ClusterHealth is how a cluster is, by its nodes as they were seen last.
type ClusterHealth struct {
	State       string           `json:"state" enum:"good,degraded,broken,unknown" doc:"degraded: it serves, and some of its nodes are no ready members. broken: too few masters are ready for etcd to take changes. unknown: none of its nodes was seen."`
	Cause       string           `json:"cause,omitempty" doc:"Why it is not good."`
	Nodes       int              `json:"nodes"`
	Conditions  map[string]int   `json:"conditions" doc:"Nodes by condition."`
	Versions    map[string]int   `json:"versions" doc:"Nodes by the version that the kubelet reports."`
	EtcdMembers []string         `json:"etcd_members" nullable:"false" doc:"Masters that are members of etcd."`
	NoMembers   []string         `json:"no_members,omitempty" doc:"Masters that are not."`
	Certificate *NextCertificate `json:"certificate,omitempty" doc:"The certificate that ends first. Absent if none was seen."`
	SeenAt      *time.Time       `json:"seen_at,omitempty" doc:"When the node that was seen longest ago was seen. Absent if one never was."`
}

// NextCertificate is the certificate of a cluster's nodes that ends first.
type NextCertificate struct {
	Node   string    `json:"node"`
	Name   string    `json:"name"`
	EndsAt time.Time `json:"ends_at"`
}

// Summary counts what there is, for a first look.
type Summary struct {
	At            time.Time      `json:"at" doc:"When it was counted."`
	Clusters      int            `json:"clusters"`
	ClusterStatus map[string]int `json:"cluster_status" doc:"Clusters by status."`
	Releases      map[string]int `json:"releases" doc:"Clusters by release."`
	Plans         map[string]int `json:"plans" doc:"Plans by status, without archived ones."`
	Waits         map[string]int `json:"waits" doc:"Waits by who ends them: person, director or plan."`
	Mine          int            `json:"mine" doc:"Waits that the asking user may end."`
	Nodes         int            `json:"nodes"`
	Conditions    map[string]int `json:"conditions" doc:"Nodes by condition."`
	Problems      int            `json:"problems" doc:"Nodes with a problem."`
	Certificates  Certificates   `json:"certificates"`
}

// Certificates counts the ends of nodes' certificates.
type Certificates struct {
	Ended  int        `json:"ended" doc:"Nodes with a certificate that has ended."`
	Ending int        `json:"ending" doc:"Nodes with a certificate that has ended, or ends before the time in before."`
	Before time.Time  `json:"before"`
	NextAt *time.Time `json:"next_at,omitempty" doc:"The soonest end. Absent if no certificate was seen."`
}

// PlanWait is a wait of a plan.
type PlanWait struct {
	Plan      string     `json:"plan"`
	Cluster   string     `json:"cluster"`
	Operation string     `json:"operation"`
	Status    string     `json:"status" doc:"Of the plan."`
	Summary   string     `json:"summary" doc:"Of the plan, one sentence."`
	Owner     string     `json:"owner" enum:"person,director,plan" doc:"Who ends the wait: a person, the director, or other plans that hold what is missing."`
	Who       string     `json:"who,omitempty" doc:"The same by name, where there is one: the process that runs a step, or the plans."`
	Mine      bool       `json:"mine" doc:"The asking user may end it: runs such plans, and where another person has to agree to the plan, has not made it."`
	Reason    string     `json:"reason" doc:"What it waits for."`
	Step      string     `json:"step,omitempty" doc:"The step that waits, or the first of several. Absent for the plan as a whole."`
	Steps     int        `json:"steps,omitempty" doc:"How many steps wait for the same."`
	Since     *time.Time `json:"since,omitempty"`
	Until     *time.Time `json:"until,omitempty" doc:"When the wait ends at the latest. Absent if only its owner can end it."`
}

// PlanWaits is what plans wait for, the longest wait first.
type PlanWaits struct {
	Items []PlanWait `json:"items" nullable:"false"`
	Total int        `json:"total" doc:"How many waits there are; items hold at most as many as the limit."`
}
