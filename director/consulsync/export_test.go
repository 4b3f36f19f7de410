package consulsync

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	one = Identity{Owner: "director-1", Cluster: "c1"}
	two = Identity{Owner: "director-1", Cluster: "c2"}

	everything = Export{LoadBalancer: true, Ingress: true, Annotated: true, Reserved: []string{"vault"}}
)

// service makes a Service with a port 80, named web, whose load balancer has the addresses.
func service(namespace, name string, addresses ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{
				{Name: "web", Port: 80, NodePort: 30080},
				{Name: "admin", Port: 9000, NodePort: 30900},
			},
		},
	}
	for _, a := range addresses {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	return s
}

// with sets annotations and returns s.
func with(s *corev1.Service, pairs ...string) *corev1.Service {
	for i := 0; i < len(pairs); i += 2 {
		s.Annotations[pairs[i]] = pairs[i+1]
	}
	return s
}

func lines(entries []Entry) []string {
	out := []string{}
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%s %s %s:%d %v %v", e.ID, e.Name, e.Address, e.Port, e.Tags, e.Passing))
	}
	return out
}

func TestWanted(t *testing.T) {
	t.Parallel()
	port := func(s *corev1.Service) *corev1.Service { s.Spec.Type = corev1.ServiceTypeNodePort; return s }
	local := port(service("default", "local"))
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	external := service("default", "ext")
	external.Spec.Type, external.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, []string{"192.0.2.9"}
	imported := with(service("default", "db", "10.0.0.99"), AnnotationExport, "true")
	imported.Labels = Labels(one)
	other := with(service("default", "db2", "10.0.0.98"), AnnotationExport, "true")
	other.Labels = Labels(two)
	named := service("default", "named")
	named.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.org"}}
	ending := service("default", "ending", "10.0.0.7")
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	w := World{
		Services: []*corev1.Service{
			with(service("shop", "web", "10.0.0.1", "2001:db8::1"), AnnotationTags, "b, a,b",
				AnnotationMeta+"team", "blue"),
			with(service("shop", "admin", "10.0.0.2"), AnnotationPort, "admin", AnnotationName, "shop-control"),
			with(service("shop", "number", "10.0.0.3"), AnnotationPort, "9000"),
			with(service("shop", "hidden", "10.0.0.4"), AnnotationExport, "false"),
			service("shop", "pending"), imported, other, named, ending,
			with(port(service("default", "np")), AnnotationExport, "true"),
			with(local, AnnotationExport, "true"), with(external, AnnotationExport, "true"),
			port(service("default", "quiet")), // no annotation
		},
		Ingresses: []*networkingv1.Ingress{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "site"},
			Spec: networkingv1.IngressSpec{
				TLS: []networkingv1.IngressTLS{{}},
				Rules: []networkingv1.IngressRule{
					{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
						Paths: []networkingv1.HTTPIngressPath{
							{Backend: networkingv1.IngressBackend{
								Service: &networkingv1.IngressServiceBackend{Name: "web"},
							}},
						},
					}}},
				},
			},
			Status: networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{
				Ingress: []networkingv1.IngressLoadBalancerIngress{{IP: "10.0.0.5"}},
			}},
		}},
		Nodes: []Node{{Name: "w1", Addresses: []string{"172.16.0.1"}}, {Name: "w2", Addresses: []string{"172.16.0.2"}}},
		Ready: map[string]Readiness{"shop/web": {}, "default/local": {"w2": true}, "default/np": {"w1": true}},
	}
	entries, refusals := Wanted(one, everything, w)
	want := []string{
		"ingress:shop:site:443:10.0.0.5 site-shop 10.0.0.5:443 [] true",
		"service:default:ext:80:192.0.2.9 ext-default 192.0.2.9:80 [] false",
		"service:default:local:30080:172.16.0.1 local-default 172.16.0.1:30080 [] false",
		"service:default:local:30080:172.16.0.2 local-default 172.16.0.2:30080 [] true",
		"service:default:named:80:lb.example.org named-default lb.example.org:80 [] false",
		"service:default:np:30080:172.16.0.1 np-default 172.16.0.1:30080 [] true",
		"service:default:np:30080:172.16.0.2 np-default 172.16.0.2:30080 [] true",
		"service:shop:admin:9000:10.0.0.2 shop-control 10.0.0.2:9000 [] false",
		"service:shop:number:9000:10.0.0.3 number-shop 10.0.0.3:9000 [] false",
		"service:shop:web:80:10.0.0.1 web-shop 10.0.0.1:80 [a b] true",
		"service:shop:web:80:2001:db8::1 web-shop 2001:db8::1:80 [a b] true",
	}
	if diff := cmp.Diff(want, lines(entries)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if len(refusals) > 0 {
		t.Errorf("refusals = %v, want none", refusals)
	}
	meta := map[string]string{MetaOwner: "director-1", MetaCluster: "c1", MetaKey: "service/shop/web", "team": "blue"}
	if diff := cmp.Diff(meta, entries[9].Meta); diff != "" {
		t.Errorf("meta (-want +got):\n%s", diff)
	}
	entries, _ = Wanted(one, Export{Annotated: true}, w)
	if got := len(entries); got != 5 {
		t.Errorf("with annotated alone there are %d entries, want the 5 of three Services: %v", got, lines(entries))
	}
	if entries, _ = Wanted(one, Export{}, w); len(entries) > 0 {
		t.Errorf("with the export off there are %v", lines(entries))
	}
}

func TestWantedRefuses(t *testing.T) {
	t.Parallel()
	inside := with(service("a", "s"), AnnotationExport, "true")
	inside.Spec.Type = corev1.ServiceTypeClusterIP
	many := service("a", "s")
	for i := range maxEntries + 1 {
		many.Status.LoadBalancer.Ingress = append(many.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: fmt.Sprintf("10.0.%d.%d", i/256, i%256)})
	}
	noPort := service("a", "s", "10.0.0.1")
	noPort.Spec.Ports = nil
	tooManyTags := make([]string, maxTags+1)
	for i := range tooManyTags {
		tooManyTags[i] = fmt.Sprint("t", i)
	}
	for name, c := range map[string]struct {
		service *corev1.Service
		reason  string
	}{
		"a name with a dot": {with(service("a", "s", "10.0.0.1"), AnnotationName, "web.shop"), ReasonName},
		"upper case":        {with(service("a", "s", "10.0.0.1"), AnnotationName, "Web"), ReasonName},
		"a path":            {with(service("a", "s", "10.0.0.1"), AnnotationName, "../../v1/acl"), ReasonName},
		"an empty name":     {with(service("a", "s", "10.0.0.1"), AnnotationName, ""), ReasonName},
		"a long default":    {service(strings.Repeat("n", 40), strings.Repeat("s", 40), "10.0.0.1"), ReasonName},
		"Consul's own name": {with(service("a", "s", "10.0.0.1"), AnnotationName, "consul"), ReasonReserved},
		"a name of the director": {
			with(service("a", "s", "10.0.0.1"), AnnotationName, "kaas-api-demo"),
			ReasonReserved,
		},
		"a reserved name":    {with(service("a", "s", "10.0.0.1"), AnnotationName, "vault"), ReasonReserved},
		"a tag with a space": {with(service("a", "s", "10.0.0.1"), AnnotationTags, "a b"), ReasonInvalid},
		"too many tags": {
			with(service("a", "s", "10.0.0.1"), AnnotationTags, strings.Join(tooManyTags, ",")),
			ReasonInvalid,
		},
		"meta of ours": {
			with(service("a", "s", "10.0.0.1"), AnnotationMeta+"kaas-owner", "x"),
			ReasonInvalid,
		},
		"a line in meta": {with(service("a", "s", "10.0.0.1"), AnnotationMeta+"x", "a\nb"), ReasonInvalid},
		"long meta": {with(service("a", "s", "10.0.0.1"), AnnotationMeta+"x",
			strings.Repeat("a", maxMetaValue+1)), ReasonInvalid},
		"a key with a dot":        {with(service("a", "s", "10.0.0.1"), AnnotationMeta+"x.y", "a"), ReasonInvalid},
		"a port that is not":      {with(service("a", "s", "10.0.0.1"), AnnotationPort, "http"), ReasonInvalid},
		"no port at all":          {noPort, ReasonInvalid},
		"neither true nor false":  {with(service("a", "s", "10.0.0.1"), AnnotationExport, "yes"), ReasonInvalid},
		"inside only":             {inside, ReasonNoAddress},
		"loopback":                {service("a", "s", "127.0.0.1"), ReasonNoAddress},
		"link-local":              {service("a", "s", "fe80::1"), ReasonNoAddress},
		"metadata of clouds":      {service("a", "s", "169.254.169.254"), ReasonNoAddress},
		"mapped loopback":         {service("a", "s", "::ffff:127.0.0.1"), ReasonNoAddress},
		"no address and no name":  {service("a", "s", "10.0.0.1 ; x"), ReasonNoAddress},
		"more than a few of them": {many, ReasonTooMany},
	} {
		entries, refusals := Wanted(one, everything, World{Services: []*corev1.Service{c.service}})
		if len(entries) > 0 || len(refusals) != 1 || refusals[0].Reason != c.reason {
			t.Errorf("%s: entries %v, refusals %+v, want the reason %s", name, lines(entries), refusals, c.reason)
		}
	}
}

// A name belongs to the namespace of the oldest object, whatever the order of the list.
func TestNamesBelongToANamespace(t *testing.T) {
	t.Parallel()
	at := func(s *corev1.Service, seconds int64) *corev1.Service {
		s.CreationTimestamp = metav1.Time{Time: time.Unix(seconds, 0)}
		return s
	}
	thief := at(with(service("evil", "x", "10.0.0.66"), AnnotationName, "pay-shop"), 20)
	owner := at(service("shop", "pay", "10.0.0.1"), 10)
	sibling := at(with(service("shop", "pay2", "10.0.0.2"), AnnotationName, "pay-shop"), 30)
	for _, order := range [][]*corev1.Service{{thief, owner, sibling}, {sibling, owner, thief}} {
		entries, refusals := Wanted(one, everything, World{Services: order})
		want := []string{
			"service:shop:pay2:80:10.0.0.2 pay-shop 10.0.0.2:80 [] false",
			"service:shop:pay:80:10.0.0.1 pay-shop 10.0.0.1:80 [] false",
		}
		if diff := cmp.Diff(want, lines(entries)); diff != "" {
			t.Errorf("entries (-want +got):\n%s", diff)
		}
		if len(refusals) != 1 || refusals[0].Object.Key() != "service/evil/x" || refusals[0].Reason != ReasonTaken ||
			strings.Contains(refusals[0].Message, "namespace shop") {
			t.Errorf("refusals = %+v, want one of evil/x that does not name the other namespace", refusals)
		}
	}
}

// Names that the cluster may take are those of its configuration, and never the director's.
func TestAllowedNames(t *testing.T) {
	t.Parallel()
	some := Export{Names: []string{"web", "shop-*", "kaas-*"}, Reserved: []string{"shop-db"}}
	for name, want := range map[string]bool{
		"web": true, "web-2": false, "shop-a": true, "shop": false, "shop-db": false, "kaas-api-demo": false,
	} {
		if got := some.allows(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if !(Export{}).allows("anything") || (Export{}).allows("kaas-director") {
		t.Error("without a list every name is allowed but those of the director")
	}
}
