// Package inventory renders what Ansible is given for a cluster: hosts, variables, known host keys and, apart from
// them, the secrets.
//
// It is pure: the same Input gives the same bytes. The templates and the schema of their variables are in
// inventory-templates; values are written by a YAML encoder and never pasted into text. Strings that Ansible would
// evaluate ("{{ ... }}") are marked so that it does not.
package inventory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"
	"text/template"
	"time"

	"github.com/director-kaas/kaas/director"
)

const op = "inventory.render"

// Input is what an inventory is made from. It holds no secret.
type Input struct {
	Name       string // of the cluster
	UID        string
	Kubernetes string // version, such as v1.37.2

	APIHost  string   // virtual address, or the only master's address; empty for the latter
	APIPort  int      // 0 for 6443
	APIVIP   string   // empty with one master
	APINames []string // further names in the API server's certificate

	PodNetwork  string // calico when empty
	PodCIDR     string
	PodMTU      int // 0 has the pod network find it out
	ServiceCIDR string
	DNSAddress  string // of the DNS service; empty for the tenth service address
	Domain      string // of services; cluster.local when empty

	Registry string // host, with its port when it is not 443, in the names of images
	// RegistryEndpoint is the host:port where Registry really answers; empty when that is the same. It is left out when
	// Vars names another registry.
	RegistryEndpoint string
	RegistryCA       string            // PEM
	ImageTags        map[string]string // by image name: etcd, coredns, pause, toolbox
	Bundle           string            // directory of the release bundle on the director
	// where the release's programs are fetched from, by name; empty when nodes have them from their image
	BinariesURL string
	Binaries    map[string]string // SHA-256 of the release's programs by name

	DirectorAddresses []string // from which the director reaches the nodes; nil if that is not known

	DNS []string // name servers of the nodes
	NTP []string // time servers of the nodes
	// What CoreDNS forwards to Consul, and to whom; empty for nothing.
	ConsulDomain  string
	ConsulServers []string
	ConsulAgents  string // what agents of Consul on the nodes are told, in JSON; empty for none
	Registries    string // outer ones that nodes pull from, in JSON; empty for none
	Aliases       []Alias
	// Networks are what nodes are on, the internal one first; nil if that is all there is to say.
	Networks []Network

	EtcdHeartbeat time.Duration // 0 for etcd's own
	EtcdElection  time.Duration

	SSHUser string // kaas when empty
	KeyFile string // private key; a relative path is relative to hosts.ini; empty when the run names it

	Nodes []Node
	// Only names the nodes whose own variables a run needs; nil for all. Of the others the inventory has the groups,
	// the address and the host key, because Ansible reads a file for each node, which takes long with many.
	Only []string
	Vars map[string]any // what the cluster's model sets in spec.vars; see Variables for the names
}

// Alias is one line of the nodes' hosts file.
type Alias struct {
	Address string
	Names   []string
}

// Network is a network that nodes are on.
type Network struct {
	Role    string // internal, services, storage
	Name    string
	CIDR    string
	Gateway string // empty for none
}

// Interface is a network adapter of a node.
type Interface struct {
	Role    string
	Device  string // as the guest calls it
	Network string
	Address string // with prefix length
	MAC     string
}

// Node is one node of the cluster.
type Node struct {
	Name    string // host name; also the node's name in the cluster
	Role    director.Role
	Address string
	Labels  map[string]string
	Taints  []string // key=value:Effect; nil for the usual ones of the role
	HostKey string   // public SSH host key in authorized_keys form; empty leaves it out of known_hosts
	// Interfaces are all its adapters, the one with Address first; nil if that is the only one.
	Interfaces []Interface
	Aliases    []Alias  // replaces the input's; nil for the input's
	NTP        []string // replaces the input's; nil for the input's
	// What the node keeps from pods, by Kubernetes' names of resources. An entry replaces that of the cluster's
	// variable.
	KubeReserved, SystemReserved map[string]string
	Services                     []Service // that its agent of Consul registers
}

// Service is what the agent of Consul on a node registers.
type Service struct {
	ID, Name string
	Address  string // where it answers and is asked
	Port     int
	Tags     []string
	Check    ServiceCheck
}

// ServiceCheck is how an agent finds out whether a service is well, at the address of the service.
type ServiceCheck struct {
	Scheme   string // http, https or tcp
	Port     int
	Path     string // empty with tcp
	Interval int    // seconds
}

// Files are the files of an inventory by their path below its directory, such as hosts.ini and group_vars/all.yml.
type Files map[string][]byte

// Paths returns the paths of the files, sorted.
func (f Files) Paths() []string {
	paths := make([]string, 0, len(f))
	for p := range f {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	return paths
}

// Render returns the files of the inventory. Errors: invalid, naming every value that is missing, unknown or of the
// wrong type at once.
func (t Templates) Render(in Input) (Files, error) {
	s := t.schema
	values, fields := s.resolve(in)
	fields = append(fields, checkNodes(in.Nodes)...)
	fields = append(fields, checkPlain(in)...)
	if err := director.Invalid(op, "the inventory of cluster "+in.Name+" cannot be rendered", fields); err != nil {
		return nil, err
	}
	files := Files{}
	values["cluster_networks"] = networks(in.Networks)
	data := clusterData(in)
	var err error
	if files["hosts.ini"], err = t.execute("hosts.ini.tmpl", data, values); err != nil {
		return nil, err
	}
	if files["group_vars/all.yml"], err = t.execute("group_vars/all.yml.tmpl", data, values); err != nil {
		return nil, err
	}
	host, err := t.parse(hostTemplate)
	if err != nil {
		return nil, err
	}
	for _, node := range in.Nodes {
		if in.Only != nil && !slices.Contains(in.Only, node.Name) {
			continue
		}
		if files["host_vars/"+node.Name+".yml"], err = hostVars(host, node, values); err != nil {
			return nil, err
		}
	}
	if in.Only != nil {
		files["hosts.ini"] = append(files["hosts.ini"], addressOfAll...)
	}
	files["known_hosts"] = knownHosts(in.Nodes)
	return files, nil
}

const hostTemplate = "host_vars/host.yml.tmpl"

// addressOfAll gives nodes without variables of their own the address that others ask for.
const addressOfAll = "\n[cluster:vars]\nnode_ip={{ ansible_host }}\n"

// clusterData is what the templates of the cluster know besides the values.
func clusterData(in Input) map[string]any {
	data := map[string]any{
		"Cluster": in.Name, "Masters": byRole(in.Nodes, director.RoleMaster),
		"Workers": byRole(in.Nodes, director.RoleWorker),
		"KeyFile": "", "KnownHosts": "", "Networks": len(in.Networks) > 0,
	}
	dir := `{{ inventory_dir }}/`
	data["KnownHosts"] = quoted(
		`-o UserKnownHostsFile="` + dir +
			`known_hosts" -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes`,
	)
	if in.KeyFile != "" {
		if path.IsAbs(in.KeyFile) {
			dir = ""
		}
		data["KeyFile"] = quoted(dir + in.KeyFile)
	}
	return data
}

// hostVars returns the variables of one node.
func hostVars(parsed *template.Template, node Node, values map[string]any) ([]byte, error) {
	hostValues := map[string]any{
		"node_ip": node.Address, "node_labels": node.Labels, "node_taints": taints(node.Taints),
	}
	if node.Labels == nil {
		hostValues["node_labels"] = map[string]string{}
	}
	hostValues["node_interfaces"] = interfaces(node.Interfaces)
	hostValues["host_aliases"], hostValues["chrony_config_server"] = aliases(node.Aliases), node.NTP
	hostValues["consul_services"] = consulServices(node.Services)
	hostValues["kube_reserved"] = overlay(values["kube_reserved"], node.KubeReserved)
	hostValues["system_reserved"] = overlay(values["system_reserved"], node.SystemReserved)
	host := map[string]any{
		"Node": node.Name, "Interfaces": len(node.Interfaces) > 0, "Aliases": len(node.Aliases) > 0,
		"NTP": len(node.NTP) > 0, "Services": len(node.Services) > 0,
		"KubeReserved": len(node.KubeReserved) > 0, "SystemReserved": len(node.SystemReserved) > 0,
	}
	return execute(parsed, host, hostValues)
}

// knownHosts returns the nodes' host keys, the masters' first.
func knownHosts(nodes []Node) []byte {
	var known bytes.Buffer
	for _, node := range append(byRole(nodes, director.RoleMaster), byRole(nodes, director.RoleWorker)...) {
		if key := strings.Fields(node.HostKey); len(key) >= 2 {
			fmt.Fprintf(&known, "%s %s %s\n", node.Address, key[0], key[1])
		}
	}
	return known.Bytes()
}

// Secrets returns the file of secret variables, as JSON for `ansible-playbook -e @file`. The caller writes it with mode
// 0600 and removes it after the run. Errors: invalid, naming every secret that is missing or unknown; no error holds a
// value.
func Secrets(values map[string]string) ([]byte, error) {
	s := theSchema()
	var fields []director.Field
	for _, v := range s.list {
		if v.Secret && v.Required && strings.TrimSpace(values[v.Name]) == "" {
			fields = append(fields, director.Field{
				Path: v.Name, Msg: "has no value", Hint: strings.TrimSuffix(v.Doc, "."),
			})
		}
	}
	for name := range values {
		if !s.byName[name].Secret {
			fields = append(fields, director.Field{Path: name, Msg: "is no secret variable of the playbooks"})
		}
	}
	sort.Slice(fields, func(i, j int) bool { return fields[i].Path < fields[j].Path })
	if err := director.Invalid(
		"inventory.secrets", "the secrets of the playbooks are not complete", fields,
	); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(values) // sorts the names
	if err != nil {
		return nil, director.Errorf(director.KindInternal, "inventory.secrets", "the secrets cannot be encoded")
	}
	return append(raw, '\n'), nil
}

// facts returns what the input says, by variable. What it does not say is left out.
func (in Input) facts(s *schema) map[string]any {
	facts := map[string]any{
		"cluster_name": in.Name, "cluster_uid": in.UID, "kubernetes_version": in.Kubernetes,
		"api_endpoint_host": in.APIHost, "api_vip": in.APIVIP,
		"pod_cidr": in.PodCIDR, "service_cidr": in.ServiceCIDR, "cluster_dns_ip": in.DNSAddress,
		"docker_registry_host": in.Registry, "registry_endpoint": endpoint(in), "registry_ca": in.RegistryCA,
	}
	for name, tag := range in.ImageTags {
		if _, wanted := s.byName[name+"_image_tag"]; wanted {
			facts[name+"_image_tag"] = tag
		}
	}
	for name, list := range map[string][]string{
		"api_server_names": in.APINames, "dns_upstreams": in.DNS, "chrony_config_server": in.NTP,
		"director_addresses": in.DirectorAddresses, "consul_dns_servers": in.ConsulServers,
	} {
		if list != nil {
			facts[name] = list
		}
	}
	for name, n := range map[string]int{
		"api_endpoint_port": in.APIPort, "pod_network_mtu": in.PodMTU,
		"etcd_heartbeat_interval_ms": int(in.EtcdHeartbeat.Milliseconds()),
		"etcd_election_timeout_ms":   int(in.EtcdElection.Milliseconds()),
	} {
		if n != 0 {
			facts[name] = n
		}
	}
	for name, text := range map[string]string{
		"pod_network": in.PodNetwork, "cluster_domain": in.Domain, "ansible_user": in.SSHUser,
		"release_binaries_url": in.BinariesURL, "consul_domain": in.ConsulDomain,
		"consul_agents": in.ConsulAgents, "outer_registries": in.Registries,
	} {
		if text != "" {
			facts[name] = text
		}
	}
	if in.Binaries != nil {
		facts["release_binaries"] = in.Binaries
	}
	if in.Bundle != "" {
		facts["calico_manifest"] = path.Join(in.Bundle, "manifests", "calico.yaml")
	}
	if in.APIHost == "" {
		facts["api_endpoint_host"] = in.APIVIP
		if masters := byRole(in.Nodes, director.RoleMaster); in.APIVIP == "" && len(masters) == 1 {
			facts["api_endpoint_host"] = masters[0].Address
		}
	}
	if in.Aliases != nil {
		facts["host_aliases"] = aliases(in.Aliases)
	}
	return facts
}

// resolve returns the value of every variable of all hosts, and what is wrong.
func (s *schema) resolve(in Input) (map[string]any, []director.Field) {
	var fields []director.Field
	values := map[string]any{}
	for _, v := range s.list {
		if !v.Secret && !v.PerHost && v.AliasOf == "" {
			values[v.Name] = v.Default
		}
	}
	for name, value := range in.facts(s) {
		values[name] = value
	}
	fields = append(fields, s.override(values, in.Vars)...)
	// The tenth address of the service range, as in kubeadm, unless the cluster names another.
	if unset(values["cluster_dns_ip"]) {
		if ip := tenth(fmt.Sprint(values["service_cidr"])); ip != "" {
			values["cluster_dns_ip"] = ip
		}
	}
	// A host whose etcd needs a slower heartbeat needs the same patience everywhere else.
	if values["slow_host_factor"] == 0 {
		if beat, ok := values["etcd_heartbeat_interval_ms"].(int); ok {
			values["slow_host_factor"] = max(1, beat/100)
		}
	}
	for _, v := range s.list {
		if v.AliasOf != "" {
			values[v.Name] = values[v.AliasOf]
			continue
		}
		value, ours := values[v.Name]
		if !ours {
			continue
		}
		switch {
		case v.Required && unset(value):
			fields = append(fields, director.Field{Path: v.Name, Msg: "has no value", Hint: hint(v)})
		case value != nil && v.Type.mismatch(value) != "":
			fields = append(fields, director.Field{Path: v.Name, Msg: v.Type.mismatch(value), Hint: hint(v)})
		}
	}
	if len(byRole(in.Nodes, director.RoleMaster)) == 0 {
		fields = append(fields, director.Field{
			Path: "nodes", Msg: "there is no master", Hint: "a cluster has 1, 3 or 5",
		})
	}
	return values, fields
}

// override puts what the cluster's model sets over values.
func (s *schema) override(values, vars map[string]any) []director.Field {
	var fields []director.Field
	names := make([]string, 0, len(vars))
	for name := range vars {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		v, known := s.byName[name]
		at := "spec.vars." + name
		switch {
		case !known:
			fields = append(fields, director.Field{
				Path: at, Msg: "no playbook knows this variable",
				Hint: "known are " + strings.Join(s.overridable(), ", "),
			})
			continue
		case v.Secret:
			fields = append(fields, director.Field{
				Path: at, Msg: "is a secret that only the director sets", Hint: "remove it",
			})
			continue
		case !v.Override:
			fields = append(fields, director.Field{
				Path: at, Msg: "follows from the rest of the model", Hint: "remove it",
			})
			continue
		}
		if why := v.Type.mismatch(vars[name]); why != "" {
			fields = append(fields, director.Field{Path: at, Msg: why, Hint: hint(v)})
			continue
		}
		target := name
		if v.AliasOf != "" {
			target = v.AliasOf
			if other, both := vars[target]; both && other != vars[name] {
				fields = append(fields, director.Field{
					Path: at, Msg: "differs from spec.vars." + target,
					Hint: "they are one variable: keep one",
				})
				continue
			}
		}
		values[target] = whole(v.Type, vars[name])
	}
	return fields
}

// whole makes a number that came out of JSON an int again.
func whole(t Type, value any) any {
	if f, ok := value.(float64); ok && t == TypeInt {
		return int(f)
	}
	return value
}

func hint(v Variable) string {
	text := strings.TrimSuffix(v.Doc, ".")
	if v.Override {
		text += "; may be set in spec.vars"
	}
	return text
}

var (
	nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	jinja    = regexp.MustCompile(`\{[{%#]`)
	taintRE  = regexp.MustCompile(
		`^([A-Za-z0-9][-A-Za-z0-9_./]*)(?:=([-A-Za-z0-9_.]*))?:(NoSchedule|PreferNoSchedule|NoExecute)$`,
	)
)

func checkNodes(nodes []Node) []director.Field {
	var fields []director.Field
	bad := func(n Node, format string, args ...any) {
		fields = append(fields, director.Field{Path: "nodes." + n.Name, Msg: fmt.Sprintf(format, args...)})
	}
	seen := map[string]bool{}
	for _, n := range nodes {
		if !nodeName.MatchString(n.Name) {
			bad(n, "the name is no DNS label")
		}
		if addr, err := netip.ParseAddr(n.Address); err != nil || !addr.IsValid() {
			bad(n, "the address %q is no IP address", n.Address)
		}
		if n.Role != director.RoleMaster && n.Role != director.RoleWorker {
			bad(n, "the role %q is neither master nor worker", n.Role)
		}
		for _, twice := range []string{n.Name, n.Address} {
			if seen[twice] {
				bad(n, "%s is there twice", twice)
			}
			seen[twice] = true
		}
		for _, i := range n.Interfaces {
			if p, err := netip.ParsePrefix(i.Address); err != nil || !p.IsValid() {
				bad(n, "the address %q of its adapter for %s has no prefix length", i.Address, i.Role)
			} else if at := i.Network + " " + p.Addr().String(); seen[at] {
				bad(n, "%s is on network %s twice", p.Addr(), i.Network)
			} else {
				seen[at] = true
			}
		}
		for _, t := range n.Taints {
			if !taintRE.MatchString(t) {
				bad(n, "the taint %q is not of the form key=value:Effect", t)
			}
		}
	}
	return fields
}

// overlay returns the mapping all with the entries of own over it.
func overlay(all any, own map[string]string) map[string]any {
	out := map[string]any{}
	switch all := all.(type) {
	case map[string]any:
		maps.Copy(out, all)
	case map[string]string:
		for name, value := range all {
			out[name] = value
		}
	}
	for name, value := range own {
		out[name] = value
	}
	return out
}

func byRole(nodes []Node, role director.Role) []Node {
	var out []Node
	for _, n := range nodes {
		if n.Role == role {
			out = append(out, n)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// tenth returns the tenth address of a range, empty when there is none.
func tenth(cidr string) string {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ""
	}
	addr := prefix.Masked().Addr()
	for range 10 {
		addr = addr.Next()
	}
	if !addr.IsValid() || !prefix.Contains(addr) {
		return ""
	}
	return addr.String()
}

// quoted returns text as a double-quoted YAML scalar. It is for text of our own, which Ansible may evaluate.
func quoted(text string) string {
	raw, _ := json.Marshal(text) // JSON is YAML; a string cannot fail
	return string(raw)
}

// endpoint returns where the registry answers: another registry, set by the model, answers under its own name.
func endpoint(in Input) string {
	if _, other := in.Vars["docker_registry_host"]; other {
		return ""
	}
	return in.RegistryEndpoint
}
