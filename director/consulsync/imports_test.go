package consulsync

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

var db = Import{Service: "db", Namespace: "default", Name: "db", Port: 5432}

func TestUsable(t *testing.T) {
	t.Parallel()
	all := []Instance{
		{Address: "10.0.0.2", Port: 5432, Passing: true},
		{Address: "10.0.0.1", Port: 5432},
		{Address: "10.0.0.1", Port: 5432, Passing: true}, // registered twice
		{Address: "::ffff:10.0.0.3", Port: 5432, Passing: true},
		{Address: "2001:db8::1", Port: 5433, Passing: true},
		{Address: "10.0.0.9", Port: 80, Passing: true, Cluster: "c1"}, // this cluster's own export
		{Address: "10.0.0.8", Port: 80, Passing: true, Cluster: "c2"},
		{Address: "db.example", Port: 5432, Passing: true},
		{Address: "127.0.0.1", Port: 5432, Passing: true},
		{Address: "169.254.1.1", Port: 5432, Passing: true},
		{Address: "10.0.0.4", Port: 0, Passing: true},
		{Address: "10.0.0.4", Port: 70000, Passing: true},
	}
	got, skipped := db.Usable(one, all)
	want := []Instance{
		{Address: "10.0.0.1", Port: 5432, Passing: true},
		{Address: "10.0.0.2", Port: 5432, Passing: true},
		{Address: "10.0.0.3", Port: 5432, Passing: true},
		{Address: "10.0.0.8", Port: 80, Passing: true, Cluster: "c2"},
		{Address: "2001:db8::1", Port: 5433, Passing: true},
	}
	if diff := cmp.Diff(want, got); diff != "" || skipped != 5 {
		t.Errorf("skipped %d, want 5; instances (-want +got):\n%s", skipped, diff)
	}
	narrow := db
	narrow.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}
	if got, _ := narrow.Usable(one, all); len(got) != 1 || got[0].Address != "10.0.0.2" {
		t.Errorf("with a network of one address: %v", got)
	}
	many := make([]Instance, maxInstances+1)
	for i := range many {
		many[i] = Instance{Address: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), Port: 1}
	}
	if got, skipped := db.Usable(one, many); len(got) != maxInstances || skipped != 1 {
		t.Errorf("of %d instances %d are used and %d skipped", len(many), len(got), skipped)
	}
}

func TestSlices(t *testing.T) {
	t.Parallel()
	var all []Instance
	for i := range sliceSize + 1 {
		all = append(all, Instance{Address: fmt.Sprintf("10.0.1.%d", i+1), Port: 5432, Passing: true})
	}
	all = append(all, Instance{Address: "10.0.0.1", Port: 6000}, Instance{Address: "2001:db8::1", Port: 5432})
	usable, _ := db.Usable(one, all)
	service := db.NewService(one)
	service.UID = "u1"
	var got []string
	for _, s := range db.Slices(one, service, usable) {
		got = append(got, fmt.Sprintf("%s %s %d %d", s.Name, s.AddressType, *s.Ports[0].Port, len(s.Endpoints)))
		if s.Labels[discoveryv1.LabelServiceName] != "db" || !Imported(one, s.Labels) || Imported(two, s.Labels) ||
			s.OwnerReferences[0].UID != "u1" || *s.Ports[0].Name != service.Spec.Ports[0].Name {
			t.Errorf("slice %s: %+v", s.Name, s.ObjectMeta)
		}
	}
	want := []string{
		"db-consul-v4-5432-0 IPv4 5432 100", "db-consul-v4-5432-1 IPv4 5432 1", "db-consul-v4-6000-0 IPv4 6000 1",
		"db-consul-v6-5432-0 IPv6 5432 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
}

func TestAdjust(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Service){
		"a selector":      func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} },
		"another port":    func(s *corev1.Service) { s.Spec.Ports[0].Port = 1 },
		"one port more":   func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, s.Spec.Ports[0]) },
		"another service": func(s *corev1.Service) { s.Annotations = nil },
	} {
		s := db.NewService(one)
		s.Spec.Ports[0].NodePort = 0
		if db.Adjust(s) {
			t.Fatal("a new Service is not as it should be")
		}
		change(s)
		if !db.Adjust(s) || db.Adjust(s) {
			t.Errorf("%s: it is not corrected, or not in one go", name)
		}
	}
}
