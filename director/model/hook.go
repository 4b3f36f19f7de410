package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The modes of hooks, what their endpoints are signed for with, and what follows a refusal or silence.
const (
	HookBlock  = "block"
	HookNotify = "notify"

	SignEd25519 = "ed25519"
	SignHMAC    = "hmac"

	HookPark     = "park"
	HookFail     = "fail"
	HookContinue = "continue"
)

// The moments of a plan that hooks can be asked at, before and after: before.drain, after.plan.
const (
	MomentPlan    = "plan"
	MomentLock    = "lock"
	MomentDrain   = "drain"
	MomentDelete  = "delete"
	MomentUpgrade = "upgrade"
	MomentRejoin  = "rejoin"
	MomentVerify  = "verify"
	MomentUnlock  = "unlock"
)

// hookKind is what the model knows of the kind Hook.
var hookKind = kind{
	name: KindHook,
	meaning: "An endpoint that plans tell of their phases, or ask before they continue; see " +
		"[hooks](../operate/hooks.md).",
	spec: func(d *Document) any { return ensure(&d.Hook) },
	validate: func(v *validator, d *Document) {
		v.hook(d.Hook)
	},
	credentials: func(d *Document) []string { return []string{d.Hook.TLS.ClientCredentials} },
	columns:     [][2]string{{"MODE", "mode"}, {"URL", "url"}, {"PHASES", "phases"}},
	effects: merged(
		of(Later, "plans that are made from then on call it so", "spec.phases", "spec.select.clusters",
			"spec.select.roles", "spec.mode", "spec.deadline", "spec.onDeadline", "spec.onRefuse"),
		of(Later, "the next request is sent so", "spec.url", "spec.timeout", "spec.allow", "spec.tls.ca",
			"spec.tls.clientCredentials", "spec.signature"),
		of(Later, "the next answer is taken so", "spec.answeredBy"),
	),
}

// HookPhases returns every phase of a hook, in the order in which a plan comes to them.
func HookPhases() []string {
	var out []string
	for _, m := range []string{
		MomentPlan, MomentLock, MomentDrain, MomentDelete, MomentUpgrade, MomentRejoin, MomentVerify, MomentUnlock,
	} {
		out = append(out, "before."+m, "after."+m)
	}
	return out
}

// Hook is an endpoint that plans tell of their phases, or ask before they continue.
type Hook struct {
	URL        string         `json:"url" doc:"Address that is posted to: https://HOST[:PORT]/PATH, without an account." required:"true" maxLength:"1024"`
	Phases     []string       `json:"phases" doc:"When it is called: before. or after. with plan, lock, drain, delete, upgrade, rejoin, verify or unlock, such as before.drain." required:"true" maxItems:"16" maxLength:"32"`
	Select     HookSelect     `json:"select,omitzero" doc:"Which plans and nodes it is for. Default: all."`
	Mode       string         `json:"mode,omitempty" doc:"block: the plan waits for an answer. notify: the plan continues at once." enum:"block,notify" default:"block"`
	Timeout    Duration       `json:"timeout,omitempty" doc:"How long one request may take." default:"15s" min:"1s" max:"60s"`
	Deadline   Duration       `json:"deadline,omitempty" doc:"With block: how long a plan waits for the final answer." default:"30m" min:"10s" max:"168h"`
	OnDeadline string         `json:"onDeadline,omitempty" doc:"With block: what a plan does without an answer until the deadline. park: a person decides. fail: the step fails. continue: as if it had agreed." enum:"park,fail,continue" default:"park"`
	OnRefuse   string         `json:"onRefuse,omitempty" doc:"With block: what a plan does after a refusal." enum:"park,fail,continue" default:"park"`
	AnsweredBy []string       `json:"answeredBy,omitempty" doc:"With block: the users, such as the service account of the endpoint, who alone give answers later. Default: every operator." maxItems:"50" maxLength:"64"`
	Allow      []netip.Prefix `json:"allow,omitempty" doc:"Ranges of addresses that the URL may lead to. Loopback and link-local addresses are only allowed by a range of their own. Default: private addresses." maxItems:"20"`
	TLS        HookTLS        `json:"tls,omitzero" doc:"Whom the director trusts, and what it shows."`
	Signature  string         `json:"signature,omitempty" doc:"How requests are signed: ed25519, which a public key verifies, or hmac with a shared secret." enum:"ed25519,hmac" default:"ed25519"`
}

// HookSelect narrows a hook. What is empty does not narrow it.
type HookSelect struct {
	Clusters []string `json:"clusters,omitempty" of:"Cluster" doc:"Names of clusters." maxItems:"200"`
	Roles    []string `json:"roles,omitempty" doc:"Roles of nodes: master, worker. Phases of the whole plan and of the whole cluster have no role, and are not narrowed by it." maxItems:"2"`
}

// HookTLS is how the connection to an endpoint is secured.
type HookTLS struct {
	CA string `json:"ca,omitempty" doc:"Certificates in PEM that the server's is trusted by, instead of those of the system." text:"lines" maxLength:"65536"`
	// ClientCredentials name what is sealed, so that a document holds no key.
	ClientCredentials string `json:"clientCredentials,omitempty" doc:"Name of the credentials whose password is the director's client certificate with its key, both in PEM."`
}

// Blocks reports whether plans wait for its answers.
func (h *Hook) Blocks() bool { return h.Mode == HookBlock }

// For reports whether the hook is for the cluster, and for nodes of the role unless that is empty.
func (h *Hook) For(cluster, role string) bool {
	return (len(h.Select.Clusters) == 0 || slices.Contains(h.Select.Clusters, cluster)) &&
		(role == "" || len(h.Select.Roles) == 0 || slices.Contains(h.Select.Roles, role))
}

func (v *validator) hook(h *Hook) {
	v.endpoint(h.URL, "spec.url")
	v.each("spec.phases", h.Phases, "one of "+strings.Join(HookPhases(), ", "), func(p string) bool {
		return slices.Contains(HookPhases(), p)
	})
	if len(h.Phases) == 0 {
		v.fail("spec.phases", "name one, such as before.drain", "is empty: it would never be called")
	}
	v.each("spec.select.clusters", h.Select.Clusters, "the name of a cluster", func(c string) bool {
		return len(c) <= 40 && labelPattern.MatchString(c)
	})
	v.each("spec.select.roles", h.Select.Roles, "master or worker", func(r string) bool {
		return r == "master" || r == "worker"
	})
	v.each("spec.answeredBy", h.AnsweredBy, "the name of a user, in lower case", func(u string) bool {
		return u != "" && u == strings.ToLower(strings.TrimSpace(u))
	})
	if len(h.AnsweredBy) > 0 && h.Mode == HookNotify {
		v.fail("spec.answeredBy", "leave it out, or set spec.mode to block", "is not used: no plan waits for an answer")
	}
	v.ranged("spec.allow", h.Allow)
	if h.TLS.CA != "" {
		v.content().pem("spec.tls.ca", h.TLS.CA)
	}
	if c := h.TLS.ClientCredentials; c != "" {
		v.match("spec.tls.clientCredentials", c, credentialsPattern,
			"the name of credentials: letters a-z, digits and dashes, beginning with a letter", 40)
	}
	if h.Blocks() && h.Deadline > 0 && time.Duration(h.Deadline) < time.Duration(h.Timeout) {
		v.fail("spec.deadline", "at least timeout", "%s is shorter than one request may take", h.Deadline)
	}
}

// each checks the entries of a list, which must differ from one another.
func (v *validator) each(path string, list []string, want string, ok func(string) bool) {
	seen := map[string]bool{}
	for i, s := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case !ok(s):
			v.fail(at, want, "%q is not allowed", s)
		case seen[s]:
			v.fail(at, "leave it out", "is there twice")
		}
		seen[s] = true
	}
}
