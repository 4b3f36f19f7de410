package model

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Repository is a package source of the nodes.
type Repository struct {
	Name   string `json:"name" doc:"Of its file in sources.list.d: letters, digits, dots and dashes." required:"true"`
	Source string `json:"source" doc:"Line of sources.list, such as deb https://deb.example.org/ stable main." required:"true"`
	Key    string `json:"key,omitempty" doc:"Public key of the repository, in PGP's armour." text:"lines" maxLength:"65536"`
}

// Script is run on each node at its first boot.
type Script struct {
	Name          string   `json:"name" doc:"Of the script, unique in the pool: at most 40 letters a-z, digits and dashes." required:"true"`
	Content       string   `json:"content" doc:"The script, for /bin/sh unless its first line begins with #!; at most 16KiB. It is no place for secrets." required:"true" text:"lines" maxLength:"65536"`
	Timeout       Duration `json:"timeout,omitempty" doc:"How long it may take." default:"10m" min:"1s" max:"2h"`
	IgnoreFailure bool     `json:"ignoreFailure,omitempty" doc:"Whether a node is good although the script has failed on it."`
}

// Share is a directory of a node that lives on an NFS server, and so outlives the VM.
type Share struct {
	Path    string `json:"path" doc:"The directory on the node." required:"true"`
	Server  string `json:"server" doc:"The NFS server: name or address." required:"true"`
	Export  string `json:"export" doc:"Path that the server exports." required:"true"`
	Common  bool   `json:"common,omitempty" doc:"Whether all nodes have the same directory, the export itself. Off, each node has one of its own below the export: cluster/node/path."`
	Options string `json:"options,omitempty" doc:"Options of the mount." default:"nfsvers=4,hard"`
}

// Health is the check that a node has to pass before it is used.
type Health struct {
	Command  string   `json:"command" doc:"Shell script, run as root on the node; a node is well when it ends with 0. It may take 20s." required:"true" text:"lines" maxLength:"65536"`
	Interval Duration `json:"interval,omitempty" doc:"Time between two tries." default:"5s" min:"1s" max:"5m"`
	Timeout  Duration `json:"timeout,omitempty" doc:"How long a node may take to become well after its boot." default:"2m" min:"1s" max:"1h"`
}

// Budget returns how much longer than a plain boot the first boot of a node may take.
func (m *VMModel) Budget() Duration {
	var sum Duration
	for _, s := range m.Scripts {
		sum += s.Timeout
	}
	if len(m.Shares) > 0 {
		sum += 5 * minute
	}
	if len(m.Packages) > 0 {
		sum += 10 * minute
	}
	if m.Health != nil {
		sum += m.Health.Timeout
	}
	return sum
}

const minute = Duration(60e9)

// The sizes of masters. Those with a name are the example configurations of etcd's hardware recommendations
// (https://etcd.io/docs/v3.6/op-guide/hardware/): clusters of 50, 250, 1,000 and 3,000 nodes.
var masterSizes = map[string]VMSize{
	"small":  {CPUs: 2, Memory: 8 * GiB},
	"medium": {CPUs: 4, Memory: 16 * GiB},
	"large":  {CPUs: 8, Memory: 32 * GiB},
	"xlarge": {CPUs: 16, Memory: 64 * GiB},
}

// sizeByWorkers is the table that Kubernetes itself sized masters by ("Considerations for large clusters", up to 1.19),
// at 3.75 GB for each vCPU, and rounded up to the least size of a master.
var sizeByWorkers = []struct {
	most int
	size VMSize
}{
	{5, VMSize{CPUs: 2, Memory: 4 * GiB}},
	{10, VMSize{CPUs: 2, Memory: 7680 * MiB}},
	{100, VMSize{CPUs: 4, Memory: 15 * GiB}},
	{250, VMSize{CPUs: 8, Memory: 30 * GiB}},
	{500, VMSize{CPUs: 16, Memory: 60 * GiB}},
	{1 << 30, VMSize{CPUs: 32, Memory: 120 * GiB}},
}

// Preset returns vCPUs and memory of masters of the named size in a cluster of so many workers; zero for a size that
// there is not.
func Preset(size string, workers int) VMSize {
	if size != "auto" {
		return masterSizes[size]
	}
	for _, s := range sizeByWorkers {
		if workers <= s.most {
			return s.size
		}
	}
	return VMSize{}
}

// preset fills in what the size says of masters. What is written out stays.
func (c *Cluster) preset() {
	p := Preset(c.Masters.Size, c.WorkerCount())
	if c.Masters.CPUs == 0 {
		c.Masters.CPUs = p.CPUs
	}
	if c.Masters.Memory == 0 {
		c.Masters.Memory = p.Memory
	}
}

// The bounds of what is sent to a node: vSphere takes a limited amount of it.
const (
	mostScript  = 16 << 10
	mostScripts = 40 << 10
)

var (
	scriptPattern  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	packagePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]*(=[A-Za-z0-9.+:~-]+)?$`)
	filePattern    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	hostPattern    = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	sourcePattern  = regexp.MustCompile(`^deb(-src)? (\[[^]\r\n]+\] )?[a-z+]+:[^ \r\n]+ [^\r\n]+$`)
	optionsPattern = regexp.MustCompile(`^[A-Za-z0-9=,._-]+$`)
	pathPattern    = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)
)

// masterSize warns of a size that numbers have the better of.
func (v *vmValidator) masterSize(c *Cluster) {
	p := Preset(c.Masters.Size, c.WorkerCount())
	if p != (VMSize{}) && (p.CPUs != c.Masters.CPUs || p.Memory != c.Masters.Memory) {
		v.warn(
			"spec.masters.size", "%s is %d vCPU and %s; cpus and memory are written out as %d and %s, and win",
			c.Masters.Size, p.CPUs, p.Memory, c.Masters.CPUs, c.Masters.Memory,
		)
	}
}

// vmModel checks what VMs of one role have in addition to their size.
func (v *vmValidator) vmModel(at string, m *VMModel, persist []string) {
	for i, key := range m.SSHKeys {
		v.sshKey(fmt.Sprintf("%s.sshKeys[%d]", at, i), key)
	}
	v.aliases(at+".hostAliases", m.HostAliases)
	v.timeServers(at+".ntp", m.NTP)
	names := map[string]int{}
	for i, r := range m.Repositories {
		here := fmt.Sprintf("%s.repositories[%d]", at, i)
		v.match(here+".name", r.Name, filePattern, "letters, digits, dots and dashes", 60)
		v.match(
			here+".source", r.Source, sourcePattern, "one line, such as deb https://deb.example.org/ stable main", 500,
		)
		if r.Key != "" && !strings.HasPrefix(r.Key, "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
			v.fail(here+".key", "what gpg --armor --export prints", "is not a public key in PGP's armour")
		}
		if first, twice := names[r.Name]; twice {
			v.fail(here+".name", "", "is the name of repositories[%d] too", first)
		}
		names[r.Name] = i
	}
	for i, p := range m.Packages {
		v.match(
			fmt.Sprintf("%s.packages[%d]", at, i), p, packagePattern,
			"the name of a package, such as htop or htop=3.2.2-2", 120,
		)
	}
	v.scripts(at, m)
	v.shares(at, m, persist)
	if h := m.Health; h != nil {
		if strings.TrimSpace(h.Command) == "" {
			v.fail(at+".health.command", "such as: systemctl is-active --quiet containerd", "is empty")
		}
		if len(h.Command) > mostScript {
			v.fail(at+".health.command", "at most 16KiB", "is %d bytes long", len(h.Command))
		}
	}
}

func (v *vmValidator) scripts(at string, m *VMModel) {
	names, sum := map[string]int{}, 0
	for i, s := range m.Scripts {
		here := fmt.Sprintf("%s.scripts[%d]", at, i)
		v.match(here+".name", s.Name, scriptPattern, "letters a-z, digits and dashes", 40)
		if first, twice := names[s.Name]; twice {
			v.fail(here+".name", "", "is the name of scripts[%d] too", first)
		}
		names[s.Name] = i
		if sum += len(s.Content); len(s.Content) > mostScript {
			v.fail(
				here+".content", "have it fetch what is large", "is %d bytes long, and %d are allowed", len(s.Content),
				mostScript,
			)
		}
		if strings.TrimSpace(s.Content) == "" {
			v.fail(here+".content", "write the script", "is empty")
		}
	}
	if sum > mostScripts {
		v.fail(
			at+".scripts", "have them fetch what is large", "are %d bytes together, and %d are allowed", sum,
			mostScripts,
		)
	}
}

func (v *vmValidator) shares(at string, m *VMModel, persist []string) {
	inside := func(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
	for i, s := range m.Shares {
		here := fmt.Sprintf("%s.shares[%d]", at, i)
		switch {
		case !pathPattern.MatchString(s.Path) || path.Clean(s.Path) != s.Path:
			v.fail(
				here+".path", "the whole path, beginning with /, of letters, digits, dots and dashes",
				"%q is not allowed", s.Path,
			)
		case slices.Contains(keptDirectories, s.Path):
			v.fail(here+".path", "name what is below it", "a node cannot do without %s", s.Path)
		}
		if _, err := netip.ParseAddr(s.Server); err != nil {
			v.match(here+".server", s.Server, hostPattern, "a name or an address", 253)
		}
		if s.Export != "/" && (!pathPattern.MatchString(s.Export) || path.Clean(s.Export) != s.Export) {
			v.fail(here+".export", "the whole path, beginning with /", "%q is not allowed", s.Export)
		}
		v.match(here+".options", s.Options, optionsPattern, "such as nfsvers=4,hard", 200)
		for j, o := range m.Shares[:i] {
			if inside(s.Path, o.Path) || inside(o.Path, s.Path) {
				v.fail(
					here+".path", "name directories apart from each other", "%s and shares[%d], %s, lie in each other",
					s.Path, j, o.Path,
				)
			}
		}
		for _, p := range persist {
			if inside(s.Path, p) || inside(p, s.Path) {
				v.fail(
					here+".path", "a directory is on the data disk or on a share",
					"%s and the persisted %s lie in each other", s.Path, p,
				)
			}
		}
	}
}

func (v *vmValidator) sshKey(at, key string) {
	if len(strings.Fields(key)) < 2 || strings.ContainsAny(key, "\n\r") {
		v.fail(at, "one line: type, key, comment", "is not a public key in authorized_keys form")
	}
}

func (v *vmValidator) aliases(at string, list []HostAlias) {
	for i, a := range list {
		here := fmt.Sprintf("%s[%d]", at, i)
		if len(a.Names) == 0 {
			v.fail(here+".names", "name at least one", "is empty")
		}
		for j, n := range a.Names {
			v.match(fmt.Sprintf("%s.names[%d]", here, j), n, hostPattern, "a host name", 253)
		}
	}
}
