package consulsync

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
)

// Config is the configuration file. Secrets are never in it, only paths of files that hold them.
type Config struct {
	Owner      string   `yaml:"owner"`      // id of the director that owns the entries
	Cluster    string   `yaml:"cluster"`    // uid of the cluster
	Namespace  string   `yaml:"namespace"`  // of the lease and the status; kube-system if empty
	Kubeconfig string   `yaml:"kubeconfig"` // the service account of the pod if empty
	Listen     string   `yaml:"listen"`     // address of health and metrics
	LogLevel   string   `yaml:"logLevel"`   // debug, info, warn, error
	Resync     Duration `yaml:"resync"`     // how often both sides are compared when nothing changes
	Consul     Consul   `yaml:"consul"`
	Export     Export   `yaml:"export"`
	Import     []Import `yaml:"import"`
	Guard      Guard    `yaml:"guard"`
}

// Consul says how Consul is reached.
type Consul struct {
	Addresses  []string `yaml:"addresses"`  // URLs of servers or agents; the first that answers is used
	Datacenter string   `yaml:"datacenter"` // that of the agent if empty
	TokenFile  string   `yaml:"tokenFile"`  // read again when it changes
	CAFile     string   `yaml:"caFile"`     // the system's authorities if empty
	CertFile   string   `yaml:"certFile"`   // a client certificate, read again for each connection
	KeyFile    string   `yaml:"keyFile"`
	ServerName string   `yaml:"serverName"` // the name in the certificates of the servers; the host of the URL if empty
}

// Export says what goes from Kubernetes to Consul.
type Export struct {
	LoadBalancer bool     `yaml:"loadBalancer"` // Services of type LoadBalancer
	Ingress      bool     `yaml:"ingress"`      // Ingresses
	Annotated    bool     `yaml:"annotated"`    // Services with the annotation consul.kaas/export: "true"
	Names        []string `yaml:"names"`        // that objects may take, such as web or shop-*; all if empty
	Reserved     []string `yaml:"reserved"`     // names in Consul that no object of the cluster may take
}

// Import is a service of Consul that becomes a Service.
type Import struct {
	Service   string         `yaml:"service"`   // in Consul
	Tag       string         `yaml:"tag"`       // only instances with this tag
	Namespace string         `yaml:"namespace"` // of the Service
	Name      string         `yaml:"name"`      // of the Service
	Port      int            `yaml:"port"`      // of the Service; instances keep theirs
	Networks  []netip.Prefix `yaml:"networks"`  // only instances with addresses in them; all if empty
}

// Key returns namespace/name.
func (i Import) Key() string { return i.Namespace + "/" + i.Name }

// Guard says which removals are too many at once to be meant: more than Percent of all and more than Minimum.
type Guard struct {
	Percent int `yaml:"percent"`
	Minimum int `yaml:"minimum"`
}

// Duration is a time.Duration that is written as 30s.
type Duration time.Duration

// UnmarshalYAML parses what time.ParseDuration does.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is not a duration such as 1m", n.Line, n.Value)
	}
	*d = Duration(v)
	return nil
}

// Bounds of the configuration file.
const (
	maxConfig    = 1 << 20
	maxAddresses = 16
	maxImports   = 200
	maxReserved  = 1000
	maxNames     = 100
)

const namePart = `[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?`

var (
	label    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	identity = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,46}[A-Za-z0-9])?$`)
	// A service of Consul that is imported may have an older name than one that is exported.
	consulName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9_])?$`)
	tag        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/=-]{0,127}$`)
	hostname   = regexp.MustCompile(`^(` + namePart + `\.)*` + namePart + `$`)
)

// ParseConfig reads a configuration strictly, fills in what may be left out and validates it. The error names every
// field that is wrong.
func ParseConfig(text []byte) (Config, error) {
	const op = "consulsync.config"
	c := Config{
		Namespace: "kube-system", Listen: ":8080", LogLevel: "info", Resync: Duration(time.Minute),
		Guard: Guard{Percent: 20, Minimum: 5},
	}
	if len(text) > maxConfig {
		return c, director.Errorf(director.KindInvalid, op, "the configuration has more than %d bytes", maxConfig)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, director.Errorf(director.KindInvalid, op, "the configuration cannot be read: %w", err).
			WithHint("docs/operate/consul-sync.md lists every field")
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return c, director.Errorf(director.KindInvalid, op, "the configuration has more than one document")
	}
	p := &problems{}
	c.validate(p)
	return c, director.Invalid(op, "the configuration is not valid", p.fields)
}

type problems struct{ fields []director.Field }

func (p *problems) add(ok bool, path, msg, hint string) {
	if !ok {
		p.fields = append(p.fields, director.Field{Path: path, Msg: msg, Hint: hint})
	}
}

func (c Config) validate(p *problems) {
	const ids = "letters, digits and hyphens, 48 at most"
	p.add(identity.MatchString(c.Owner), "owner", "is not an id", ids)
	p.add(identity.MatchString(c.Cluster), "cluster", "is not a uid", ids)
	p.add(label.MatchString(c.Namespace), "namespace", "is not the name of a namespace", "such as kube-system")
	_, _, err := net.SplitHostPort(c.Listen)
	p.add(err == nil, "listen", "is not an address with a port", "such as :8080")
	switch c.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		p.add(false, "logLevel", "is not a level", "debug, info, warn or error")
	}
	resync := time.Duration(c.Resync)
	p.add(resync >= 5*time.Second && resync <= time.Hour, "resync", "is out of range", "from 5s to 1h")
	p.add(c.Guard.Percent >= 1 && c.Guard.Percent <= 100, "guard.percent", "is out of range", "from 1 to 100")
	p.add(c.Guard.Minimum >= 0 && c.Guard.Minimum <= 1000, "guard.minimum", "is out of range", "from 0 to 1000")
	p.add(len(c.Export.Reserved) <= maxReserved, "export.reserved", "has too many names", strconv.Itoa(maxReserved))
	for i, name := range c.Export.Reserved {
		p.add(label.MatchString(name), fmt.Sprintf("export.reserved[%d]", i), "is not a DNS label", "such as vault")
	}
	p.add(len(c.Export.Names) <= maxNames, "export.names", "has too many names", strconv.Itoa(maxNames)+" at most")
	for i, name := range c.Export.Names {
		begin := strings.TrimSuffix(strings.TrimSuffix(name, "*"), "-")
		p.add(
			label.MatchString(begin), fmt.Sprintf("export.names[%d]", i), "is no name in Consul",
			"such as web, or shop-*",
		)
	}
	c.Consul.validate(p)
	c.validateImports(p)
}

func (c Consul) validate(p *problems) {
	p.add(len(c.Addresses) > 0 && len(c.Addresses) <= maxAddresses, "consul.addresses",
		fmt.Sprintf("has %d addresses", len(c.Addresses)), fmt.Sprintf("from 1 to %d", maxAddresses))
	schemes := map[string]bool{}
	for i, a := range c.Addresses {
		u, err := url.Parse(a)
		path := fmt.Sprintf("consul.addresses[%d]", i)
		if err != nil || u.Host == "" || u.Port() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" ||
			u.RawQuery != "" || (u.Scheme != "http" && u.Scheme != "https") {
			p.add(false, path, "is not the URL of a Consul", "such as https://consul1.example:8501, with the port")
			continue
		}
		schemes[u.Scheme] = true
		// The token would travel in the clear.
		p.add(u.Scheme == "https" || loopback(u.Hostname()), path, "is not encrypted and not on loopback", "use https")
	}
	p.add(len(schemes) < 2, "consul.addresses", "mixes http and https", "use one of them")
	p.add(c.Datacenter == "" || consulName.MatchString(c.Datacenter), "consul.datacenter", "is not a name",
		"such as dc1")
	p.add((c.CertFile == "") == (c.KeyFile == ""), "consul.certFile", "is of no use without keyFile",
		"set both or none")
	p.add(c.ServerName == "" || hostname.MatchString(c.ServerName), "consul.serverName", "is not a host name",
		"such as server.dc1.consul")
	for _, f := range []struct{ path, file string }{
		{"consul.tokenFile", c.TokenFile},
		{"consul.caFile", c.CAFile},
		{"consul.certFile", c.CertFile},
		{"consul.keyFile", c.KeyFile},
	} {
		p.add(f.file == "" || filepath.IsAbs(f.file), f.path, "is not an absolute path",
			"such as /etc/consul-sync/token")
	}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}

func (c Config) validateImports(p *problems) {
	p.add(len(c.Import) <= maxImports, "import", "has too many entries", strconv.Itoa(maxImports)+" at most")
	seen := map[string]int{}
	for i, m := range c.Import {
		at := fmt.Sprintf("import[%d].", i)
		p.add(consulName.MatchString(m.Service), at+"service", "is not the name of a service of Consul",
			"letters, digits, dots, hyphens and underscores, 128 at most")
		p.add(m.Tag == "" || tag.MatchString(m.Tag), at+"tag", "is not a tag", "such as primary")
		p.add(label.MatchString(m.Namespace), at+"namespace", "is not the name of a namespace", "such as default")
		// A Service's name begins with a letter in older versions of Kubernetes.
		p.add(label.MatchString(m.Name) && (m.Name[0] < '0' || m.Name[0] > '9'), at+"name",
			"is not the name of a Service", "a DNS label that begins with a letter")
		p.add(m.Port >= 1 && m.Port <= 65535, at+"port", "is not a port", "from 1 to 65535")
		p.add(len(m.Networks) <= 64, at+"networks", "has too many networks", "64 at most")
		for j, n := range m.Networks {
			p.add(n.IsValid(), fmt.Sprintf("%snetworks[%d]", at, j), "is not a network", "such as 10.0.0.0/8")
		}
		if first, ok := seen[m.Key()]; ok {
			p.add(false, at+"name", fmt.Sprintf("is the Service of import[%d] too", first), "choose another name")
		} else {
			seen[m.Key()] = i
		}
	}
}
