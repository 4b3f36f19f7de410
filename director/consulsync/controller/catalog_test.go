package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director/consulsync"
	"github.com/director-kaas/kaas/director/discovery/consultest"
)

// A question that waited as long as it may for a change has the same answer as before: it is no failure, although
// Consul's answer names no leader then.
func TestAWaitWithoutAChange(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	client := server.Client(t, server.Management)
	if _, err := client.Catalog().Register(&api.CatalogRegistration{
		Node: "host", Address: "192.0.2.1",
		Service: &api.AgentService{ID: "greeter", Service: "greeter", Port: 80},
	}, nil); err != nil {
		t.Fatal(err)
	}
	c := &catalog{client: client, blocking: time.Second}
	first, index, err := c.instances(t.Context(), "greeter", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := []consulsync.Instance{{Address: "192.0.2.1", Port: 80, Passing: true}}; !cmp.Equal(first, want) {
		t.Fatal(cmp.Diff(want, first))
	}
	again, next, err := c.instances(t.Context(), "greeter", "", index)
	if err != nil || next < index || !cmp.Equal(first, again) {
		t.Errorf("after the wait: %+v, index %d after %d, %v", again, next, index, err)
	}
}
