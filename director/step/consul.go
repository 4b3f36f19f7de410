package step

// ConsulParams are the parameters of consul.register and consul.deregister.
type ConsulParams struct {
	Consul  string `json:"consul"` // name of the document
	UID     string `json:"uid"`
	Cluster string `json:"cluster"`
}
