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
func three(
	t *testing.T, servers []*consultest.Server,
) (f *fixture, leader *consultest.Server, follow []*consultest.Server) {
	t.Helper()
	f = setup(t, servers[0], "director-three")
	var addresses []string
	_, leads, err := consultest.Votes(servers[0].Client(t, servers[0].Management))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		addresses = append(addresses, s.URL)
		if s.Node() == leads {
			leader = s
		} else {
			follow = append(follow, s)
		}
	}
	if len(follow) != 2 {
		t.Fatalf("%d of 3 servers follow", len(follow))
	}
	f.put(model.Consul{
		Addresses: addresses, Datacenter: consultest.Datacenter, Domain: consultest.Domain,
		TLS: model.ConsulTLS{CA: servers[0].CA, ServerName: consultest.Name}, Credentials: "token",
	})
	return f, leader, follow
}

// The director registers with the servers that are left. Without a majority it says so, and catches up afterwards.
func TestThreeServers(t *testing.T) {
	t.Parallel()
	f, leader, followers := three(t, consultest.StartThree(t))
	f.cluster("t1", "shop", "dc1", 3)
	f.well(t)
	before := f.entries(t, f.Director)
	if len(before) != 5 { // the director, three API servers, and the virtual address
		t.Fatalf("there are %v", before)
	}

	leader.Stop()
	f.consul = followers[0]
	more := f.registersWithoutLeader(t, "killed")

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
	began := time.Now()
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

// The network of the leader is gone: its packets are lost, and nothing refuses them. The others elect another one, the
// director goes on there, and the former one agrees with them as soon as it has a network again. Then both others lose
// theirs.
func TestServersAreCutOff(t *testing.T) {
	t.Parallel()
	if !consultest.InNetwork(t) {
		return
	}
	f, leader, followers := three(t, consultest.StartApart(t))
	f.consul = followers[1]
	f.reorder(leader)
	f.cluster("t1", "shop", "dc1", 3)
	f.well(t)

	mend := leader.CutOff(t)
	want := f.registersWithoutLeader(t, "cut off")
	mend()
	// The others may have taken its vote away meanwhile: it is dead to them.
	follower := f.consul.Client(t, f.consul.Management)
	until(t, "three votes", func() bool {
		votes, _, err := consultest.Votes(follower)
		return err == nil && votes == 3
	})
	until(t, "a former leader that agrees", func() bool { return says(t, leader, f.Director, want) })

	mend, other := followers[0].CutOff(t), followers[1].CutOff(t)
	f.cluster("t3", "post", "dc1", 1)
	until(t, "a comparison that tells of the lost majority", func() bool { return f.pass(t).Problem != "" })
	mend()
	other()
	until(t, "a comparison that is well with all servers", func() bool { return f.pass(t).Problem == "" })
	until(t, "nine entries at a server that was cut off", func() bool {
		want, _ = entriesOf(followers[1].Client(t, followers[1].Management), f.Director, true)
		return len(want) == 9
	})
	for _, s := range []*consultest.Server{leader, followers[0]} {
		until(t, "a server that agrees with it", func() bool { return says(t, s, f.Director, want) })
	}
}

// registersWithoutLeader has the director register another cluster after the server that led was lost, and returns all
// its entries.
func (f *fixture) registersWithoutLeader(t *testing.T, how string) []string {
	t.Helper()
	f.cluster("t2", "bank", "dc1", 1)
	began := time.Now()
	until(t, "a comparison that is well without the leader", func() bool { return f.pass(t).Problem == "" })
	t.Logf("registered %s after the leader was %s", time.Since(began).Round(time.Millisecond), how)
	entries := f.entries(t, f.Director)
	if len(entries) != 7 {
		t.Errorf("there are %v", entries)
	}
	return entries
}

// says reports whether a server has these entries of the director itself, whatever the one that leads has.
func says(t *testing.T, s *consultest.Server, id string, want []string) bool {
	t.Helper()
	got, err := entriesOf(s.Client(t, s.Management), id, true)
	return err == nil && slices.Equal(got, want)
}

// A server that hangs, with the connections that it has, holds nothing up for long: the director goes on with another.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	for name, leads := range map[string]bool{"one that leads": true, "one that follows": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, hangs, followers := three(t, consultest.StartThree(t))
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
