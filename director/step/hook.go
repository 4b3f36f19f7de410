package step

import (
	"strings"
	"time"

	"github.com/director-kaas/kaas/director/model"
)

// HookAsk is the kind of steps that tell a hook, or ask it and wait for its answer.
const HookAsk = "hook.ask"

// HookParams are the parameters of hook.ask.
type HookParams struct {
	Hook       string        `json:"hook"`
	Phase      string        `json:"phase"`
	Mode       string        `json:"mode"`
	Deadline   time.Duration `json:"deadline,omitempty"` // what follows is for the mode block
	OnDeadline string        `json:"on_deadline,omitempty"`
	OnRefuse   string        `json:"on_refuse,omitempty"`
	Node       string        `json:"node,omitempty"` // empty for phases of the plan or of the cluster
	Role       string        `json:"role,omitempty"`
	Cluster    string        `json:"cluster"` // uid
}

// Blocks reports whether the step waits for an answer.
func (p HookParams) Blocks() bool { return p.Mode == model.HookBlock }

// IsHook reports whether the step with the id tells or asks a hook.
func IsHook(id string) bool { return strings.HasPrefix(id, HookAsk+"/") }

// HookID returns the id of the step that asks the hook in the phase of the subject, a node or a cluster. None of the
// parts has a dot apart from the one of the phase.
func HookID(phase, hook, subject string) string {
	return HookAsk + "/" + phase + "." + hook + "." + subject
}

func (n Needs) ofHook(p HookParams) { n.document(model.KindHook, p.Hook) }
