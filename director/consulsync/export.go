package consulsync

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// World is what a cluster has, as far as the export depends on it.
type World struct {
	Services  []*corev1.Service
	Ingresses []*networkingv1.Ingress
	Nodes     []Node
	Ready     map[string]Readiness // of the Services with a ready endpoint, by namespace/name
}

// Node is a node that can be reached.
type Node struct {
	Name      string
	Addresses []string // internal ones
}

// Readiness says which nodes have a ready endpoint of a Service. It is empty, and not nil, if no endpoint names one.
type Readiness map[string]bool

// Object names an object of the cluster, for events and messages.
type Object struct {
	Kind, Namespace, Name, UID string
}

// Key returns kind/namespace/name.
func (o Object) Key() string { return strings.ToLower(o.Kind) + "/" + o.Namespace + "/" + o.Name }

// Refusal is an object that cannot be synced as it is, and why.
type Refusal struct {
	Object  Object
	Reason  string // a word for events, such as InvalidName
	Message string // what is wrong and what to do
}

// Reasons of refusals.
const (
	ReasonInvalid   = "InvalidAnnotation"
	ReasonName      = "InvalidName"
	ReasonTaken     = "NameTaken"
	ReasonReserved  = "NameReserved"
	ReasonNoAddress = "NoAddress"
	ReasonTooMany   = "TooManyAddresses"
	ReasonExists    = "NotImported"
)

// Bounds of what one object may bring into Consul.
const (
	maxEntries   = 256 // addresses of one object
	maxTags      = 32
	maxMeta      = 32
	maxMetaKey   = 64
	maxMetaValue = 512
)

// candidate is an object that is to be exported.
type candidate struct {
	object    Object
	created   metav1.Time
	name      string
	addresses []string
	port      int
	tags      []string
	meta      map[string]string
	passing   func(address string) bool
}

// Wanted returns the entries that Consul should have, sorted by id, and the objects that were refused. What was
// imported is never in it. A name in Consul belongs to one namespace: to that of the oldest object that wants it, so
// that no other namespace can take it over.
func Wanted(identity Identity, cfg Export, w World) ([]Entry, []Refusal) {
	x := exporter{cfg: cfg, world: w}
	for _, s := range w.Services {
		x.service(s)
	}
	for _, i := range w.Ingresses {
		x.ingress(i)
	}
	x.settleNames()
	var entries []Entry
	for _, c := range x.candidates {
		entries = append(entries, c.entries(identity)...)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
	entries = slices.CompactFunc(entries, func(a, b Entry) bool { return a.ID == b.ID })
	slices.SortFunc(x.refusals, func(a, b Refusal) int { return strings.Compare(a.Object.Key(), b.Object.Key()) })
	return entries, x.refusals
}

type exporter struct {
	cfg        Export
	world      World
	candidates []candidate
	refusals   []Refusal
}

func (x *exporter) refuse(o Object, reason, format string, args ...any) {
	x.refusals = append(x.refusals, Refusal{Object: o, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// wants says whether an object is exported: by its annotation, or else because all of its type are.
func (x *exporter) wants(o Object, annotations map[string]string, byType bool) bool {
	switch v, ok := annotations[AnnotationExport]; {
	case !ok:
		return byType
	case v == "true":
		return byType || x.cfg.Annotated
	case v == "false":
		return false
	default:
		x.refuse(o, ReasonInvalid, "%s is %s; write true or false", AnnotationExport, quote(v))
		return false
	}
}

func (x *exporter) service(s *corev1.Service) {
	// Someone else's annotation cannot send what was imported back.
	if s.Labels[LabelManagedBy] == ManagedBy {
		return
	}
	o := Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)}
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if s.DeletionTimestamp != nil || !x.wants(o, s.Annotations, balanced && x.cfg.LoadBalancer) {
		return
	}
	c, ok := x.candidate(o, s.ObjectMeta)
	if !ok {
		return
	}
	port, ok := servicePort(s)
	if !ok {
		x.refuse(o, ReasonInvalid, "%s is %s, but the Service has no such port; write the name or number of one",
			AnnotationPort, quote(s.Annotations[AnnotationPort]))
		return
	}
	c.port = int(port.Port)
	ready := x.world.Ready[s.Namespace+"/"+s.Name]
	c.passing = func(string) bool { return ready != nil }
	switch {
	case balanced:
		for _, i := range s.Status.LoadBalancer.Ingress {
			c.addresses = append(c.addresses, cmp.Or(i.IP, i.Hostname))
		}
	case len(s.Spec.ExternalIPs) > 0:
		c.addresses = slices.Clone(s.Spec.ExternalIPs)
	case s.Spec.Type == corev1.ServiceTypeNodePort:
		c.port = int(port.NodePort)
		x.onNodes(s, &c, ready)
	default:
		x.refuse(o, ReasonNoAddress, "a Service of type %s has no address outside of the cluster; "+
			"use LoadBalancer, NodePort or externalIPs", s.Spec.Type)
		return
	}
	x.add(c)
}

// onNodes gives c the addresses of the nodes. With the policy Local only those with an endpoint answer.
func (x *exporter) onNodes(s *corev1.Service, c *candidate, ready Readiness) {
	node := map[string]string{}
	for _, n := range x.world.Nodes {
		for _, a := range n.Addresses {
			c.addresses = append(c.addresses, a)
			node[a] = n.Name
		}
	}
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		c.passing = func(address string) bool { return ready[node[address]] }
	}
}

func (x *exporter) ingress(i *networkingv1.Ingress) {
	o := Object{Kind: "Ingress", Namespace: i.Namespace, Name: i.Name, UID: string(i.UID)}
	if i.DeletionTimestamp != nil || !x.wants(o, i.Annotations, x.cfg.Ingress) {
		return
	}
	c, ok := x.candidate(o, i.ObjectMeta)
	if !ok {
		return
	}
	c.port = 80
	if len(i.Spec.TLS) > 0 {
		c.port = 443
	}
	if v, ok := i.Annotations[AnnotationPort]; ok {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil || n == 0 {
			x.refuse(o, ReasonInvalid, "%s is %s; write a number from 1 to 65535", AnnotationPort, quote(v))
			return
		}
		c.port = int(n)
	}
	for _, a := range i.Status.LoadBalancer.Ingress {
		c.addresses = append(c.addresses, cmp.Or(a.IP, a.Hostname))
	}
	ready := slices.ContainsFunc(backends(i), func(name string) bool {
		return x.world.Ready[i.Namespace+"/"+name] != nil
	})
	c.passing = func(string) bool { return ready }
	x.add(c)
}

// backends returns the names of the Services that an Ingress leads to.
func backends(i *networkingv1.Ingress) []string {
	var names []string
	add := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil {
			names = append(names, b.Service.Name)
		}
	}
	add(i.Spec.DefaultBackend)
	for _, r := range i.Spec.Rules {
		if r.HTTP == nil {
			continue
		}
		for _, p := range r.HTTP.Paths {
			add(&p.Backend)
		}
	}
	return names
}

// candidate reads what the annotations say.
func (x *exporter) candidate(o Object, m metav1.ObjectMeta) (candidate, bool) {
	c := candidate{object: o, created: m.CreationTimestamp, name: o.Name + "-" + o.Namespace}
	given, ok := m.Annotations[AnnotationName]
	if ok {
		c.name = given
	}
	switch {
	case !label.MatchString(c.name) && ok:
		x.refuse(o, ReasonName, "%s is %s, which is no DNS label; use lower case letters, digits and hyphens, "+
			"63 at most", AnnotationName, quote(given))
		return c, false
	case !label.MatchString(c.name):
		x.refuse(o, ReasonName, "%s is no DNS label, and so no name in Consul; set %s", quote(c.name), AnnotationName)
		return c, false
	case !x.cfg.allows(c.name):
		x.refuse(
			o,
			ReasonReserved,
			"the name %s is not for this cluster in Consul; set %s to another one",
			c.name,
			AnnotationName,
		)
		return c, false
	}
	if c.tags, ok = x.tags(o, m.Annotations[AnnotationTags]); !ok {
		return c, false
	}
	c.meta, ok = x.meta(o, m.Annotations)
	return c, ok
}

// allows tells whether objects of the cluster may take the name. Those that begin with kaas- are the director's.
func (e Export) allows(name string) bool {
	if name == "consul" || strings.HasPrefix(name, "kaas-") || slices.Contains(e.Reserved, name) {
		return false
	}
	return len(e.Names) == 0 || slices.ContainsFunc(e.Names, func(allowed string) bool {
		begin, all := strings.CutSuffix(allowed, "*")
		return name == allowed || all && strings.HasPrefix(name, begin)
	})
}

func (x *exporter) tags(o Object, text string) ([]string, bool) {
	var tags []string
	for t := range strings.SplitSeq(text, ",") {
		if t = strings.TrimSpace(t); t == "" {
			continue
		}
		if !tag.MatchString(t) {
			x.refuse(o, ReasonInvalid, "%s has the tag %s; use letters, digits and . _ : / = -, 128 at most",
				AnnotationTags, quote(t))
			return nil, false
		}
		tags = append(tags, t)
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	if len(tags) > maxTags {
		x.refuse(o, ReasonInvalid, "%s has %d tags; %d are allowed", AnnotationTags, len(tags), maxTags)
		return nil, false
	}
	return tags, true
}

func (x *exporter) meta(o Object, annotations map[string]string) (map[string]string, bool) {
	meta := map[string]string{}
	for _, a := range slices.Sorted(maps.Keys(annotations)) {
		key, ok := strings.CutPrefix(a, AnnotationMeta)
		if !ok {
			continue
		}
		value := annotations[a]
		reserved := strings.HasPrefix(key, "kaas-") || strings.HasPrefix(key, "consul-")
		switch {
		case !metaKey(key) || reserved:
			x.refuse(o, ReasonInvalid, "%s: %s is no key of meta; use letters, digits, - and _, %d at most, and do "+
				"not begin with kaas- or consul-", AnnotationMeta, quote(key), maxMetaKey)
			return nil, false
		case len(value) > maxMetaValue || !printable(value):
			x.refuse(o, ReasonInvalid, "%s%s has a value that is too long or not text; use %d printable bytes at most",
				AnnotationMeta, key, maxMetaValue)
			return nil, false
		}
		meta[key] = value
	}
	if len(meta) > maxMeta {
		x.refuse(o, ReasonInvalid, "there are %d annotations %sKEY; %d are allowed", len(meta), AnnotationMeta, maxMeta)
		return nil, false
	}
	return meta, true
}

func metaKey(s string) bool {
	return s != "" && len(s) <= maxMetaKey && !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || (!unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_')
	})
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// servicePort returns the port that is exported.
func servicePort(s *corev1.Service) (corev1.ServicePort, bool) {
	want, ok := s.Annotations[AnnotationPort]
	for _, p := range s.Spec.Ports {
		if !ok || p.Name == want || strconv.Itoa(int(p.Port)) == want {
			return p, true
		}
	}
	return corev1.ServicePort{}, false
}

// add keeps a candidate with good addresses. One without any waits for its load balancer.
func (x *exporter) add(c candidate) {
	slices.Sort(c.addresses)
	c.addresses = slices.Compact(c.addresses)
	if len(c.addresses) > maxEntries {
		x.refuse(c.object, ReasonTooMany, "it has %d addresses; %d are allowed", len(c.addresses), maxEntries)
		return
	}
	for _, a := range c.addresses {
		if !reachable(a) {
			x.refuse(c.object, ReasonNoAddress, "%s is no address that others reach it at", quote(a))
			return
		}
	}
	if len(c.addresses) > 0 {
		x.candidates = append(x.candidates, c)
	}
}

// reachable says whether another machine could reach the address or host name.
func reachable(address string) bool {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return len(address) <= 253 && hostname.MatchString(address)
	}
	ip = ip.Unmap()
	return !ip.IsLoopback() && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast() && ip.Zone() == ""
}

// settleNames removes the candidates whose name belongs to another namespace.
func (x *exporter) settleNames() {
	slices.SortFunc(x.candidates, func(a, b candidate) int {
		return cmp.Or(a.created.Compare(b.created.Time), strings.Compare(a.object.Key(), b.object.Key()))
	})
	holder := map[string]Object{}
	x.candidates = slices.DeleteFunc(x.candidates, func(c candidate) bool {
		h, ok := holder[c.name]
		if !ok {
			holder[c.name] = c.object
			return false
		}
		if h.Namespace == c.object.Namespace {
			return false
		}
		// The other namespace is not named: its objects may be none of this one's business.
		x.refuse(c.object, ReasonTaken, "the name %s belongs to an older object of another namespace; set %s", c.name,
			AnnotationName)
		return true
	})
}

func (c candidate) entries(identity Identity) []Entry {
	meta := identity.Meta()
	meta[MetaKey] = c.object.Key()
	maps.Copy(meta, c.meta)
	var all []Entry
	for _, a := range c.addresses {
		all = append(all, Entry{
			ID: strings.Join([]string{
				strings.ToLower(c.object.Kind), c.object.Namespace, c.object.Name, strconv.Itoa(c.port), a,
			}, ":"),
			Name: c.name, Address: a, Port: c.port, Tags: c.tags, Meta: meta, Passing: c.passing(a),
		})
	}
	return all
}

// quote shows a text of someone else's, shortened.
func quote(s string) string {
	const limit = 80
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return strconv.Quote(s)
}
