package step

// ConsulParams are the parameters of consul.register and consul.deregister.
type ConsulParams struct {
	Consul  string `json:"consul"` // name of the document
	UID     string `json:"uid"`
	Cluster string `json:"cluster"`
}

// ConsulTokenParams are the parameters of consul.token, and of consul.agents.
type ConsulTokenParams struct {
	ConsulParams
	Do    ConsulTokenVerb `json:"do"`
	Rules string          `json:"rules,omitempty"` // of the token's policy; of a make and a renew
}

// ConsulTokenVerb is what is done with the token of a cluster's sync, or with those of the agents on its nodes.
type ConsulTokenVerb string

// The verbs.
const (
	TokenMake   ConsulTokenVerb = "make"   // unless there is one
	TokenRenew  ConsulTokenVerb = "renew"  // make another one; the former ones stay
	TokenSettle ConsulTokenVerb = "settle" // the former ones end
	TokenEnd    ConsulTokenVerb = "end"    // all end, and what the sync or the agents have written goes
)
