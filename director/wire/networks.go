package wire

// NetworkAddresses are addresses of a network that are in use, by address.
type NetworkAddresses struct {
	Items    []NetworkAddress `json:"items" nullable:"false"`
	Continue string           `json:"continue,omitempty" doc:"Absent at the end of the list; otherwise the query's continue for what follows."`
	Total    int              `json:"total" doc:"How many the query leaves, on all pages."`
	Pool     int              `json:"pool" doc:"How many addresses the pool gives away."`
	Used     int              `json:"used" doc:"How many of these nodes have."`
	Free     int              `json:"free" doc:"How many of these are left."`
}

// NetworkAddress is an address with what it is used for.
type NetworkAddress struct {
	Address string `json:"address" doc:"An address, or a range of excluded ones, such as 10.88.0.20-10.88.0.29."`
	Use     string `json:"use" enum:"node,virtual,static,gateway,router,dns,excluded" doc:"node: of a machine of the ledger. virtual: of a cluster's API. static: a document gives it to a node that is not made yet. gateway, router, dns: the network's document names it. excluded: the pool leaves it to others."`
	Pool    bool   `json:"pool" doc:"The pool would give it away if it were free."`
	Cluster string `json:"cluster,omitempty"`
	Machine string `json:"machine,omitempty" doc:"Name of the node."`
	Role    string `json:"role,omitempty" doc:"Of the node: master or worker."`
	State   string `json:"state,omitempty" doc:"Of the machine in the ledger, such as intended or present."`
}
