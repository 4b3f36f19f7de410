package controller

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director/consulsync"
	"github.com/director-kaas/kaas/director/discovery/consultest"
)

// BenchmarkNodes measures what a real Consul needs for the entries of a cluster, on one node and on as many as the sync
// uses: to take them, and to confirm reads after it was killed, when it reads its log again. KAAS_SYNC_SERVICES says
// how many there are.
func BenchmarkNodes(b *testing.B) {
	n := 1000
	if v := os.Getenv("KAAS_SYNC_SERVICES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			b.Fatal(err)
		}
	}
	identity := consulsync.Identity{Owner: "d1", Cluster: "c1"}
	wanted := make([]consulsync.Entry, n)
	for i := range wanted {
		meta := identity.Meta()
		meta[consulsync.MetaKey] = fmt.Sprintf("service/shop/s%05d", i)
		wanted[i] = consulsync.Entry{
			ID: fmt.Sprintf("service:shop:s%05d:80:10.0.0.1", i), Name: fmt.Sprintf("s%05d", i), Address: "10.0.0.1",
			Port: 80, Meta: meta, Passing: true,
		}
	}
	several := consulsync.Diff(identity, wanted, nil)
	one := consulsync.Changes{Put: wanted}
	for _, c := range []struct {
		name    string
		changes consulsync.Changes
	}{{"one", one}, {"several", several}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				fill, again := crash(b, identity, c.changes)
				b.ReportMetric(fill.Seconds(), "s-to-write")
				b.ReportMetric(again.Seconds(), "s-after-kill")
			}
		})
	}
}

// crash writes entries to an empty Consul, kills it, and returns how long both took: the writing, and what the server
// needed until its leader confirmed reads again, with all entries.
func crash(b *testing.B, identity consulsync.Identity, changes consulsync.Changes) (fill, again time.Duration) {
	b.Helper()
	server := consultest.Start(b)
	defer server.Stop()
	c := &catalog{client: server.Client(b, server.Management), identity: identity}
	began := time.Now()
	out, err := c.apply(b.Context(), changes, nil)
	if err != nil || out.put != len(changes.Put) {
		b.Fatalf("%d of %d entries were written: %v, %v", out.put, len(changes.Put), out.failed, err)
	}
	fill = time.Since(began)
	server.Stop()
	began = time.Now()
	server.Begin(b)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		services, _, err := c.client.Catalog().Services(&api.QueryOptions{RequireConsistent: true})
		switch {
		case err == nil && len(services) > len(changes.Put): // and Consul itself
			return fill, time.Since(began)
		case err == nil:
			b.Fatalf("after a crash, there are %d services of %d", len(services), len(changes.Put))
		case time.Since(began) > 10*time.Minute:
			b.Fatal(err)
		}
		<-tick.C
	}
}
