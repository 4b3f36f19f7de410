package model

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// OwnRegistry is the host by which images name the director's own registry, on every node of every director.
const OwnRegistry = "kaas.internal"

// The ways in which nodes pull images of a host.
const (
	RegistryDirect  = "direct"
	RegistryMirror  = "mirror"
	RegistryReplace = "replace"
)

// Registry is an outer registry: where nodes pull images of a host from. Nodes alone ask it, the director never does.
type Registry struct {
	Host         string   `json:"host" doc:"Host in the names of images, with its port unless it is 443: docker.io, or registry.example.org:5000." required:"true" maxLength:"259"`
	Mode         string   `json:"mode,omitempty" doc:"direct: from the host itself. mirror: from the endpoints in their order, and from the host itself if none of them has the image. replace: from the endpoints alone." enum:"direct,mirror,replace" default:"direct"`
	Endpoints    []string `json:"endpoints,omitempty" doc:"With mirror and replace: https://HOST[:PORT][/PATH] of mirrors or pull-through caches." maxItems:"5" maxLength:"512"`
	OverridePath bool     `json:"overridePath,omitempty" doc:"Whether the paths of the endpoints are where their API is. Off, /v2 is added."`
	// CA and Credentials are never for the host itself where there are endpoints: a mirror may be of another owner.
	CA          string `json:"ca,omitempty" doc:"Certificates in PEM form that the server may be from, besides those that nodes trust: that of the host, with mirror and replace those of the endpoints." text:"lines" maxLength:"65536"`
	Credentials string `json:"credentials,omitempty" doc:"Name of the credentials that nodes pull with: from the host, with mirror and replace from every endpoint."`
}

const (
	registryHostHint = "a host such as docker.io or registry.example.org:5000, without scheme and path, in lower case"
	endpointHint     = "https://HOST[:PORT][/PATH] in lower case, such as https://mirror.example.org/docker"
	mostRegistryPort = 1<<16 - 1
)

// Both are written into files of nodes, and the host is the name of a directory there: no other character is let in.
var (
	registryHostPattern = regexp.MustCompile(
		`^([a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*)(?::([1-9][0-9]{0,4}))?$`,
	)
	endpointPattern = regexp.MustCompile(`^https://([^/]+)((?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*)$`)
)

// registryHost tells whether text is a host with or without a port, and no name of the node itself: containerd does not
// check the certificates of those.
func registryHost(text string) bool {
	m := registryHostPattern.FindStringSubmatch(text)
	if m == nil || len(m[1]) > 253 || m[1] == "localhost" || strings.HasSuffix(m[1], ".localhost") {
		return false
	}
	if m[2] != "" {
		if port, err := strconv.Atoi(m[2]); err != nil || port > mostRegistryPort {
			return false
		}
	}
	ip, err := netip.ParseAddr(m[1])
	return err != nil || !ip.IsLoopback() && !ip.IsUnspecified()
}

// registryEndpoint tells whether text is the address of an endpoint, and whether it has a path.
func registryEndpoint(text string) (ok, path bool) {
	m := endpointPattern.FindStringSubmatch(text)
	return m != nil && registryHost(m[1]), m != nil && m[2] != ""
}

// registryValidator validates outer registries, and what clusters want of them.
type registryValidator struct{ *validator }

// registryKind is what the model knows of the kind Registry.
var registryKind = kind{
	name: KindRegistry,
	meaning: "An outer registry that nodes pull images from; see " +
		"[outer registries](../operate/registries.md).",
	spec: func(d *Document) any { return ensure(&d.Registry) },
	validate: func(v *validator, d *Document) {
		registryValidator{v}.registry(d.Registry)
	},
	against: func(v *validator, d *Document, all Set) {
		registryValidator{v}.registryAgainst(d, all)
	},
	credentials: func(d *Document) []string { return []string{d.Registry.Credentials} },
	columns:     [][2]string{{"HOST", "host"}, {"MODE", "mode"}, {"ENDPOINTS", "endpoints"}},
	effects: of(Planned, "the nodes of clusters that name it are told; no pod is touched", "spec.host",
		"spec.mode", "spec.endpoints", "spec.overridePath", "spec.ca", "spec.credentials"),
}

func (v registryValidator) registry(r *Registry) {
	switch {
	case r.Host == OwnRegistry || strings.HasPrefix(r.Host, OwnRegistry+":"):
		v.fail("spec.host", "name another host; every node has the director's registry by itself",
			"is the director's own registry")
	case !registryHost(r.Host):
		v.fail("spec.host", registryHostHint, "%q is not allowed", r.Host)
	}
	v.each("spec.endpoints", r.Endpoints, endpointHint, func(e string) bool { ok, _ := registryEndpoint(e); return ok })
	switch {
	case r.Mode == RegistryDirect && len(r.Endpoints) > 0:
		v.fail("spec.endpoints", "set spec.mode to mirror or replace, or leave them out", "are not used with direct")
	case r.Mode != RegistryDirect && len(r.Endpoints) == 0:
		v.fail("spec.endpoints", "such as https://mirror.example.org", "is empty, and %s needs one", r.Mode)
	}
	if r.OverridePath && (len(r.Endpoints) == 0 || slices.ContainsFunc(r.Endpoints, func(e string) bool {
		_, path := registryEndpoint(e)
		return !path
	})) {
		v.fail("spec.overridePath", "leave it out, or write the paths", "is for endpoints that all have a path")
	}
	if r.CA != "" {
		v.content().pem("spec.ca", r.CA)
		if !x509.NewCertPool().AppendCertsFromPEM([]byte(r.CA)) { // nodes could pull nothing
			v.fail("spec.ca", "certificates in PEM form", "holds no certificate")
		}
	}
	if r.Credentials != "" {
		v.match("spec.credentials", r.Credentials, credentialsPattern,
			"the name of credentials: letters a-z, digits and dashes, beginning with a letter", 40)
	}
	if r.Mode == RegistryDirect && r.CA == "" && r.Credentials == "" {
		v.warn("spec.mode", "is direct without ca and credentials: nodes pull from the host as they do without this")
	}
}

// names checks the names of the cluster's registries.
func (v registryValidator) names(c *Cluster) {
	v.each("spec.registries", c.Registries, "the name of a Registry", func(name string) bool {
		return len(name) <= 40 && labelPattern.MatchString(name)
	})
}

// registriesAgainst has each host be one registry's: a node asks by the host.
func (v registryValidator) registriesAgainst(c *Cluster, all Set) {
	first := map[string]string{}
	if own, set := c.Vars["docker_registry_host"].(string); set {
		first[own] = "spec.vars.docker_registry_host"
	}
	for i, name := range c.Registries {
		host := all[Ref{KindRegistry, name}].Registry.Host
		if other, twice := first[host]; twice {
			v.fail(fmt.Sprintf("spec.registries[%d]", i), "leave one of them out",
				"Registry/%s is for %s, as %s is", name, host, other)
			continue
		}
		first[host] = "Registry/" + name
	}
}

// registryAgainst does the same for the clusters that name a registry which changes.
func (v registryValidator) registryAgainst(d *Document, all Set) {
	for ref, other := range all {
		if ref.Kind != KindCluster || !slices.Contains(other.Cluster.Registries, d.Metadata.Name) {
			continue
		}
		if other.Cluster.Vars["docker_registry_host"] == d.Registry.Host {
			v.fail("spec.host", "choose another host", "%s is spec.vars.docker_registry_host of %s",
				d.Registry.Host, ref)
		}
		for _, name := range other.Cluster.Registries {
			r := all[Ref{KindRegistry, name}]
			if name != d.Metadata.Name && r != nil && r.Registry.Host == d.Registry.Host {
				v.fail("spec.host", "choose another host, or take one out of the cluster",
					"%s is the host of %s too, and %s names both", d.Registry.Host, r.Ref(), ref)
			}
		}
	}
}
