package wire

// Discovery is what a provider has that documents may name, as far as its account may see it.
type Discovery struct {
	Provider string             `json:"provider"`
	Version  string             `json:"version" doc:"What answered."`
	Items    []Discovered       `json:"items" doc:"Ordered by kind, place and name."`
	Left     []DiscoveredLeft   `json:"left,omitempty" doc:"Kinds of which there is more than is told."`
	Unseen   []DiscoveredUnseen `json:"unseen,omitempty" doc:"Hosts that did not answer, of which nothing is told."`
}

// DiscoverRequest is a provider that is asked what it has. It need not be stored.
type DiscoverRequest struct {
	Document string `json:"document" maxLength:"65536" doc:"Text of the provider's document, as YAML or JSON. Only its type, its addresses and its account have to be right."`
	User     string `json:"user,omitempty" maxLength:"256" doc:"Account of a vCenter for this request alone, instead of the one that the document names."`
	Password string `json:"password,omitempty" maxLength:"4096" doc:"Of that account. It is stored nowhere." format:"password"`
}

// Discovered is one thing that a provider has.
type Discovered struct {
	Kind            string `json:"kind" enum:"host,storage_pool,network,bridge,datacenter,cluster,resource_pool,datastore,port_group,folder,template"`
	In              string `json:"in,omitempty" doc:"Host, cluster or datacenter that has it."`
	Name            string `json:"name" doc:"As documents name it: a name or an inventory path."`
	About           string `json:"about,omitempty" doc:"What helps to choose."`
	Problem         string `json:"problem,omitempty" doc:"Why it cannot be used now."`
	SizeBytes       int64  `json:"size_bytes,omitempty" doc:"Of storage."`
	FreeBytes       int64  `json:"free_bytes,omitempty" doc:"Of storage."`
	CPUs            int    `json:"cpus,omitempty" doc:"Of a host."`
	MemoryBytes     int64  `json:"memory_bytes,omitempty" doc:"Of a host."`
	MemoryFreeBytes int64  `json:"memory_free_bytes,omitempty" doc:"Of a host."`
	VMs             int    `json:"vms,omitempty" doc:"VMs on a host, also those of others."`
}

// DiscoveredLeft says how much is not told.
type DiscoveredLeft struct {
	Kind  string `json:"kind" enum:"host,storage_pool,network,bridge,datacenter,cluster,resource_pool,datastore,port_group,folder,template"`
	Count int    `json:"count"`
}

// DiscoveredUnseen is a host that did not answer.
type DiscoveredUnseen struct {
	Host    string `json:"host"`
	Problem string `json:"problem"`
	Hint    string `json:"hint,omitempty"`
}

// DiscoveredKinds are the kinds of what is discovered, in the order of Discovery.Items.
func DiscoveredKinds() []string {
	return []string{
		"host", "storage_pool", "network", "bridge", "datacenter", "cluster", "resource_pool", "datastore",
		"port_group", "folder", "template",
	}
}
