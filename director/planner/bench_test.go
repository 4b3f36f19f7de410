package planner

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// thousand is the world of a cluster with 1,000 nodes, which run if machines says so.
func thousand(b *testing.B, machines bool) World {
	b.Helper()
	w := demo(b)
	w.Network.Network.CIDR = netip.MustParsePrefix("10.64.0.0/16")
	w.Network.Network.Gateway = netip.MustParseAddr("10.64.0.1")
	w.Network.Network.Pool.From, w.Network.Network.Pool.To = netip.MustParseAddr("10.64.1.0"),
		netip.MustParseAddr("10.64.255.254")
	w.Cluster.Cluster.Workers[0].Count = 999
	if machines {
		c, err := Create(w)
		if err != nil {
			b.Fatal(err)
		}
		f, err := step.DecodeFacts(c)
		if err != nil {
			b.Fatal(err)
		}
		w.Machines = nil
		for i, m := range f.Nodes {
			w.Machines = append(w.Machines, m.Row())
			w.Machines[i].State, w.Machines[i].Kubernetes = director.MachinePresent, "v1.36.4"
		}
		w.Installed = &Installed{Generation: 1, Cluster: *w.Cluster.Cluster}
		want(&w, func(c *model.Cluster) { c.Maintenance.MaxUnavailable = 10 })
		former(&w)
	}
	return w
}

// BenchmarkThousandNodes measures what it takes to plan for 1,000 nodes: the plan, its check and its hash. It fails if
// the same world does not give the same bytes twice.
func BenchmarkThousandNodes(b *testing.B) {
	for _, op := range []struct {
		name     string
		machines bool
		plan     func(World) (plan.Content, error)
	}{
		{"create", false, Create},
		{"delete", true, func(w World) (plan.Content, error) { return Delete(w, plan.Request{}) }},
		{"upgrade", true, func(w World) (plan.Content, error) { return Apply(w, plan.Request{}) }},
	} {
		b.Run(op.name, func(b *testing.B) {
			w := thousand(b, op.machines)
			var before []byte
			var times []time.Duration
			steps := 0
			for b.Loop() {
				start := time.Now()
				c, err := op.plan(w)
				if err == nil {
					err = c.Check()
				}
				if err != nil {
					b.Fatal(err)
				}
				_ = plan.HashOf(c)
				times = append(times, time.Since(start))
				steps = len(c.Steps)
				now, err := json.Marshal(c)
				if err != nil {
					b.Fatal(err)
				}
				if before != nil && !bytes.Equal(before, now) {
					b.Fatal("the same world gave other bytes")
				}
				before = now
			}
			if len(times) < 2 {
				b.Fatal("once is not enough to compare: -benchtime 2x or more")
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(times[len(times)-1].Microseconds())/1000, "ms-longest")
			b.ReportMetric(float64(steps), "steps")
		})
	}
}
