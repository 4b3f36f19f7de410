package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/director-kaas/kaas/director"
)

var (
	descConsulEntries = prometheus.NewDesc(
		namespace+"_consul_entries", "Entries that are wanted in a Consul, by whether their check passes.",
		[]string{"consul", "check"}, nil,
	)
	descConsulSuccess = prometheus.NewDesc(
		namespace+"_consul_success_timestamp_seconds",
		"When a comparison of a Consul with what is wanted ended well the last time; 0 for never.",
		[]string{"consul"}, nil,
	)
	descConsulHeld = prometheus.NewDesc(
		namespace+"_consul_held", "Removals from a Consul that wait for a person.", []string{"consul"}, nil,
	)
)

// consuls shows how the last comparisons went.
func consuls(list []director.ConsulState, out chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, c := range list {
		set(descConsulEntries, float64(c.Wanted-c.Failing), c.Consul, "passing")
		set(descConsulEntries, float64(c.Failing), c.Consul, "failing")
		success, held := 0.0, 0.0
		if !c.Success.IsZero() {
			success = float64(c.Success.Unix())
		}
		if c.Held != nil {
			held = float64(c.Held.Count)
		}
		set(descConsulSuccess, success, c.Consul)
		set(descConsulHeld, held, c.Consul)
	}
}
