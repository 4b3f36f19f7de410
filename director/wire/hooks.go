package wire

import (
	"time"

	"github.com/director-kaas/kaas/director"
)

// Hooks are the endpoints that plans tell of their phases, or ask.
type Hooks struct {
	Items []Hook `json:"items"`
}

// Hook is an endpoint as it is now. Its document says the rest.
type Hook struct {
	Name   string   `json:"name"`
	URL    string   `json:"url"`
	Mode   string   `json:"mode" enum:"block,notify"`
	Phases []string `json:"phases"`
	Gone   bool     `json:"gone" doc:"The endpoint has answered 410: nothing is sent to it before its document changes or a test succeeds."`
}

// HookKeys are the keys that requests of a hook are signed with, the current one first.
type HookKeys struct {
	Items []HookKey `json:"items"`
}

// HookKey is a key that receivers verify with.
type HookKey struct {
	ID        string     `json:"id"`
	Algorithm string     `json:"algorithm" enum:"ed25519,hmac"`
	Public    string     `json:"public,omitempty" doc:"Public key in the form of Standard Webhooks, whpk_...; absent for hmac."`
	Secret    string     `json:"secret,omitempty" doc:"What both sides share, whsec_...; only of hmac, and only where it was asked for with a password."`
	CreatedAt time.Time  `json:"created_at"`
	EndsAt    *time.Time `json:"ends_at,omitempty" doc:"Until when a key that was replaced signs."`
}

// HookPassword is the password of who asks for a secret.
type HookPassword struct {
	Password string `json:"password" maxLength:"1024" doc:"Password of who asks."`
}

// HookDeliveries are events for hooks, the newest first.
type HookDeliveries struct {
	Items    []HookDelivery `json:"items"`
	Continue string         `json:"continue,omitempty" doc:"Where the next part of the list begins; absent at its end."`
}

// HookDelivery is one event for one hook.
type HookDelivery struct {
	ID         string     `json:"id" doc:"Also the id of the event: what is sent twice has the same."`
	Hook       string     `json:"hook"`
	Phase      string     `json:"phase"`
	Plan       string     `json:"plan,omitempty" doc:"Absent for a test."`
	Step       string     `json:"step,omitempty"`
	Cluster    string     `json:"cluster,omitempty"`
	Node       string     `json:"node,omitempty"`
	State      string     `json:"state" enum:"due,accepted,delivered,answered,expired,failed,withdrawn"`
	Waits      bool       `json:"waits" doc:"A plan waits for the answer now."`
	CreatedAt  time.Time  `json:"created_at"`
	NextAt     *time.Time `json:"next_at,omitempty" doc:"When it is sent next."`
	Deadline   *time.Time `json:"deadline,omitempty" doc:"Until when a plan waits for the answer; absent where none does."`
	Attempts   int        `json:"attempts"`
	ReceivedAt *time.Time `json:"received_at,omitempty" doc:"When it was first received."`
	HTTPStatus int        `json:"http_status,omitempty" doc:"Of the last attempt."`
	Problem    string     `json:"problem,omitempty" doc:"Of the last attempt."`
	Decision   string     `json:"decision,omitempty" enum:"continue,refuse"`
	Reason     string     `json:"reason,omitempty" doc:"Of the decision, or of an endpoint that waits."`
	AnsweredBy string     `json:"answered_by,omitempty"`
	AnsweredAt *time.Time `json:"answered_at,omitempty"`
	Replayed   int        `json:"replayed,omitempty" doc:"How often it was sent again on request."`
}

// HookAnswer is the final answer to what a plan asks.
type HookAnswer struct {
	Decision string `json:"decision" enum:"continue,refuse"`
	Reason   string `json:"reason,omitempty" maxLength:"1000"`
}

// HookDeliveryOf returns d in the API's form.
func HookDeliveryOf(d director.HookDelivery) HookDelivery {
	out := HookDelivery{
		ID: d.ID, Hook: d.Hook, Phase: d.Event.Phase, Plan: d.Plan, Step: d.Step, Cluster: d.Event.Cluster,
		Node: d.Event.Node, State: string(d.State), Waits: d.Blocks() && d.State.Open(), CreatedAt: d.Created,
		Deadline: Optional(d.Deadline), Attempts: d.Attempts, ReceivedAt: Optional(d.First), HTTPStatus: d.Status,
		Problem: d.Problem, Decision: string(d.Decision), Reason: d.Reason, AnsweredBy: d.AnsweredBy,
		AnsweredAt: Optional(d.Answered), Replayed: d.Replayed,
	}
	if d.State == director.HookDue {
		out.NextAt = Optional(d.Next)
	}
	return out
}
