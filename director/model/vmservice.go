package model

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// VMService is a service that each node of a role offers itself, outside of Kubernetes. The node's agent registers it
// in Consul.
type VMService struct {
	Name  string         `json:"name" doc:"Name in Consul: a DNS label that does not begin with kaas-. Unique in the pool; several pools may have the same service." required:"true"`
	Port  int            `json:"port" doc:"Where each node answers." required:"true" min:"1" max:"65535"`
	Tags  []string       `json:"tags,omitempty" doc:"Tags in Consul: DNS labels." maxItems:"10" maxLength:"63"`
	Check VMServiceCheck `json:"check" doc:"How the node's agent finds out whether the service is well. One of http, https and tcp." required:"true"`
}

// VMServiceCheck is the check of a service. It is no script: an agent runs none.
type VMServiceCheck struct {
	HTTP     string   `json:"http,omitempty" doc:"Path that is asked over HTTP at the node's address, such as /healthz. Well is an answer from 200 to 299; redirects are not followed." maxLength:"200"`
	HTTPS    string   `json:"https,omitempty" doc:"Path that is asked over HTTPS. The certificate is not looked at, because the agent asks its own node." maxLength:"200"`
	TCP      bool     `json:"tcp,omitempty" doc:"Whether a connection is enough."`
	Port     int      `json:"port,omitempty" doc:"Where the check asks. Default: the port of the service." min:"1" max:"65535"`
	Interval Duration `json:"interval,omitempty" doc:"Time between two checks." default:"10s" min:"1s" max:"10m"`
}

// ServedAt returns the port that the check asks.
func (s VMService) ServedAt() int {
	if s.Check.Port != 0 {
		return s.Check.Port
	}
	return s.Port
}

// mostServices bounds the services of a node: each is a rule of its token.
const mostServices = 20

var checkPathPattern = regexp.MustCompile(`^/[A-Za-z0-9/._~%?=&-]*$`)

// services checks the services of the VMs of one role.
func (v *vmValidator) services(at string, list []VMService, agents bool) {
	if len(list) > 0 && !agents {
		v.fail(at, "set spec.discovery.consul and spec.discovery.agents, or leave the services out",
			"are registered by the agents of Consul on the nodes, and the cluster has none")
	}
	if len(list) > mostServices {
		v.fail(at, "", "are %d, and %d are allowed", len(list), mostServices)
	}
	names := map[string]int{}
	for i, s := range list {
		here := fmt.Sprintf("%s[%d]", at, i)
		v.match(here+".name", s.Name, dnsLabelPattern, dnsLabelHint, mostLabel)
		if strings.HasPrefix(s.Name, director.ConsulPrefix) || s.Name == "consul" {
			v.fail(here+".name", "choose another name",
				"%s is not free: consul, and what begins with %s, is of others", s.Name, director.ConsulPrefix)
		}
		if first, twice := names[s.Name]; twice {
			v.fail(here+".name", "", "is the name of services[%d] too", first)
		}
		names[s.Name] = i
		for j, tag := range s.Tags {
			v.match(fmt.Sprintf("%s.tags[%d]", here, j), tag, dnsLabelPattern, dnsLabelHint, mostLabel)
		}
		v.serviceCheck(here+".check", s.Check)
	}
}

func (v *vmValidator) serviceCheck(at string, c VMServiceCheck) {
	kinds := 0
	for _, is := range []bool{c.HTTP != "", c.HTTPS != "", c.TCP} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		v.fail(at, "write one of http: /healthz, https: /healthz and tcp: true", "names %d kinds of check", kinds)
	}
	for _, f := range [][2]string{{"http", c.HTTP}, {"https", c.HTTPS}} {
		if f[1] != "" {
			v.match(at+"."+f[0], f[1], checkPathPattern, "a path such as /healthz", 200)
		}
	}
}
