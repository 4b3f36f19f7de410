// Package wire holds the bodies of the HTTP API, shared by the server (director/api) and the client (director/client),
// with their conversion from the nouns of director, model and plan. All JSON names are snake_case; times are RFC 3339
// in UTC and spans are seconds. Only the documents inside of it keep the form of director/model.
package wire

import (
	"encoding/json"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Prefix is the path under which every operation lies.
const Prefix = "/api/v1"

// Problem is the body of every error, in the form of RFC 9457 with our additions.
type Problem struct {
	Type      string         `json:"type" doc:"urn:kaas:problem: and the kind."`
	Title     string         `json:"title" doc:"What the kind means, the same for all problems of the kind."`
	Status    int            `json:"status" doc:"The HTTP status."`
	Detail    string         `json:"detail" doc:"What is wrong, for people."`
	Kind      string         `json:"kind" doc:"The class of the problem; programs should look at this alone."`
	Hint      string         `json:"hint,omitempty" doc:"What to do next."`
	Errors    []ProblemField `json:"errors,omitempty" doc:"Every place of the input that is wrong."`
	Holder    *Holder        `json:"holder,omitempty" doc:"The plan that is in the way, for conflicts with one."`
	RequestID string         `json:"request_id,omitempty" doc:"Names the request in the director's log."`
}

// Holder is the plan that is in the way of what was asked.
type Holder struct {
	Plan      string    `json:"plan" doc:"Its id."`
	Cluster   string    `json:"cluster" doc:"What it holds."`
	Operation string    `json:"operation,omitempty"`
	Status    string    `json:"status,omitempty"`
	By        string    `json:"by,omitempty" doc:"Who started it."`
	Since     time.Time `json:"since" doc:"When it was started."`
}

// ProblemField is one wrong place in an input.
type ProblemField struct {
	Field    string `json:"field" doc:"The place, such as spec.workers[0].memory, for documents with source and line before it."`
	Document string `json:"document,omitempty" doc:"The document that the place is in, as Kind/name, where it is known."`
	Pointer  string `json:"pointer,omitempty" doc:"The place in the document as a JSON pointer (RFC 6901), such as /spec/workers/0/memory."`
	Message  string `json:"message" doc:"What is wrong there."`
	Hint     string `json:"hint,omitempty" doc:"What would be right."`
}

// ProblemTypePrefix comes before the kind in Problem.Type.
const ProblemTypePrefix = "urn:kaas:problem:"

// AsError returns the problem as the error that caused it. Kinds that this version does not know become internal.
func (p Problem) AsError(op string) *director.Error {
	kind := director.KindInternal
	for _, k := range director.Kinds() {
		if string(k) == p.Kind {
			kind = k
		}
	}
	e := &director.Error{Kind: kind, Op: op, Msg: p.Detail, Hint: p.Hint}
	if h := p.Holder; h != nil {
		e.Holder = &director.Holder{
			Plan: h.Plan, Cluster: h.Cluster, Operation: h.Operation, Status: h.Status, By: h.By, Since: h.Since,
		}
	}
	for _, f := range p.Errors {
		e.Fields = append(e.Fields, director.Field{
			Path: f.Field, Document: f.Document, Msg: f.Message, Hint: f.Hint,
		})
	}
	return e
}

// Login asks for a token.
type Login struct {
	User     string `json:"user" doc:"Name of the user." minLength:"1" maxLength:"64"`
	Password string `json:"password" doc:"The user's password." minLength:"1" maxLength:"256"`
}

// Session is a fresh token with what it is good for.
type Session struct {
	Token              string    `json:"token" doc:"Bearer token. It is shown this once."`
	ExpiresAt          time.Time `json:"expires_at" doc:"When it ends."`
	User               string    `json:"user" doc:"Whose it is."`
	Role               string    `json:"role"`
	MustChangePassword bool      `json:"must_change_password" doc:"Until the password is changed, only that is allowed."`
}

// Me says who asks.
type Me struct {
	User               string    `json:"user"`
	Role               string    `json:"role"`
	MustChangePassword bool      `json:"must_change_password"`
	Kind               string    `json:"kind" enum:"login,browser,api" doc:"What shows the token: a program after a login, a browser, or a program on its own."`
	Scope              string    `json:"scope" enum:"all,read,phases" doc:"What the token can be used for."`
	ExpiresAt          time.Time `json:"expires_at" doc:"When the token ends. A browser's session ends later if it is used."`
	Grants             []Granted `json:"grants" doc:"What the user may do beyond the role."`
	Can                []string  `json:"can" nullable:"false" doc:"The actions that the token may do on something, by role or grant."`
}

// Settings are what the director's configuration says that clients go by.
type Settings struct {
	Approval        string `json:"approval" enum:"none,any,other" doc:"Who agrees to plans that destroy something."`
	PlanLifeSeconds int64  `json:"plan_life_seconds" doc:"How long a plan can be started after it was made."`
	NodeShells      int    `json:"node_shells" doc:"Shells on nodes that may be open at once; 0 for none."`
	Notice          string `json:"notice,omitempty" doc:"Plain text of the configuration for everyone who logs in."`
}

// Granted is a role in a project or on a cluster; on the whole director with neither.
type Granted struct {
	Role    string `json:"role" enum:"admin,operator,user,auditor"`
	Project string `json:"project,omitempty"`
	Cluster string `json:"cluster,omitempty"`
}

// MeOf says who the actor is, and what it can do.
func MeOf(a director.Actor, can []string) Me {
	grants := make([]Granted, len(a.Grants))
	for i, g := range a.Grants {
		grants[i] = Granted{Role: string(g.Role), Project: g.Project, Cluster: g.Cluster}
	}
	return Me{
		Grants: grants, Can: can,
		User: a.User, Role: string(a.Role), MustChangePassword: a.MustChange, Kind: string(a.Kind),
		Scope: string(a.Scope), ExpiresAt: a.Expires.UTC(),
	}
}

// PasswordChange replaces the asking user's password. All other sessions of the user end.
type PasswordChange struct {
	Current string `json:"current" doc:"The password up to now." minLength:"1" maxLength:"256"`
	New     string `json:"new" doc:"The password from now on, 12 characters or more." minLength:"1" maxLength:"256"`
}

// Version says what runs.
type Version struct {
	Version string `json:"version" doc:"Version of the director."`
	Commit  string `json:"commit,omitempty" doc:"Commit it was built from."`
	Go      string `json:"go" doc:"Version of Go it was built with."`
}

// Readiness says whether the director can work, and what was looked at.
type Readiness struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`
}

// Check is one thing that the director needs to work.
type Check struct {
	Name   string `json:"name" doc:"database, engine, disk, registry, claims or registry-bucket. The director is ready without the last two. Claims fail while another copy of it works on its clusters; without its registry-bucket, no images are pulled or pushed."`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty" doc:"What is wrong."`
}

// Applied is what an apply did, or would do.
type Applied struct {
	DryRun  bool     `json:"dry_run" doc:"Nothing was stored."`
	Changes []Change `json:"changes" doc:"One for each document, in the order of application."`
}

// Change is what an apply did to one document.
type Change struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Action string `json:"action" enum:"created,changed,unchanged"`
	Diff   string `json:"diff,omitempty" doc:"Line diff of the YAML form, for changed."`
}

// ChangesOf converts the changes of an apply.
func ChangesOf(changes []model.Change) []Change {
	out := make([]Change, len(changes))
	for i, c := range changes {
		out[i] = Change{Kind: string(c.Ref.Kind), Name: c.Ref.Name, Action: c.Action, Diff: c.Diff}
	}
	return out
}

// Document is a stored document with its history.
type Document struct {
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	UID        string          `json:"uid,omitempty" doc:"Of this incarnation: a document deleted and made again has another."`
	Generation int64           `json:"generation" doc:"Counts the changes of the document, from 1."`
	ETag       string          `json:"etag,omitempty" doc:"For If-Match: names this version of the document."`
	CreatedAt  time.Time       `json:"created_at"`
	UpdatedAt  time.Time       `json:"updated_at"`
	UpdatedBy  string          `json:"updated_by"`
	Document   json.RawMessage `json:"document" doc:"The document as it can be applied again."`
}

// DocumentOf converts a stored document.
func DocumentOf(s model.Stored) (Document, error) {
	raw, err := model.EncodeJSON(s.Document)
	if err != nil {
		return Document{}, err
	}
	return Document{
		Kind: string(s.Kind), Name: s.Metadata.Name, UID: s.UID, Generation: s.Generation,
		CreatedAt: s.Created, UpdatedAt: s.Updated, UpdatedBy: s.UpdatedBy, Document: raw,
	}, nil
}

// Documents is a list of documents, ordered by name.
type Documents struct {
	Items    []Document `json:"items"`
	Continue string     `json:"continue,omitempty" doc:"Absent at the end of the list; otherwise the query's continue for what follows."`
}

// Cluster is what is known of a cluster without asking it.
type Cluster struct {
	Name       string    `json:"name"`
	Project    string    `json:"project,omitempty" doc:"Project that it belongs to."`
	Generation int64     `json:"generation" doc:"Generation of its document."`
	Status     string    `json:"status" enum:"absent,creating,unfinished,ready,changing,deleting,failed" doc:"unfinished: machines are there and no cluster. failed: its creation or deletion has. A cluster whose last work on nodes has failed is ready, and shows that plan."`
	Release    string    `json:"release,omitempty" doc:"That its document names."`
	Version    string    `json:"version,omitempty" doc:"Of Kubernetes that is installed. Absent while nothing is, and if its release is gone."`
	CreatedAt  time.Time `json:"created_at" doc:"When its document was stored first."`
	Endpoint   string    `json:"endpoint,omitempty" doc:"Address of its Kubernetes API."`
	Nodes      int       `json:"nodes" doc:"How many machines it has."`
	Machines   []Machine `json:"machines" doc:"A list of many clusters is much faster when its fields leave them out."`
	Plan       string    `json:"plan,omitempty" doc:"The plan that holds it, or its newest one if that failed or was cancelled."`
	PlanStatus string    `json:"plan_status,omitempty"`

	Newer *NewerRelease `json:"newer,omitempty" doc:"The newest release that it can be upgraded to at once. Absent if it has the newest."`
}

// NewerRelease is a release of a newer version of Kubernetes, which has a document.
type NewerRelease struct {
	Release string `json:"release" doc:"Name of its document."`
	Version string `json:"version" doc:"Of Kubernetes."`
}

// Clusters is a list of clusters.
type Clusters struct {
	Items    []Cluster `json:"items"`
	Continue string    `json:"continue,omitempty" doc:"Absent at the end of the list; otherwise the query's continue for what follows."`
	Total    *int      `json:"total,omitempty" doc:"With facets: how many clusters the query leaves, on all pages."`
	Facets   *Facets   `json:"facets,omitempty" doc:"With facets: what these clusters can be narrowed by further."`
}

// Facets count clusters by what they can be narrowed by.
type Facets struct {
	Status     map[string]int `json:"status"`
	PlanStatus map[string]int `json:"plan_status"`
	Release    map[string]int `json:"release"`
	Project    map[string]int `json:"project"`
	Version    map[string]int `json:"version" doc:"Installed versions of Kubernetes."`
}

// Machine is one VM of a cluster.
type Machine struct {
	Name        string `json:"name"`
	Role        string `json:"role"`
	Pool        string `json:"pool,omitempty"`
	Address     string `json:"address,omitempty"`
	Host        string `json:"host,omitempty" doc:"Hypervisor host that it runs on."`
	VMID        string `json:"vm_id,omitempty" doc:"The hypervisor's id of it."`
	State       string `json:"state" doc:"Of its row in the ledger."`
	CPUs        int    `json:"cpus,omitempty"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	// Interfaces are the further adapters.
	Interfaces []Interface `json:"interfaces,omitempty" doc:"Its network further adapters, whose address is the machine's."`
}

// Interface is a network adapter of a machine.
type Interface struct {
	Role    string `json:"role" enum:"services,storage"`
	Network string `json:"network"`
	Address string `json:"address"`
	MAC     string `json:"mac"`
}

// Node is one node of a cluster: what the director, the hypervisor and the cluster itself say of it.
type Node struct {
	Name    string `json:"name"`
	Role    string `json:"role"`
	Pool    string `json:"pool,omitempty"`
	Address string `json:"address,omitempty"`
	Host    string `json:"host,omitempty" doc:"Hypervisor host that it runs on."`
	// HostLost is of the host, and not of the node.
	HostLost bool   `json:"host_lost,omitempty" doc:"Its host was declared lost."`
	HostDown string `json:"host_down,omitempty" doc:"Why its host does not answer. Absent if it does, or was declared lost."`
	State    string `json:"state" doc:"Of the machine."`
	Power    string `json:"power,omitempty" enum:"on,off,missing" doc:"Of the VM. Absent if the hypervisor could not be asked."`
	KeptBy   string `json:"kept_by,omitempty" doc:"Who keeps its VM outside of the cluster. No plan takes that VM for surplus; a plan that needs one more node brings it back."`
	Version  string `json:"version,omitempty" doc:"That it was brought to as a member. Absent while it is none."`
	Wanted   string `json:"wanted,omitempty" doc:"Version of the cluster's document."`
	Kubelet  string `json:"kubelet,omitempty" doc:"Version that its kubelet reports."`
	Ready    bool   `json:"ready"`
	Cordoned bool   `json:"cordoned,omitempty"`
	Etcd     bool   `json:"etcd,omitempty" doc:"Its etcd member is ready."`
	Reason   string `json:"reason,omitempty" doc:"Why it is not ready, in the cluster's words."`
	Problem  string `json:"problem,omitempty" doc:"What is wrong with it. Absent if nothing is."`
	Repair   string `json:"repair,omitempty" doc:"Operation that would mend that."`
	Hint     string `json:"hint,omitempty" doc:"Command that mends it where no operation on nodes does."`

	Certificates []Certificate `json:"certificates,omitempty" doc:"Its certificates that can be seen without logging in to it, the soonest end first."`
}

// Certificate is one of a node's certificates, as others see it.
type Certificate struct {
	Name      string    `json:"name" doc:"apiserver, etcd, kubelet or kubelet-client."`
	EndsAt    time.Time `json:"ends_at" doc:"Until when it is good."`
	SeenAt    time.Time `json:"seen_at" doc:"When it was looked at last."`
	Unchecked bool      `json:"unchecked,omitempty" doc:"The kubelet has signed it itself and nothing checks it, so its end is no problem."`
}

// Nodes is the nodes of a cluster: masters first, then by pool and number.
type Nodes struct {
	Items  []Node `json:"items"`
	Unseen string `json:"unseen,omitempty" doc:"Why the cluster itself could not be asked. Absent if it answered."`
	Plan   string `json:"plan,omitempty" doc:"The plan that holds the cluster."`

	AutoRepair string `json:"auto_repair,omitempty" doc:"What automatic repair does, or why it does nothing. Absent if it is off, or has not looked yet."`
}

// Eviction is a pod that a drain would move away, or would not.
type Eviction struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Owner     string `json:"owner,omitempty" doc:"Kind and name of its controller."`
	Blocked   string `json:"blocked,omitempty" doc:"Why it would stay: budget, unmanaged, local_data or other. Absent if it would go."`
	Why       string `json:"why,omitempty" doc:"The same for people."`
}

// Evictions is what a drain of a node would do.
type Evictions struct {
	Items []Eviction `json:"items"`
}

// PlanDrains are the drains of a plan that have not ended, as they would go now.
type PlanDrains struct {
	At    time.Time   `json:"at" doc:"When the cluster was asked. Pods move until the drain itself runs."`
	Items []PlanDrain `json:"items" doc:"In the plan's order."`
	Rest  int         `json:"rest" doc:"Drains after these, of which nothing was asked."`
}

// PlanDrain is what one drain of a plan would do.
type PlanDrain struct {
	Step   string     `json:"step" doc:"Id of the step that drains."`
	Node   string     `json:"node"`
	Pods   []Eviction `json:"pods" doc:"What would move away, or would not."`
	Unseen string     `json:"unseen,omitempty" doc:"Why the cluster could not be asked. Absent if it answered."`
}

// PlanStart starts a plan.
type PlanStart struct {
	Hash string `json:"hash" doc:"Hash of the plan that was read and approved." minLength:"1"`
}

// PlanCancel stops a plan.
type PlanCancel struct {
	Now bool `json:"now,omitempty" doc:"End the running steps too. Left out, they come to their end first."`
}

// PlanPause keeps further steps from starting.
type PlanPause struct {
	Reason string `json:"reason,omitempty" doc:"Why, for those who wonder." maxLength:"500"`
}

// PlanRetry lets a stopped plan go on.
type PlanRetry struct {
	Step string `json:"step,omitempty" doc:"Id of the only step to run again. Left out, all that failed, parked or was undone."`
}

// PlanSkip lets a plan go on without a step.
type PlanSkip struct {
	Step   string `json:"step" doc:"Id of the step." minLength:"1"`
	Reason string `json:"reason" doc:"Why it is not needed; kept in the journal." minLength:"3" maxLength:"500"`
}

// Wait is one answer to why nothing happens.
type Wait struct {
	Step     string     `json:"step,omitempty" doc:"Absent for the plan as a whole."`
	Reason   string     `json:"reason" doc:"What it waits for."`
	Owner    string     `json:"owner,omitempty" doc:"Who ends the wait: a person, the director, a process of it, or the plans that hold what is missing."`
	Since    *time.Time `json:"since,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty" doc:"When the wait ends at the latest. Absent if only its owner can end it."`
}

// Window bounds how many nodes are worked on at once.
type Window struct {
	ID      string `json:"id"`
	Size    int    `json:"size" doc:"Nodes at once."`
	PerHost int    `json:"per_host,omitempty" doc:"Nodes at once that share a hypervisor host."`
	Goal    string `json:"goal,omitempty" doc:"What nodes do that are through it."`
}

// PlanSummary is a plan without its steps.
type PlanSummary struct {
	ID              string     `json:"id"`
	Operation       string     `json:"operation"`
	Cluster         string     `json:"cluster"`
	Summary         string     `json:"summary" doc:"One sentence for people."`
	Hash            string     `json:"hash" doc:"SHA-256 of all that a run depends on."`
	CreatedAt       time.Time  `json:"created_at"`
	CreatedBy       string     `json:"created_by"`
	Status          string     `json:"status"`
	Message         string     `json:"message,omitempty" doc:"Why it has its status."`
	Hint            string     `json:"hint,omitempty" doc:"What to do next."`
	StartedAt       *time.Time `json:"started_at,omitempty"`
	FinishedAt      *time.Time `json:"finished_at,omitempty"`
	EstimateSeconds float64    `json:"estimate_seconds" doc:"Along the longest path."`
	StepsDone       int        `json:"steps_done"`
	StepsTotal      int        `json:"steps_total"`
}

// Plan is a frozen plan with the state of its run.
type Plan struct {
	PlanSummary
	Playbooks  string        `json:"playbooks,omitempty" doc:"Hash of the playbooks and templates that the run uses."`
	Models     []ModelRef    `json:"models" doc:"The documents that it was made from."`
	Machines   []PlanMachine `json:"machines" doc:"The VMs that it makes or takes away."`
	Warnings   []string      `json:"warnings"`
	Approvals  []string      `json:"approvals" doc:"What a person has to agree to, one sentence each."`
	ApprovedBy string        `json:"approved_by,omitempty"`
	ExpiresAt  *time.Time    `json:"expires_at,omitempty" doc:"Until when a plan that has not started can be."`
	Windows    []Window      `json:"windows,omitempty"`
	Waits      []Wait        `json:"waits,omitempty" doc:"What it waits for now."`
	Steps      []Step        `json:"steps" doc:"In an order in which they could run one by one."`
	LastEvent  int64         `json:"last_event" doc:"Number of its last event."`
}

// Plans is a list of plans, the newest first.
type Plans struct {
	Items    []PlanSummary `json:"items"`
	Continue string        `json:"continue,omitempty" doc:"Absent at the end of the list; otherwise the query's continue for what follows."`
}

// ModelRef pins a document by its generation.
type ModelRef struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
}

// PlanMachine is a VM that a plan makes or takes away.
type PlanMachine struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Role    string `json:"role"`
	Pool    string `json:"pool,omitempty"`
	Address string `json:"address,omitempty"`
	MAC     string `json:"mac,omitempty"`
	Host    string `json:"host,omitempty"`
}

// Step is one step of a plan with the state of its run.
type Step struct {
	ID              string          `json:"id"`
	Kind            string          `json:"kind"`
	Title           string          `json:"title"`
	Node            string          `json:"node,omitempty" doc:"The node it concerns; absent for the cluster."`
	Needs           []string        `json:"needs" doc:"Steps that must be done first."`
	Undoes          []string        `json:"undoes,omitempty" doc:"Of a rollback step: the steps of its node that it undoes. It only runs when one of those has failed."`
	Params          json.RawMessage `json:"params,omitempty" doc:"What its kind needs; never a secret."`
	Effects         []Effect        `json:"effects"`
	Window          string          `json:"window,omitempty" doc:"The window that its node is handled in."`
	Attempts        int             `json:"attempts" doc:"How often an error is tried in all."`
	TimeoutSeconds  float64         `json:"timeout_seconds" doc:"Of one attempt."`
	EstimateSeconds float64         `json:"estimate_seconds"`
	Status          string          `json:"status"`
	Attempt         int             `json:"attempt" doc:"Of the current or last run; 0 before the first."`
	Failures        int             `json:"failures" doc:"Errors so far."`
	Since           *time.Time      `json:"since,omitempty" doc:"Of the status."`
	StartedAt       *time.Time      `json:"started_at,omitempty"`
	FinishedAt      *time.Time      `json:"finished_at,omitempty"`
	NotBefore       *time.Time      `json:"not_before,omitempty" doc:"When a waiting step may start again."`
	Message         string          `json:"message,omitempty" doc:"Why it waits, parks or failed."`
	Hint            string          `json:"hint,omitempty"`
	Safety          string          `json:"safety,omitempty" doc:"What holds for the cluster meanwhile, if the step fails or waits for a person."`
}

// Effect is one thing that a step changes in the world.
type Effect struct {
	Verb   string `json:"verb"`
	Object string `json:"object" doc:"vm, network, volume, image, file, api, registry or address."`
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
}

// Event is one line of a plan's journal.
type Event struct {
	Plan      string     `json:"plan"`
	Seq       int64      `json:"seq" doc:"Orders the events of one plan without gaps, from 1."`
	At        time.Time  `json:"at"`
	Kind      string     `json:"kind"`
	Step      string     `json:"step,omitempty" doc:"Absent for events of the plan."`
	Attempt   int        `json:"attempt,omitempty"`
	By        string     `json:"by,omitempty"`
	Message   string     `json:"message,omitempty"`
	Hint      string     `json:"hint,omitempty"`
	NotBefore *time.Time `json:"not_before,omitempty"`
}

// EventGap is a part of a plan's journal that the director does not have any more: journals of plans that are done are
// removed in time.
type EventGap struct {
	After   int64 `json:"after" doc:"The events behind this number are gone."`
	Through int64 `json:"through" doc:"Up to this number."`
}

// Events is an answer to one poll.
type Events struct {
	Items []Event `json:"items"`
	// Gap is set where events are missing before the items.
	Gap    *EventGap `json:"gap,omitempty" doc:"Events that were asked for and are not kept any more, before the items."`
	Status string    `json:"status" doc:"Status of the plan after the events."`
	Last   int64     `json:"last" doc:"Number to ask after next."`
	Ended  bool      `json:"ended" doc:"No event follows unless a person acts."`
}

// StreamEvent is one thing that happened on the director.
type StreamEvent struct {
	ID      int64     `json:"id" doc:"Orders what happens on the director, with gaps."`
	At      time.Time `json:"at"`
	Source  string    `json:"source" enum:"audit,plan,node" doc:"audit: a user or a program did something. plan: a plan or a step moved. node: the director saw a change of a node, or of what it sees of a cluster."`
	Kind    string    `json:"kind" doc:"Of the thing that it is about: a kind of document, Plan, Node or User."`
	Name    string    `json:"name"`
	Cluster string    `json:"cluster,omitempty" doc:"Absent for what belongs to none."`
	What    string    `json:"what" doc:"What was done, the kind of the plan's event, or the state that a node has now."`
	By      string    `json:"by,omitempty"`
	Step    string    `json:"step,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Seq     int64     `json:"seq,omitempty" doc:"Number of the event in the plan's own stream."`
	Message string    `json:"message,omitempty"`
	Hint    string    `json:"hint,omitempty"`
}

// StreamGap is a part of the stream that the director does not have any more.
type StreamGap struct {
	After   int64 `json:"after" doc:"What was asked for."`
	Through int64 `json:"through" doc:"What is known begins behind this id."`
}

// Stream is an answer to one poll of the director's stream.
type Stream struct {
	Items []StreamEvent `json:"items"`
	Last  int64         `json:"last" doc:"Id to ask after next."`
	Gap   *StreamGap    `json:"gap,omitempty" doc:"Present if something that was asked for is gone."`
}

// KubeconfigRequest asks for a kubeconfig.
type KubeconfigRequest struct {
	TTLSeconds int64 `json:"ttl_seconds,omitempty" doc:"How long it is good for: 12 hours if left out, 7 days at most." minimum:"0" maximum:"604800"`
}

// BreakGlass asks for a kubeconfig that a cluster accepts whatever its own rules say.
type BreakGlass struct {
	Password   string `json:"password" doc:"The password of who asks." minLength:"1" maxLength:"256"`
	TTLSeconds int64  `json:"ttl_seconds,omitempty" doc:"How long it is good for: an hour if left out, 4 hours at most." minimum:"0" maximum:"14400"`
}

// ClusterToken is a token for the API of a cluster.
type ClusterToken struct {
	Token     string    `json:"token" doc:"What the API server of the cluster takes as a bearer token."`
	ExpiresAt time.Time `json:"expires_at" doc:"When it ends."`
}

// InventoryExport asks for an inventory with secrets.
type InventoryExport struct {
	Password   string `json:"password" doc:"The password of who asks." minLength:"1" maxLength:"256"`
	TTLSeconds int64  `json:"ttl_seconds,omitempty" doc:"How long the SSH certificate is good for: an hour if left out, 12 hours at most." minimum:"0" maximum:"43200"`
}

// Inventory is what a playbook run of a cluster gets: files by path.
type Inventory struct {
	Files map[string]string `json:"files" doc:"Content by path."`
}

// End is the data of the last message of an event stream.
type End struct {
	Status string `json:"status"`
}

// Seconds converts a span.
func Seconds(d time.Duration) float64 { return d.Seconds() }

// Span converts seconds back.
func Span(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// Ended reports whether a plan with the status has had its last event unless a person acts.
func Ended(status string) bool { return plan.Status(status).Ended() }
