package discovery

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/model"
)

// three is a director whose document names three servers, with one of them for the leader and two that follow it.
func three(t *testing.T) (f *fixture, leader *consultest.Server, followers []*consultest.Server) {
	t.Helper()
	servers := consultest.StartThree(t)
	f = setup(t, servers[0], "director-three")
	var addresses []string
	raft, err := servers[0].Client(t, servers[0].Management).Operator().RaftGetConfiguration(nil)
	if err != nil {
		t.Fatal(err)
	}
	leads := map[string]bool{}
	for _, s := range raft.Servers {
		leads[s.Node] = s.Leader
	}
	for _, s := range servers {
		addresses = append(addresses, s.URL)
		if leads[s.Node()] {
			leader = s
		} else {
			followers = append(followers, s)
		}
	}
	if len(followers) != 2 {
		t.Fatalf("%d of 3 servers follow", len(followers))
	}
	f.put(model.Consul{
		Addresses: addresses, Datacenter: consultest.Datacenter, Domain: consultest.Domain,
		TLS: model.ConsulTLS{CA: servers[0].CA, ServerName: consultest.Name}, Credentials: "token",
	})
	return f, leader, followers
}

// The director registers with the servers that are left. Without a majority it says so, and catches up afterwards.
func TestThreeServers(t *testing.T) {
	t.Parallel()
	f, leader, followers := three(t)
	f.cluster("t1", "shop", "dc1", 3)
	f.well(t)
	before := f.entries(t, f.Director)
	if len(before) != 5 { // the director, three API servers, and the virtual address
		t.Fatalf("there are %v", before)
	}

	leader.Stop()
	f.consul = followers[0]
	f.cluster("t2", "bank", "dc1", 1)
	began := time.Now()
	until(t, "a comparison that is well without the leader", func() bool { return f.pass(t).Problem == "" })
	t.Logf("registered %s after the leader was killed", time.Since(began).Round(time.Millisecond))
	more := f.entries(t, f.Director)
	if len(more) != 7 {
		t.Errorf("there are %v", more)
	}

	followers[1].Stop()
	f.cluster("t3", "post", "dc1", 1)
	until(t, "a comparison that tells of the lost majority", func() bool {
		state := f.pass(t)
		if !strings.Contains(state.Hint, "a majority of the servers must run") {
			t.Fatalf("%s (%s)", state.Problem, state.Hint)
		}
		return strings.Contains(state.Problem, "has no leader")
	})

	leader.Begin(t)
	began = time.Now()
	until(t, "a comparison that is well again", func() bool { return f.pass(t).Problem == "" })
	t.Logf("registered %s after there was a majority again", time.Since(began).Round(time.Millisecond))
	all := f.entries(t, f.Director)
	if len(all) != len(more)+2 {
		t.Errorf("there are %v", all)
	}
	for _, e := range more {
		if !slices.Contains(all, e) {
			t.Errorf("%s is lost", e)
		}
	}
}

// A server that hangs, with the connections that it has, holds nothing up for long: the director goes on with another.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	for name, leads := range map[string]bool{"one that leads": true, "one that follows": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, hangs, followers := three(t)
			f.consul = followers[1]
			if !leads {
				hangs = followers[0]
			}
			f.reorder(hangs)
			f.cluster("t1", "shop", "dc1", 3)
			f.well(t) // by that server, and its connections are kept
			goOn := hangs.Hang(t)
			f.cluster("t2", "bank", "dc1", 1)
			began := time.Now()
			until(t, "a comparison that is well while a server hangs", func() bool { return f.pass(t).Problem == "" })
			if took := time.Since(began).Round(time.Millisecond); took > 4*firstLimit {
				t.Errorf("it took %s", took)
			} else {
				t.Logf("registered %s after a server hung", took)
			}
			if got := f.entries(t, f.Director); len(got) != 7 {
				t.Errorf("there are %v", got)
			}
			goOn()
			until(t, "a comparison that is well with all servers", func() bool { return f.pass(t).Problem == "" })
		})
	}
}

// reorder has the document name the server first.
func (f *fixture) reorder(first *consultest.Server) {
	c := *f.world.docs[model.Ref{Kind: model.KindConsul, Name: "dc1"}].Consul
	c.Addresses = append([]string{first.URL}, slices.DeleteFunc(slices.Clone(c.Addresses), func(a string) bool {
		return a == first.URL
	})...)
	f.put(c)
}
