package controller

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics counts for Prometheus, in a registry of its own.
type metrics struct {
	registry *prometheus.Registry

	leader, wanted, present, refused, strangers, endpoints, skipped prometheus.Gauge
	lastSuccess                                                     prometheus.Gauge
	held                                                            *prometheus.GaugeVec
	changes, failures                                               *prometheus.CounterVec
	seconds                                                         prometheus.Histogram
}

func newMetrics(version string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "consul_sync_" + name, Help: help})
		m.registry.MustRegister(g)
		return g
	}
	m.leader = gauge("leader", "1 on the replica that syncs.")
	m.wanted = gauge("entries_wanted", "Entries that the cluster wants in Consul.")
	m.present = gauge("entries_present", "Entries of the cluster in Consul, as they were read last.")
	m.refused = gauge("refused_objects", "Objects that are not synced because something is wrong with them.")
	m.strangers = gauge("strange_entries", "Entries on the cluster's node in Consul that are not the cluster's.")
	m.endpoints = gauge("imported_endpoints", "Endpoints of imported Services.")
	m.skipped = gauge("skipped_instances", "Instances in Consul that cannot be endpoints.")
	m.lastSuccess = gauge("last_success_timestamp_seconds", "When both sides were in step last.")
	m.held = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "consul_sync_held_removals", Help: "Removals that wait for a person, by kind.",
	}, []string{"what"})
	m.changes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "consul_sync_changes_total", Help: "Entries that were written to Consul or deleted.",
	}, []string{"change"})
	m.failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "consul_sync_failures_total", Help: "What failed, by side.",
	}, []string{"side"})
	m.seconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "consul_sync_pass_seconds", Help: "How long a comparison of both sides took.",
		Buckets: prometheus.ExponentialBuckets(0.01, 2, 12),
	})
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "consul_sync_info", Help: "The version, as a label.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.registry.MustRegister(m.held, m.changes, m.failures, m.seconds, info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, what := range []string{"entries", "endpoints", "services"} {
		m.held.WithLabelValues(what)
	}
	for _, side := range []string{"consul", "kubernetes"} {
		m.failures.WithLabelValues(side)
	}
	for _, change := range []string{"put", "delete"} {
		m.changes.WithLabelValues(change)
	}
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) success(now time.Time) { m.lastSuccess.Set(float64(now.Unix())) }
