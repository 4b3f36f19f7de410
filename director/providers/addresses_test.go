package providers

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/servicetest"
)

const tight = `apiVersion: kaas/v1
kind: Network
metadata: {name: net}
spec:
  provider: lab
  cidr: 10.64.0.0/16
  dns: [10.64.0.2, 192.0.2.53]
  routes: [{to: 10.200.0.0/16, via: 10.64.0.3}]
  pool: {from: 10.64.1.0, to: 10.64.1.9, exclude: [10.64.1.4, 10.64.1.6-10.64.1.7]}
---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: c000}
spec:
  release: k8s
  provider: lab
  image: node
  network: net
  api: {vip: 10.64.0.9}
  masters: {interfaces: [{role: internal, addresses: [10.64.0.8]}]}
  workers: [{name: w, count: 1}]
`

func linesOf(v AddressView) []string {
	var out []string
	for _, u := range v.Items {
		out = append(out, fmt.Sprintf("%s %s %t %s %s", u.Range, u.Use, u.Pool, u.Cluster, u.Machine))
	}
	return out
}

// Every use of an address is told with whose it is, by address, and the free ones of the pool are counted.
func TestAddresses(t *testing.T) {
	t.Parallel()
	l := servicetest.Open(t, 1, 2)
	ctx := t.Context()
	rooms := NewCapacity(l.Store, l.Env.Backends, l.Director.ID)
	if err := l.AddPlan(ctx, "p1", true, l.Made["c000-w-1"]); err != nil {
		t.Fatal(err)
	}
	node := l.Made["c000-w-1"].Address + " node true c000 c000-w-1"
	l.Put(t, tight)
	ask := func(q AddressQuery) AddressView {
		t.Helper()
		q.Network = "net"
		v, err := rooms.Addresses(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	want := []string{
		"10.64.0.1 gateway false  ", "10.64.0.2 dns false  ", "10.64.0.3 router false  ",
		"10.64.0.8 static false c000 ", "10.64.0.9 virtual false c000 ", node, "10.64.1.4 excluded false  ",
		"10.64.1.6-10.64.1.7 excluded false  ",
	}
	v := ask(AddressQuery{})
	if diff := cmp.Diff(want, linesOf(v)); diff != "" {
		t.Error(diff)
	}
	if v.Pool != 7 || v.Used != 1 || v.Free() != 6 || v.Total != len(want) {
		t.Errorf("got %d of %d, %d free, %d in all", v.Used, v.Pool, v.Free(), v.Total)
	}
	if diff := cmp.Diff([]string{node}, linesOf(ask(AddressQuery{Text: "W-1"}))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[3:5], linesOf(ask(AddressQuery{Uses: []string{UseStatic, UseVirtual}}))); diff != "" {
		t.Error(diff)
	}
	var parts []string
	q := AddressQuery{Page: director.Page{Limit: 3}}
	for pages := 1; ; pages++ {
		v := ask(q)
		parts = append(parts, linesOf(v)...)
		if q.After = v.Next; q.After == nil {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if diff := cmp.Diff(want, parts); diff != "" {
		t.Error(diff)
	}
	_, err := rooms.Addresses(ctx, AddressQuery{Network: "none"})
	servicetest.WantKind(t, err, director.KindNotFound)
}
