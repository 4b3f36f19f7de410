package director

import "time"

// HookState is how far the delivery of an event to a hook is.
type HookState string

// The states of a delivery. Each says who moves it on; a crash leaves each as it is.
const (
	HookDue       HookState = "due"       // the dispatcher sends it at its time, and again until it is received
	HookAccepted  HookState = "accepted"  // received; the plan waits for an answer that comes later
	HookDelivered HookState = "delivered" // received, and no answer is waited for; final
	HookAnswered  HookState = "answered"  // the final answer is there; final
	HookExpired   HookState = "expired"   // no final answer until the deadline; final
	HookFailed    HookState = "failed"    // given up: nothing received it in time, or the endpoint is gone; final
	HookWithdrawn HookState = "withdrawn" // the plan does not ask any more; final
)

// HookStates returns every state of a delivery in the order of a usual life.
func HookStates() []HookState {
	return []HookState{HookDue, HookAccepted, HookDelivered, HookAnswered, HookExpired, HookFailed, HookWithdrawn}
}

// Open reports whether a delivery in s may still get an answer.
func (s HookState) Open() bool { return s == HookDue || s == HookAccepted }

// HookDecision is the final answer of an endpoint.
type HookDecision string

// The decisions.
const (
	HookContinues HookDecision = "continue"
	HookRefuses   HookDecision = "refuse"
)

// HookEvent is what a hook is told. It holds no secret.
type HookEvent struct {
	Phase     string    `json:"phase"` // such as before.drain
	Plan      string    `json:"plan"`
	Hash      string    `json:"hash"` // of the plan
	Operation string    `json:"operation"`
	Summary   string    `json:"summary"` // of the plan, for people
	Status    string    `json:"status"`  // of the plan
	Step      string    `json:"step,omitempty"`
	Cluster   string    `json:"cluster"`
	Node      string    `json:"node,omitempty"`
	Role      string    `json:"role,omitempty"`     // of the node
	Address   string    `json:"address,omitempty"`  // of the node
	Provider  string    `json:"provider,omitempty"` // that the node's VM is on
	Host      string    `json:"host,omitempty"`     // hypervisor host of the VM
	VM        string    `json:"vm,omitempty"`       // UUID of the VM
	Blocks    bool      `json:"blocks"`             // the plan waits for an answer
	Deadline  time.Time `json:"deadline,omitzero"`  // until when
}

// HookDelivery is one event for one hook. Its id is that of the event: what is sent twice has the same.
type HookDelivery struct {
	ID         string
	Hook       string // name of the document
	Plan       string // empty for a test
	Seq        int64  // of the journal's event that it was written with; the order in which a plan's are delivered
	Step       string
	Event      HookEvent
	State      HookState
	Created    time.Time
	Next       time.Time // when it is sent, while it is due
	Deadline   time.Time // of an answer; zero where the plan does not wait
	Attempts   int
	First      time.Time // when it was first received
	Status     int       // HTTP status of the last attempt; 0 without one
	Problem    string    // of the last attempt
	Decision   HookDecision
	Reason     string    // of the decision, or of the wait
	AnsweredBy string    // a user, or the hook itself
	Answered   time.Time //
	Replayed   int       // how often a person had it sent again
}

// Blocks reports whether a plan waits for the answer.
func (d HookDelivery) Blocks() bool { return !d.Deadline.IsZero() }

// HookKey is a key that requests to a hook are signed with.
type HookKey struct {
	ID        string
	Hook      string // uid of the document
	Algorithm string // ed25519 or hmac
	Public    string // in the form of Standard Webhooks; empty for a shared secret
	Created   time.Time
	Ends      time.Time // a key that was replaced signs until here; zero for the current one
}

// HookQuery narrows a list of deliveries; an empty field selects all.
type HookQuery struct {
	Hook, Plan string
	States     []HookState
	Waiting    bool     // only those that a plan waits for
	Visible    *Visible // clusters whose plans may be seen; nil for all
	Before     string   // id of the last one of the part before
	Limit      int
}
