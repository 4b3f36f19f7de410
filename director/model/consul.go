package model

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Consul is a datacenter of Consul, whose catalog tells others where clusters are.
type Consul struct {
	Addresses  []string `json:"addresses" doc:"https://HOST[:PORT] of its servers or agents. The first one that answers is asked. Default port: 8501." required:"true" maxItems:"9" maxLength:"255"`
	Datacenter string   `json:"datacenter" doc:"Name of the datacenter, as Consul itself has it. There is one document for each datacenter." required:"true"`
	Domain     string   `json:"domain,omitempty" doc:"DNS domain that Consul answers for." default:"consul"`
	// An empty TLS is enough where a known authority has signed the servers' certificates.
	TLS ConsulTLS `json:"tls,omitzero" doc:"What the servers' certificates are trusted by."`

	Credentials string `json:"credentials,omitempty" doc:"Name of the credentials whose password is the director's ACL token. Left out: no token is sent, for a Consul without ACLs."`
	Gossip      string `json:"gossip,omitempty" doc:"Name of the credentials whose password is the gossip key, as consul keygen prints it. Agents on nodes need it."`
}

// ConsulTLS is what the certificates of a Consul are trusted by.
type ConsulTLS struct {
	CA         string `json:"ca,omitempty" doc:"Certificates in PEM form that the servers' certificates must be from. Default: those that the director's machine trusts." text:"lines" maxLength:"65536"`
	ServerName string `json:"serverName,omitempty" doc:"Name in the servers' certificates, such as server.dc1.consul. Default: the host of the address." maxLength:"253"`
}

// Names tells whether the credentials of the name are those of the token or of the gossip key.
func (c *Consul) Names(credentials string) bool {
	return credentials != "" && (c.Credentials == credentials || c.Gossip == credentials)
}

// ConsulPort is where servers of Consul answer HTTPS unless the address says another port.
const ConsulPort = "8501"

// Discovery says what a cluster and a Consul learn of each other.
type Discovery struct {
	Consul string            `json:"consul" of:"Consul" doc:"Name of the Consul that the cluster's API server and services are registered in." required:"true"`
	Export DiscoveryExport   `json:"export,omitzero" doc:"Which services of the cluster are registered there, besides its API server. The director does not act on it yet."`
	Import []DiscoveryImport `json:"import,omitempty" doc:"Services of Consul that become Services of the cluster. The director does not act on it yet." maxItems:"200"`
	DNS    bool              `json:"dns,omitempty" doc:"Whether pods resolve names of Consul's domain. The director does not act on it yet."`
}

// DiscoveryExport says which services of a cluster are registered in Consul.
type DiscoveryExport struct {
	LoadBalancer bool `json:"loadBalancer,omitempty" doc:"Services of type LoadBalancer, with their addresses."`
	Ingress      bool `json:"ingress,omitempty" doc:"Ingresses, with the addresses of their controller."`
	Annotated    bool `json:"annotated,omitempty" doc:"Services with the annotation for it, of any type."`
}

// DiscoveryImport is a service of Consul that becomes a Service of the cluster.
type DiscoveryImport struct {
	Service   string `json:"service" doc:"Name of the service in Consul." required:"true"`
	Namespace string `json:"namespace" doc:"Namespace of the Service in the cluster." required:"true"`
	Name      string `json:"name,omitempty" doc:"Name of the Service in the cluster. Default: that in Consul."`
	Port      int    `json:"port" doc:"Port of the Service in the cluster. It leads to the ports that the instances have in Consul." required:"true" min:"1" max:"65535"`
}

// ServiceName returns the name of the Service in the cluster.
func (i DiscoveryImport) ServiceName() string {
	if i.Name != "" {
		return i.Name
	}
	return i.Service
}

var (
	datacenterPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`)
	dnsLabelPattern   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	dnsNamePattern    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
)

const (
	dnsLabelHint     = "a DNS label: letters a-z, digits and dashes"
	serviceLabelHint = "a DNS label that begins with a letter: letters a-z, digits and dashes"
	mostLabel        = 63 // of RFC 1035
)

func (v *validator) consul(c *Consul) {
	if len(c.Addresses) == 0 {
		v.fail("spec.addresses", "such as https://consul.example.org:8501", "is empty")
	}
	seen := map[string]bool{}
	for i, a := range c.Addresses {
		at := fmt.Sprintf("spec.addresses[%d]", i)
		u, err := url.Parse(a)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
			strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			v.fail(at, "an address such as https://consul.example.org:8501, without path and account",
				"is not the address of a server")
		}
		if seen[a] {
			v.fail(at, "leave it out", "is there twice")
		}
		seen[a] = true
	}
	v.match("spec.datacenter", c.Datacenter, datacenterPattern,
		"the name that consul members shows, such as dc1", mostLabel)
	v.match("spec.domain", c.Domain, dnsNamePattern, "a DNS domain such as consul", 100)
	if c.TLS.CA != "" {
		v.pem("spec.tls.ca", c.TLS.CA)
	}
	if c.TLS.ServerName != "" {
		v.match("spec.tls.serverName", c.TLS.ServerName, dnsNamePattern, "a name such as server.dc1.consul", 253)
	}
	for _, f := range [][2]string{{"spec.credentials", c.Credentials}, {"spec.gossip", c.Gossip}} {
		if f[1] != "" {
			v.match(f[0], f[1], labelPattern,
				"the name of credentials: letters a-z, digits and dashes, beginning with a letter", 40)
		}
	}
	switch c.Credentials {
	case "":
		v.warn("spec.credentials", "is empty: no token is sent, which is right only for a Consul without ACLs")
	case c.Gossip:
		v.fail("spec.gossip", "store the key and the token as credentials of their own",
			"is the name of the token's credentials")
	}
}

// builtInServices are Services that Kubernetes itself makes.
var builtInServices = map[[2]string]bool{{"default", "kubernetes"}: true, {"kube-system", "kube-dns"}: true}

func (v *validator) discovery(d Discovery) {
	if d.Consul == "" {
		return // the decoder has said so, or there is no discovery
	}
	if d.Export != (DiscoveryExport{}) || len(d.Import) > 0 || d.DNS {
		v.warn("spec.discovery", "has export, import or dns, which the director does not act on yet: run consul-sync "+
			"in the cluster, see the manual")
	}
	names := map[[2]string]int{}
	for i, s := range d.Import {
		at := fmt.Sprintf("spec.discovery.import[%d]", i)
		v.match(at+".service", s.Service, dnsLabelPattern, dnsLabelHint, mostLabel)
		v.match(at+".namespace", s.Namespace, dnsLabelPattern, dnsLabelHint, mostLabel)
		named := at + ".name"
		if s.Name == "" {
			named = at + ".service"
		}
		if s.Name != "" || dnsLabelPattern.MatchString(s.Service) {
			v.match(named, s.ServiceName(), labelPattern, serviceLabelHint, mostLabel)
		}
		key := [2]string{s.Namespace, s.ServiceName()}
		if first, twice := names[key]; twice {
			v.fail(named, "choose another name", "%s/%s is that of import[%d] too", key[0], key[1], first)
		}
		names[key] = i
		if builtInServices[key] {
			v.fail(named, "choose another name", "%s/%s is a Service of Kubernetes itself", key[0], key[1])
		}
	}
}

// discoveryAgainst keeps names of the cluster apart from names of Consul: a name server that forwards the one would
// never answer for the other.
func (v *validator) discoveryAgainst(c *Cluster, all Set) {
	if c.Discovery.Consul == "" {
		return
	}
	consul := all[Ref{KindConsul, c.Discovery.Consul}].Consul
	if within(consul.Domain, c.Services.Domain) || within(c.Services.Domain, consul.Domain) {
		v.fail("spec.discovery.consul", "choose a Consul with another domain, or another spec.services.domain",
			"the domain %s of Consul/%s and the cluster's domain %s overlap", consul.Domain, c.Discovery.Consul,
			c.Services.Domain)
	}
}

// within tells whether the DNS name is the domain or below it.
func within(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

// consulAgainst keeps datacenters apart: what the director does not find wanted in one, it takes out of it.
func (v *validator) consulAgainst(d *Document, all Set) {
	for ref, other := range all {
		switch {
		case ref == d.Ref():
		case other.Consul != nil && other.Consul.Datacenter == d.Consul.Datacenter:
			v.fail("spec.datacenter", "keep one document for each datacenter", "%s is the datacenter of %s too",
				d.Consul.Datacenter, ref)
		case other.Cluster != nil && other.Cluster.Discovery.Consul == d.Metadata.Name:
			if own := other.Cluster.Services.Domain; within(d.Consul.Domain, own) || within(own, d.Consul.Domain) {
				v.fail("spec.domain", "choose another domain", "%s and %s, the domain of %s, overlap",
					d.Consul.Domain, own, ref)
			}
		}
	}
}
