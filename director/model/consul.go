package model

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// Consul is a datacenter of Consul, whose catalog tells others where clusters are.
type Consul struct {
	Addresses  []string `json:"addresses" doc:"https://HOST[:PORT] of its servers or agents. The first one that answers is asked. Default port: 8501." required:"true" maxItems:"9" maxLength:"255"`
	Datacenter string   `json:"datacenter" doc:"Name of the datacenter, as Consul itself has it. There is one document for each datacenter." required:"true"`
	Domain     string   `json:"domain,omitempty" doc:"DNS domain that Consul answers for." default:"consul"`
	// An empty TLS is enough where a known authority has signed the servers' certificates.
	TLS ConsulTLS `json:"tls,omitzero" doc:"What the servers' certificates are trusted by."`

	DNS []string `json:"dns,omitempty" doc:"Where its servers or agents answer DNS: IP addresses, with the port unless it is 8600. Default: those of spec.addresses that are IP addresses." maxItems:"9" maxLength:"64"`

	Credentials string `json:"credentials,omitempty" doc:"Name of the credentials whose password is the director's ACL token. Left out: no token is sent, for a Consul without ACLs."`
	Gossip      string `json:"gossip,omitempty" doc:"Name of the credentials whose password is the gossip key, as consul keygen prints it. Agents on nodes need it."`

	Agents ConsulAgents `json:"agents,omitzero" doc:"How agents on the nodes of clusters become members of the datacenter."`
}

// ConsulAgents is how agents on nodes become members of a datacenter.
type ConsulAgents struct {
	Join        []string       `json:"join,omitempty" doc:"Where servers answer gossip (Serf LAN): IP addresses or host names, with the port unless it is 8301." maxItems:"9" maxLength:"255"`
	Program     ConsulProgram  `json:"program,omitzero" doc:"The program consul, for nodes whose image has none. It is not part of releases."`
	AutoEncrypt bool           `json:"autoEncrypt,omitempty" doc:"Whether agents get client certificates from the servers (auto_encrypt), which need auto_encrypt.allow_tls."`
	Networks    []netip.Prefix `json:"networks,omitempty" doc:"Networks of the other members of the datacenter. Nodes take gossip from these, from each other and from the IP addresses of join. Default: from everywhere." maxItems:"64"`
	Director    bool           `json:"director,omitempty" doc:"Whether an agent next to the director registers it, so that what Consul says of it stays true when it dies. consulDir in the director's configuration says where the agent finds what it is told."`
}

// ConsulProgram is where nodes get the program of Consul.
type ConsulProgram struct {
	URL    string `json:"url,omitempty" doc:"https://HOST/.../consul, the program itself and no archive. Nodes fetch it from there if their image has none." maxLength:"1024"`
	SHA256 string `json:"sha256,omitempty" doc:"SHA-256 of the program, also of one in the image: one with another sum is not used."`
	CA     string `json:"ca,omitempty" doc:"Certificates in PEM form that the server of url may be from, besides those that nodes trust." text:"lines" maxLength:"65536"`
}

// ConsulTLS is what the certificates of a Consul are trusted by.
type ConsulTLS struct {
	CA         string `json:"ca,omitempty" doc:"Certificates in PEM form that the servers' certificates must be from. Default: those that the director's machine trusts." text:"lines" maxLength:"65536"`
	ServerName string `json:"serverName,omitempty" doc:"Name in the servers' certificates, such as server.dc1.consul. Default: the host of the address." maxLength:"253"`
}

// consulValidator validates Consuls, and what clusters want of them.
type consulValidator struct{ *validator }

// consulKind is what the model knows of the kind Consul.
var consulKind = kind{
	name: KindConsul,
	meaning: "A datacenter of Consul, whose catalog tells others where clusters are; see " +
		"[Consul](../operate/consul.md).",
	spec: func(d *Document) any { return ensure(&d.Consul) },
	validate: func(v *validator, d *Document) {
		v.consuls().consul(d.Consul)
	},
	against: func(v *validator, d *Document, all Set) {
		v.consuls().consulAgainst(d, all)
	},
	credentials: func(d *Document) []string { return []string{d.Consul.Credentials, d.Consul.Gossip} },
	columns:     [][2]string{{"DATACENTER", "datacenter"}, {"DOMAIN", "domain"}, {"ADDRESSES", "addresses"}},
	effects: merged(
		of(Later, "no machine depends on it; the director asks and registers by it from then on", "spec.addresses",
			"spec.datacenter", "spec.domain", "spec.dns", "spec.tls.ca", "spec.tls.serverName", "spec.credentials",
			"spec.gossip", "spec.agents.director"),
		of(Later, "new nodes follow it, and those that there are with directorctl rotate consul-token",
			"spec.agents.join", "spec.agents.program.url", "spec.agents.program.sha256", "spec.agents.program.ca",
			"spec.agents.autoEncrypt", "spec.agents.networks"),
	),
}

func (v *validator) consuls() consulValidator { return consulValidator{v} }

// The ports at which a Consul answers HTTPS and DNS unless its document says others.
const (
	ConsulPort       = "8501"
	consulDNSPort    = 8600
	consulGossipPort = "8301"
)

// NameServers returns where the Consul answers DNS, each with its port.
func (c *Consul) NameServers() []string {
	var out []string
	for _, text := range c.DNS {
		if at, ok := nameServer(text); ok {
			out = append(out, at.String())
		}
	}
	if len(c.DNS) > 0 {
		return out
	}
	for _, a := range c.Addresses {
		if u, err := url.Parse(a); err == nil {
			if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
				out = append(out, netip.AddrPortFrom(ip, consulDNSPort).String())
			}
		}
	}
	return out
}

// nameServer reads an address with or without a port.
func nameServer(text string) (netip.AddrPort, bool) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(ip, consulDNSPort), ip.Zone() == ""
	}
	at, err := netip.ParseAddrPort(text)
	return at, err == nil && at.Port() != 0 && at.Addr().Zone() == ""
}

// Servers returns where servers answer gossip, each with its port.
func (a ConsulAgents) Servers() []string {
	out := make([]string, 0, len(a.Join))
	for _, text := range a.Join {
		if host, port, ok := gossipServer(text); ok {
			out = append(out, net.JoinHostPort(host, port))
		}
	}
	return out
}

// gossipServer reads an address or a host name, with or without a port.
func gossipServer(text string) (host, port string, ok bool) {
	host, port = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), consulGossipPort
	if _, err := netip.ParseAddr(host); err != nil {
		if h, p, err := net.SplitHostPort(text); err == nil {
			host, port = h, p
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", "", false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return host, port, ip.Zone() == "" && !ip.IsUnspecified()
	}
	return host, port, len(host) <= 253 && dnsNamePattern.MatchString(host)
}

// Discovery says what a cluster and a Consul learn of each other.
type Discovery struct {
	Consul string            `json:"consul" of:"Consul" doc:"Name of the Consul that the cluster's API server and services are registered in." required:"true"`
	Export DiscoveryExport   `json:"export,omitzero" doc:"Which services of the cluster are registered there, besides its API server."`
	Import []DiscoveryImport `json:"import,omitempty" doc:"Services of Consul that become Services of the cluster." maxItems:"200"`
	DNS    bool              `json:"dns,omitempty" doc:"Whether pods resolve names of Consul's domain."`
	Agents bool              `json:"agents,omitempty" doc:"Whether each node has an agent of Consul, which makes it a member of the datacenter."`
}

// Syncs tells whether Services go to Consul or come from there.
func (d Discovery) Syncs() bool { return d.Export.Any() || len(d.Import) > 0 }

// DiscoveryExport says which services of a cluster are registered in Consul.
type DiscoveryExport struct {
	LoadBalancer bool `json:"loadBalancer,omitempty" doc:"Services of type LoadBalancer, with their addresses."`
	Ingress      bool `json:"ingress,omitempty" doc:"Ingresses, with the addresses of their controller."`
	Annotated    bool `json:"annotated,omitempty" doc:"Services with the annotation for it, of any type."`
	// Consul lets who may write a service also remove it from other nodes.
	Names []string `json:"names,omitempty" doc:"Names in Consul that the cluster may register, such as web, or shop-* for all that begin so. Default: all but those that begin with kaas-." maxItems:"100" maxLength:"63"`
}

// Any tells whether anything is registered.
func (e DiscoveryExport) Any() bool { return e.LoadBalancer || e.Ingress || e.Annotated }

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

func (v consulValidator) consul(c *Consul) {
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
	for i, text := range c.DNS {
		if _, ok := nameServer(text); !ok {
			v.fail(
				fmt.Sprintf("spec.dns[%d]", i), "such as 10.0.0.11, or 10.0.0.11:53", "is no address of a name server",
			)
		}
	}
	if c.TLS.CA != "" {
		v.content().pem("spec.tls.ca", c.TLS.CA)
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
	v.consulAgents(c)
	switch c.Credentials {
	case "":
		v.warn("spec.credentials", "is empty: no token is sent, which is right only for a Consul without ACLs")
	case c.Gossip:
		v.fail("spec.gossip", "store the key and the token as credentials of their own",
			"is the name of the token's credentials")
	}
}

func (v consulValidator) consulAgents(c *Consul) {
	a := c.Agents
	if a.Director {
		v.consulOwnAgent(c)
	}
	for i, text := range a.Join {
		if _, _, ok := gossipServer(text); !ok {
			v.fail(fmt.Sprintf("spec.agents.join[%d]", i), "such as 10.0.0.11, or consul1.example.org:8301",
				"is no address of a server")
		}
	}
	if len(a.Join) > 0 && c.Gossip == "" {
		v.warn("spec.gossip", "is empty: the gossip of the agents is neither encrypted nor authenticated")
	}
	p := a.Program
	if p.SHA256 != "" {
		v.match("spec.agents.program.sha256", p.SHA256, sha256Pattern,
			"64 hexadecimal digits, as sha256sum prints them", 64)
	}
	if p.CA != "" {
		v.content().pem("spec.agents.program.ca", p.CA)
	}
	if p.URL == "" {
		return
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || path.Base(u.Path) != "consul" || strings.ContainsAny(p.URL, "{}\n") {
		v.fail("spec.agents.program.url", "such as https://files.example.org/consul/1.19.2/consul, the program itself",
			"is not an https address of a file named consul")
	}
	if p.SHA256 == "" {
		v.fail("spec.agents.program.sha256", "write what sha256sum prints", "is missing: url is not used without it")
	}
}

// consulOwnAgent checks what the agent next to the director needs. Unlike nodes, the director's machine may be where
// everybody is: its gossip is authenticated.
func (v consulValidator) consulOwnAgent(c *Consul) {
	for _, f := range []struct {
		path, hint string
		missing    bool
	}{
		{"spec.agents.join", "write the addresses of servers", len(c.Agents.Join) == 0},
		{"spec.gossip", "store the gossip key, and name its credentials", c.Gossip == ""},
		{"spec.tls.ca", "write the certificates of the authority", c.TLS.CA == ""},
	} {
		if f.missing {
			v.fail(f.path, f.hint, "is empty, and the agent next to the director needs it")
		}
	}
}

// builtInServices are Services that Kubernetes itself makes.
var builtInServices = map[[2]string]bool{{"default", "kubernetes"}: true, {"kube-system", "kube-dns"}: true}

func (v consulValidator) discovery(d Discovery) {
	if d.Consul == "" {
		return // the decoder has said so, or there is no discovery
	}
	v.exports(d.Export)
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

func (v consulValidator) exports(e DiscoveryExport) {
	for i, name := range e.Names {
		at := fmt.Sprintf("spec.discovery.export.names[%d]", i)
		begin, _ := strings.CutSuffix(name, "*")
		if begin == "" || !dnsLabelPattern.MatchString(strings.TrimSuffix(begin, "-")) {
			v.fail(at, "a DNS label such as web, or a beginning of some such as shop-*", "is no name in Consul")
		}
		if strings.HasPrefix(name, director.ConsulPrefix) {
			v.fail(at, "choose other names", "names that begin with "+director.ConsulPrefix+" are the director's")
		}
	}
	switch {
	case len(e.Names) > 0 && !e.Any():
		v.warn("spec.discovery.export.names", "has no effect, because nothing is exported")
	case len(e.Names) == 0 && e.Any():
		v.warn("spec.discovery.export.names", "is empty: the cluster's token may register and remove any service of "+
			"this Consul whose name does not begin with "+director.ConsulPrefix)
	}
}

// discoveryAgainst keeps names of the cluster apart from names of Consul: a name server that forwards the one would
// never answer for the other.
func (v consulValidator) discoveryAgainst(c *Cluster, all Set) {
	if c.Discovery.Consul == "" {
		return
	}
	consul := all[Ref{KindConsul, c.Discovery.Consul}].Consul
	if within(consul.Domain, c.Services.Domain) || within(c.Services.Domain, consul.Domain) {
		v.fail("spec.discovery.consul", "choose a Consul with another domain, or another spec.services.domain",
			"the domain %s of Consul/%s and the cluster's domain %s overlap", consul.Domain, c.Discovery.Consul,
			c.Services.Domain)
	}
	if c.Discovery.Syncs() && consul.TLS.CA == "" {
		v.fail("spec.discovery.consul", "write the certificates of the authority into spec.tls.ca of Consul/"+
			c.Discovery.Consul, "the sync of Services trusts only certificates of spec.tls.ca, which is empty")
	}
	if c.Discovery.Agents && len(consul.Agents.Join) == 0 {
		v.fail("spec.discovery.agents", "write the addresses of servers into spec.agents.join of Consul/"+
			c.Discovery.Consul, "needs servers that the agents join")
	}
	if c.Discovery.Agents && consul.TLS.CA == "" {
		v.fail("spec.discovery.agents", "write the certificates of the authority into spec.tls.ca of Consul/"+
			c.Discovery.Consul, "agents trust only certificates of spec.tls.ca, which is empty")
	}
	if c.Discovery.DNS && len(consul.NameServers()) == 0 {
		v.fail("spec.discovery.dns", "write the addresses of servers or agents into spec.dns of Consul/"+
			c.Discovery.Consul, "needs the IP address of a server that answers DNS")
	}
}

// within tells whether the DNS name is the domain or below it.
func within(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

// consulAgainst keeps datacenters apart: what the director does not find wanted in one, it takes out of it.
func (v consulValidator) consulAgainst(d *Document, all Set) {
	for ref, other := range all {
		switch {
		case ref == d.Ref():
		case other.Consul != nil && other.Consul.Datacenter == d.Consul.Datacenter:
			v.fail("spec.datacenter", "keep one document for each datacenter", "%s is the datacenter of %s too",
				d.Consul.Datacenter, ref)
		case other.Consul != nil && other.Consul.Agents.Director && d.Consul.Agents.Director:
			v.fail("spec.agents.director", "have the agent next to the director in one Consul alone",
				"is so of %s too, and one agent runs next to a director", ref)
		case other.Cluster != nil && other.Cluster.Discovery.Consul == d.Metadata.Name:
			if own := other.Cluster.Services.Domain; within(d.Consul.Domain, own) || within(own, d.Consul.Domain) {
				v.fail("spec.domain", "choose another domain", "%s and %s, the domain of %s, overlap",
					d.Consul.Domain, own, ref)
			}
			if other.Cluster.Discovery.Agents && len(d.Consul.Agents.Join) == 0 {
				v.fail("spec.agents.join", "write the addresses of servers",
					"is empty, and the agents of %s join there", ref)
			}
			if other.Cluster.Discovery.DNS && len(d.Consul.NameServers()) == 0 {
				v.fail("spec.dns", "write the addresses of servers or agents", "is empty, and the pods of %s ask there",
					ref)
			}
		}
	}
}
