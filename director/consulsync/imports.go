package consulsync

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Instance is an instance of a service of Consul.
type Instance struct {
	Address string // of the service, or else of its node
	Port    int
	Passing bool   // every check of the instance and of its node passes
	Cluster string // the uid of the cluster that exported it; empty for all others
}

const (
	slicePort    = "consul" // the name of the one port of an imported Service
	sliceSize    = 100      // endpoints of one slice, as Kubernetes' own controller does
	maxInstances = 5000     // of one import
)

// Usable returns the instances that can be endpoints of the import, sorted and without doubles, and how many cannot:
// those without an IP address that pods reach, those outside of the import's networks, and those beyond a bound. What
// this cluster exported itself is left out of both.
func (i Import) Usable(identity Identity, all []Instance) (usable []Instance, skipped int) {
	for _, n := range all {
		if n.Cluster == identity.Cluster {
			continue
		}
		ip, err := netip.ParseAddr(n.Address)
		if err != nil || !reachable(n.Address) || n.Port < 1 || n.Port > 65535 || !i.allows(ip.Unmap()) {
			skipped++
			continue
		}
		n.Address = ip.Unmap().String()
		usable = append(usable, n)
	}
	// Of two registrations of one address and port, one that passes is enough.
	slices.SortFunc(usable, func(a, b Instance) int {
		if c := compareInstances(a, b); c != 0 || a.Passing == b.Passing {
			return c
		}
		if a.Passing {
			return -1
		}
		return 1
	})
	usable = slices.CompactFunc(usable, func(a, b Instance) bool { return compareInstances(a, b) == 0 })
	if len(usable) > maxInstances {
		skipped += len(usable) - maxInstances
		usable = usable[:maxInstances]
	}
	return usable, skipped
}

func compareInstances(a, b Instance) int {
	x, y := netip.MustParseAddr(a.Address), netip.MustParseAddr(b.Address)
	if c := x.Compare(y); c != 0 {
		return c
	}
	return a.Port - b.Port
}

func (i Import) allows(ip netip.Addr) bool {
	return len(i.Networks) == 0 || slices.ContainsFunc(i.Networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// NewService returns the Service of the import, without a selector.
func (i Import) NewService(identity Identity) *corev1.Service {
	dual := corev1.IPFamilyPolicyPreferDualStack
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.Namespace, Name: i.Name, Labels: Labels(identity),
			Annotations: map[string]string{AnnotationService: i.Service},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: &dual,
			Ports: []corev1.ServicePort{i.port()},
		},
	}
}

func (i Import) port() corev1.ServicePort {
	return corev1.ServicePort{
		Name: slicePort, Protocol: corev1.ProtocolTCP, Port: int32(i.Port), TargetPort: intstr.FromInt(i.Port),
	}
}

// Adjust brings an existing Service of the import to what is wanted and says whether it changed. What others added,
// such as further labels, stays.
func (i Import) Adjust(s *corev1.Service) bool {
	changed := false
	if s.Annotations[AnnotationService] != i.Service {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[AnnotationService] = i.Service
		changed = true
	}
	if len(s.Spec.Selector) > 0 { // with one, Kubernetes would make other endpoints
		s.Spec.Selector = nil
		changed = true
	}
	want := i.port()
	if p := s.Spec.Ports; len(p) != 1 || p[0].Name != want.Name || p[0].Port != want.Port ||
		p[0].Protocol != want.Protocol || p[0].TargetPort != want.TargetPort {
		s.Spec.Ports = []corev1.ServicePort{want}
		changed = true
	}
	return changed
}

// Labels returns the labels of what the cluster imported.
func Labels(identity Identity) map[string]string {
	return map[string]string{LabelManagedBy: ManagedBy, LabelCluster: identity.Cluster}
}

// Imported says whether labels are those of something that the cluster imported.
func Imported(identity Identity, labels map[string]string) bool {
	return labels[LabelManagedBy] == ManagedBy && labels[LabelCluster] == identity.Cluster
}

// Slices returns the EndpointSlices of an import with the instances, which Usable returned. They are owned by the
// Service, so that Kubernetes deletes them with it. The same instances give the same slices.
func (i Import) Slices(identity Identity, service *corev1.Service, instances []Instance) []*discoveryv1.EndpointSlice {
	groups := map[string][]Instance{}
	for _, n := range instances {
		family := "v4"
		if netip.MustParseAddr(n.Address).Is6() {
			family = "v6"
		}
		key := fmt.Sprintf("%s-consul-%s-%d", i.Name, family, n.Port)
		groups[key] = append(groups[key], n)
	}
	var all []*discoveryv1.EndpointSlice
	for key, group := range groups {
		n := 0
		for chunk := range slices.Chunk(group, sliceSize) {
			all = append(all, i.slice(identity, service, fmt.Sprintf("%s-%d", key, n), chunk))
			n++
		}
	}
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (i Import) slice(
	identity Identity, service *corev1.Service, name string, chunk []Instance,
) *discoveryv1.EndpointSlice {
	labels := Labels(identity)
	labels[discoveryv1.LabelServiceName] = i.Name
	labels[discoveryv1.LabelManagedBy] = SliceManager
	port, protocol, portName := int32(chunk[0].Port), corev1.ProtocolTCP, slicePort
	family := discoveryv1.AddressTypeIPv4
	if netip.MustParseAddr(chunk[0].Address).Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.Namespace, Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID,
			}},
		},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Protocol: &protocol, Port: &port}},
	}
	for _, n := range chunk {
		ready := true
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{n.Address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}
