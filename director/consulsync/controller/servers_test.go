package controller_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director/discovery/consultest"
)

// testThreeServers syncs with three servers over TLS, of which one hangs, and then the one that leads is killed: what
// goes and what comes meanwhile gets there by the others, both ways.
func testThreeServers(t *testing.T, k *cluster) {
	servers := consultest.StartThree(t)
	c := &consul{api: servers[2].Client(t, servers[2].Management)} // it lives on
	s := newSyncer(t, k, c, "c1", "import: [{service: db, namespace: shop, name: db, port: 5432}]\n")
	s.reach = reachAll(t, s.dir, servers)
	c.token(t, s.token, rules+readRules)
	c.instance(t, "db", "198.51.100.1", 5432, api.HealthPassing)
	want := many(t, k, 3)
	r := s.start(t)
	c.expect(t, "c1", want...)
	k.expectEndpoints(t, "shop", "db", "198.51.100.1:5432")

	goOn := servers[0].Hang(t) // which it is connected with
	began := time.Now()
	k.remove(t, "shop", "m00")
	c.instance(t, "db", "198.51.100.2", 5432, api.HealthPassing)
	c.expect(t, "c1", want[1:]...)
	k.expectEndpoints(t, "shop", "db", "198.51.100.1:5432", "198.51.100.2:5432")
	t.Logf("both ways are in step %s after a server hung", time.Since(began).Round(time.Millisecond))
	goOn()
	r.expectPage(t, "/readyz", "in step")

	lead := leads(t, servers)
	servers[lead].Stop()
	if lead == 2 {
		c.api = servers[1].Client(t, servers[1].Management)
	}
	began = time.Now()
	k.remove(t, "shop", "m01")
	c.expect(t, "c1", want[2:]...)
	r.expectPage(t, "/readyz", "in step")
	t.Logf("they are so %s after the server that led was killed", time.Since(began).Round(time.Millisecond))
}

// leads returns which of three servers leads, once each of them knows that all have a vote. The one that hung may have
// lost its vote and got it back. If the leader ends before it has told the last one so, there is no majority for good:
// Consul's servers vote for none that they know to have no vote.
func leads(t *testing.T, servers []*consultest.Server) (lead int) {
	t.Helper()
	clients := make([]*api.Client, len(servers))
	for i, s := range servers {
		clients[i] = s.Client(t, s.Management)
	}
	eventually(t, func() error {
		for i, c := range clients {
			votes, leader, err := consultest.Votes(c)
			if err != nil {
				return err
			}
			lead = slices.IndexFunc(servers, func(s *consultest.Server) bool { return s.Node() == leader })
			if votes != len(servers) || lead < 0 {
				return fmt.Errorf("%s knows of %d votes, and that %q leads", servers[i].Node(), votes, leader)
			}
		}
		return nil
	})
	return lead
}

// reachAll is the configuration of how to get to the servers, the first of them first.
func reachAll(t *testing.T, dir string, servers []*consultest.Server) string {
	t.Helper()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, []byte(servers[0].CA), 0o600); err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.URL)
	}
	return fmt.Sprintf(
		"addresses: [%s], caFile: %s, serverName: %s", strings.Join(addresses, ", "), ca, consultest.Name,
	)
}
