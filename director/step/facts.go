package step

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Facts is what the inventory of the cluster is rendered from, frozen into the plan. It holds no secret.
type Facts struct {
	Cluster    string             `json:"cluster"`
	UID        string             `json:"uid"`
	Document   model.Cluster      `json:"document"`
	Network    model.Network      `json:"network"`
	Kubernetes string             `json:"kubernetes"`
	Bundle     string             `json:"bundle"` // directory of the release bundle on the director
	Tags       map[string]string  `json:"tags"`
	Registry   string             `json:"registry"`
	Digest     string             `json:"digest"`   // of the bundle
	Programs   map[string]string  `json:"programs"` // SHA-256 of what an upgrade puts on nodes, by name
	Nodes      []plan.MachineSpec `json:"nodes"`    // masters first, by name
	// Moves are the machines that follow those of the same name on another host.
	Moves []plan.MachineSpec `json:"moves,omitempty"`
	// Former are the releases that nodes are rolled back to, by version.
	Former map[string]ReleaseFacts `json:"former,omitempty"`
	// Networks are the further networks of nodes, by name.
	Networks map[string]model.Network `json:"networks,omitempty"`
	// Forward is the domain of Consul that the cluster's name servers forward; nil for none.
	Forward *Forward `json:"forward,omitempty"`
	// Agents are those of Consul on the nodes; nil for none.
	Agents *Agents `json:"agents,omitempty"`
	// Registries are the outer ones that nodes pull from, by name.
	Registries []Registry `json:"registries,omitempty"`
}

// Registry is an outer registry that nodes pull from.
type Registry struct {
	Name string         `json:"name"`
	Spec model.Registry `json:"spec"`
	// Revision is that of its credentials when the plan was made; 0 for none.
	Revision int64 `json:"revision,omitempty"`
}

// DigestOf tells lists of registries apart; "" for an empty one.
func DigestOf(list []Registry) string {
	if len(list) == 0 {
		return ""
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // texts and numbers
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// Agents is what agents of Consul on nodes are told, as the playbooks read it. It holds no secret.
type Agents struct {
	Owner       string   `json:"owner"` // id of the director
	Datacenter  string   `json:"datacenter"`
	Domain      string   `json:"domain"`
	Join        []string `json:"join"` // each with its port
	CA          string   `json:"ca"`
	AutoEncrypt bool     `json:"auto_encrypt,omitempty"`
	Networks    []string `json:"networks,omitempty"` // that gossip comes from; nil for everywhere
	URL         string   `json:"url,omitempty"`      // of the program
	SHA256      string   `json:"sha256,omitempty"`
	ProgramCA   string   `json:"program_ca,omitempty"` // of the server of URL
}

// Service is what the agent of Consul on a node registers, as the playbooks read it.
type Service struct {
	ID      string       `json:"id"` // in all of Consul
	Name    string       `json:"name"`
	Address string       `json:"address"` // where it answers and is asked: the node's, or the virtual one
	Port    int          `json:"port"`
	Tags    []string     `json:"tags"`
	Check   ServiceCheck `json:"check"`
}

// ServiceCheck is how the agent finds out whether a service is well, at the address of the service.
type ServiceCheck struct {
	Scheme   string `json:"scheme"` // http, https or tcp
	Port     int    `json:"port"`
	Path     string `json:"path"`     // empty with tcp
	Interval int    `json:"interval"` // seconds
}

// apiCheck is how often the agent of a master asks its API server, and that behind the virtual address, in seconds. One
// that no longer answers is out of DNS after that.
const apiCheck = 5

// Services returns what the agent of Consul on the machine registers: of a master, its API server and the virtual
// address, as far as it reaches that; and what the document says of its pool. It is nil without an agent.
func (f Facts) Services(m plan.MachineSpec) []Service {
	if f.Agents == nil {
		return nil
	}
	var out []Service
	var own []model.VMService
	switch m.Role {
	case director.RoleMaster:
		own = f.Document.Masters.Services
		out = f.apiServers(m)
	case director.RoleDirector: // no agent is on its VM
	case director.RoleWorker:
		for _, p := range f.Document.Workers {
			if p.Name == m.Pool {
				own = p.Services
			}
		}
	}
	for _, s := range own {
		c := ServiceCheck{Scheme: "tcp", Port: s.ServedAt(), Interval: int(time.Duration(s.Check.Interval).Seconds())}
		switch {
		case s.Check.HTTP != "":
			c.Scheme, c.Path = "http", s.Check.HTTP
		case s.Check.HTTPS != "":
			c.Scheme, c.Path = "https", s.Check.HTTPS
		}
		out = append(out, Service{
			ID: s.Name + "-" + m.Name, Name: s.Name, Address: m.Address, Port: s.Port,
			Tags: append([]string{}, s.Tags...), Check: c,
		})
	}
	return out
}

// apiServers returns the API server of a master, and that behind the virtual address. Every master registers the
// address, and its check tells whether it reaches it: so one of them is left when others are down.
func (f Facts) apiServers(m plan.MachineSpec) []Service {
	own := Service{
		ID: director.ConsulAPIEntry(m.Name), Name: director.ConsulAPI(f.Cluster), Address: m.Address,
		Port: model.APIPort, Tags: []string{director.ConsulTagMaster},
		Check: ServiceCheck{Scheme: "https", Port: model.APIPort, Path: "/readyz", Interval: apiCheck},
	}
	vip := f.Document.API.VIP
	if !vip.IsValid() {
		return []Service{own}
	}
	shared := own
	shared.ID, shared.Address = director.ConsulVIPEntry(f.UID, m.Name), vip.String()
	shared.Tags = []string{director.ConsulTagVIP}
	return []Service{own, shared}
}

// Forward is a domain that other name servers answer for.
type Forward struct {
	Domain  string   `json:"domain"`
	Servers []string `json:"servers"` // each with its port
}

// ReleaseFacts is the part of the facts that a release gives.
type ReleaseFacts struct {
	Bundle   string            `json:"bundle"`
	Tags     map[string]string `json:"tags"`
	Digest   string            `json:"digest"`
	Programs map[string]string `json:"programs"`
}

// At returns the facts with the former release of that version instead of the plan's own.
func (f Facts) At(version string) (Facts, error) {
	r, ok := f.Former[version]
	if !ok {
		return Facts{}, fmt.Errorf("step: the plan's facts have no release of %s", version)
	}
	f.Kubernetes, f.Bundle, f.Tags, f.Digest, f.Programs = version, r.Bundle, r.Tags, r.Digest, r.Programs
	return f, nil
}

// Moved returns the facts with what follows the named nodes in their places.
func (f Facts) Moved(names []string) Facts {
	f.Nodes = slices.Clone(f.Nodes)
	for i, m := range f.Nodes {
		if slices.Contains(names, m.Name) {
			for _, next := range f.Moves {
				if next.Name == m.Name {
					f.Nodes[i] = next
				}
			}
		}
	}
	return f
}

// DecodeFacts returns the facts that were frozen into a plan of any format up to plan.Format.
func DecodeFacts(c plan.Content) (Facts, error) {
	if err := c.Readable(); err != nil {
		return Facts{}, err
	}
	var f Facts
	if err := json.Unmarshal(c.Facts, &f); err != nil {
		return Facts{}, fmt.Errorf("step: the plan's facts cannot be read: %w", err)
	}
	return f, nil
}

// ClusterUID returns the uid of the cluster that the plan was made for, or "" if the plan does not tell.
func ClusterUID(c plan.Content) string {
	var of struct {
		UID string `json:"uid"`
	}
	if len(c.Facts) > 0 && json.Unmarshal(c.Facts, &of) == nil {
		uid, _ := director.DrillOf(of.UID)
		return uid
	}
	for _, s := range c.Steps { // a deletion has no facts
		if (s.Kind == ClusterForget || s.Kind == DirectorForget) && json.Unmarshal(s.Params, &of) == nil {
			return of.UID
		}
	}
	return ""
}
