// Package metrics counts what the director does and shows it to Prometheus. The other rooms know nothing of it: they
// call small interfaces of their own, which this one implements. There is no global registry, so that two directors of
// one process do not count together.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Counts is what is looked up when Prometheus asks.
type Counts struct {
	Queue    int            // steps that wait for a free worker
	Held     int            // leases of this director
	Machines map[string]int // of the ledger, by state
	Plans    map[string]int // by status
	Steps    map[string]int // of plans that hold a cluster, by status
	Backups  []BackupAge    // of the clusters that name a target
	Hooks    map[string]int // deliveries to hooks, by state
	Notified map[string]int // messages of notifications, by state
	Unsent   *int           // entries of the audit trail that have not arrived at the log server; nil without one
	// Certificates are those of clusters and of the director, as they were seen last.
	Certificates []director.Certificate
	Consuls      []director.ConsulState // of those that have a document
	Bucket       *bool                  // whether the registry's bucket answers; nil without one
	Packages     *Packages              // of the appliance's root; nil elsewhere, and if they are not known
	Free         *int                   // bytes that the data disk has left; nil if that is not known
}

// Packages is how the Debian packages of the appliance's root are.
type Packages struct {
	Of      time.Time // state of Debian's archives that they are from; zero if that is not known
	Missing *int      // security updates that it has not; nil if that is not known
}

// BackupAge is when the newest backup of a cluster was made.
type BackupAge struct {
	Cluster string
	Newest  time.Time // zero without a backup
	Late    bool
	Drill   *Drill // nil for a cluster without drills
}

// Drill is how the restore drills of a cluster are.
type Drill struct {
	Last   time.Time     // when the last one succeeded; zero without one
	Took   time.Duration // that one
	Failed bool          // the newest did not succeed
	Late   bool          // the last that succeeded is older than the document allows
}

// Config says which director this is and how things are looked up.
type Config struct {
	Version, Commit, Go string
	Forks               int // of the director
	Counts              func(context.Context) (Counts, error)
	Log                 *slog.Logger
}

// Metrics implements the observers of engine, ansible and api. It is safe for concurrent use.
type Metrics struct {
	cfg      Config
	registry *prometheus.Registry

	stepsStarted *prometheus.CounterVec
	stepsEnded   *prometheus.CounterVec
	stepSeconds  *prometheus.HistogramVec
	leasesLost   prometheus.Counter
	runs         prometheus.Gauge
	runsWaiting  prometheus.Gauge
	forks        prometheus.Gauge
	runsEnded    *prometheus.CounterVec
	runSeconds   *prometheus.HistogramVec
	requests     *prometheus.CounterVec
	latency      *prometheus.HistogramVec
	streams      prometheus.Gauge
	failures     prometheus.Counter
	hooksSent    *prometheus.CounterVec
	hookSeconds  *prometheus.HistogramVec
	notified     *prometheus.CounterVec
	notifySecs   *prometheus.HistogramVec
}

// What takes from a tenth of a second to an hour.
var long = []float64{.1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600}

// New returns the metrics of one director.
func New(c Config) *Metrics {
	m := &Metrics{
		cfg: c, registry: prometheus.NewRegistry(),
		stepsStarted: counters("steps_started_total", "Attempts of steps that were started.", "kind"),
		stepsEnded: counters(
			"steps_ended_total", "Attempts of steps that ended, by what came of them.", "kind", "outcome",
		),
		stepSeconds: histograms("step_duration_seconds", "How long attempts of steps took.", long, "kind"),
		leasesLost: prometheus.NewCounter(
			opts("leases_lost_total", "Steps that were taken from a director that was silent or gone."),
		),
		runs:        prometheus.NewGauge(gauge("ansible_runs", "Ansible runs in flight.")),
		runsWaiting: prometheus.NewGauge(gauge("ansible_runs_waiting", "Ansible runs that wait for forks.")),
		forks:       prometheus.NewGauge(gauge("ansible_forks_used", "Forks that Ansible runs hold.")),
		runsEnded:   counters("ansible_runs_ended_total", "Ansible runs that ended, by how.", "how"),
		runSeconds:  histograms("ansible_run_duration_seconds", "How long Ansible runs took.", long, "how"),
		requests:    counters("http_requests_total", "Requests to the API.", "method", "route", "status"),
		latency: histograms(
			"http_request_duration_seconds", "How long requests took; streams are left out.", prometheus.DefBuckets,
			"method", "route",
		),
		streams: prometheus.NewGauge(gauge("http_streams", "Streams of events that are open.")),
		failures: prometheus.NewCounter(
			opts("metrics_lookup_failures_total", "Times that the database did not say what there is."),
		),
		hooksSent: counters(
			"hook_requests_total", "Requests to hooks, by whether the endpoint received them.", "hook", "received",
		),
		hookSeconds: histograms(
			"hook_request_duration_seconds", "How long requests to hooks took.", prometheus.DefBuckets, "hook",
		),
		notified: counters(
			"notification_attempts_total", "Attempts to send messages of notifications, by whether they were received.",
			"notification", "received",
		),
		notifySecs: histograms(
			"notification_attempt_duration_seconds", "How long attempts to send messages of notifications took.",
			prometheus.DefBuckets, "notification",
		),
	}
	limit := prometheus.NewGauge(gauge("ansible_forks_limit", "Forks that all Ansible runs may hold together."))
	limit.Set(float64(c.Forks))
	build := prometheus.NewGaugeVec(gauge(
		"build_info", "Which director this is; always 1.",
	), []string{"version", "commit", "go"})
	build.WithLabelValues(c.Version, c.Commit, c.Go).Set(1)
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(
			collectors.ProcessCollectorOpts{},
		), build, limit, looked{m},
		m.stepsStarted, m.stepsEnded, m.stepSeconds, m.leasesLost, m.runs, m.runsWaiting, m.forks, m.runsEnded,
		m.runSeconds,
		m.requests, m.latency, m.streams, m.failures, m.hooksSent, m.hookSeconds,
		m.notified, m.notifySecs,
	)
	return m
}

const namespace = "director"

func opts(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
}

func gauge(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(opts(name, help), labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels,
	)
}

// Handler shows the metrics to Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 20 * time.Second})
}

// StepStarted counts.
func (m *Metrics) StepStarted(kind string) { m.stepsStarted.WithLabelValues(kind).Inc() }

// StepEnded counts and measures.
func (m *Metrics) StepEnded(kind string, outcome plan.EventKind, took time.Duration) {
	m.stepsEnded.WithLabelValues(kind, string(outcome)).Inc()
	m.stepSeconds.WithLabelValues(kind).Observe(took.Seconds())
}

// LeaseLost counts.
func (m *Metrics) LeaseLost() { m.leasesLost.Inc() }

// HookSent counts and measures.
func (m *Metrics) HookSent(hook string, received bool, took time.Duration) {
	m.hooksSent.WithLabelValues(hook, strconv.FormatBool(received)).Inc()
	m.hookSeconds.WithLabelValues(hook).Observe(took.Seconds())
}

// NotificationSent counts and measures.
func (m *Metrics) NotificationSent(notification string, received bool, took time.Duration) {
	m.notified.WithLabelValues(notification, strconv.FormatBool(received)).Inc()
	m.notifySecs.WithLabelValues(notification).Observe(took.Seconds())
}

// RunWaits counts up.
func (m *Metrics) RunWaits() { m.runsWaiting.Inc() }

// RunWaited counts down.
func (m *Metrics) RunWaited() { m.runsWaiting.Dec() }

// RunStarted counts up.
func (m *Metrics) RunStarted(forks int) {
	m.runs.Inc()
	m.forks.Add(float64(forks))
}

// RunEnded counts down and measures.
func (m *Metrics) RunEnded(forks int, how string, took time.Duration) {
	m.runs.Dec()
	m.forks.Sub(float64(forks))
	m.runsEnded.WithLabelValues(how).Inc()
	m.runSeconds.WithLabelValues(how).Observe(took.Seconds())
}

// Request counts and measures a request. route is the pattern and not the path, of which there is no end.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.latency.WithLabelValues(method, route).Observe(took.Seconds())
}

// Stream counts the open streams up, and down when the returned function is called.
func (m *Metrics) Stream() (closed func()) {
	m.streams.Inc()
	return m.streams.Dec
}

var (
	descQueue = prometheus.NewDesc(
		namespace+"_queue_length", "Steps that could run and wait for a free worker.", nil, nil,
	)
	descHeld     = prometheus.NewDesc(namespace+"_leases_held", "Steps that run in this director.", nil, nil)
	descMachines = prometheus.NewDesc(namespace+"_machines", "Machines of the ledger.", []string{"state"}, nil)
	descPlans    = prometheus.NewDesc(namespace+"_plans", "Plans.", []string{"status"}, nil)
	descSteps    = prometheus.NewDesc(
		namespace+"_steps", "Steps of the plans that hold a cluster.", []string{"status"}, nil,
	)
	descNewestBackup = prometheus.NewDesc(
		namespace+"_backup_newest_timestamp_seconds", "When the newest backup of a cluster was made; 0 without one.",
		[]string{"cluster"}, nil,
	)
	descLateBackup = prometheus.NewDesc(
		namespace+"_backup_late", "Whether the newest backup of a cluster is older than its document allows.",
		[]string{"cluster"}, nil,
	)
	descDrillLast = prometheus.NewDesc(
		namespace+"_restore_drill_success_timestamp_seconds",
		"When a restore drill of a cluster succeeded last; 0 if none did.", []string{"cluster"}, nil,
	)
	descDrillTook = prometheus.NewDesc(
		namespace+"_restore_drill_seconds", "How long the last restore drill of a cluster took that succeeded.",
		[]string{"cluster"}, nil,
	)
	descDrillFailed = prometheus.NewDesc(
		namespace+"_restore_drill_failed", "Whether the newest restore drill of a cluster did not succeed.",
		[]string{"cluster"}, nil,
	)
	descDrillLate = prometheus.NewDesc(
		namespace+"_restore_drill_late",
		"Whether the last restore drill that succeeded is older than its document allows.",
		[]string{"cluster"}, nil,
	)
	descHooks = prometheus.NewDesc(
		namespace+"_hook_deliveries", "Deliveries to hooks of the last 30 days.", []string{"state"}, nil,
	)
	descNotified = prometheus.NewDesc(
		namespace+"_notification_messages", "Messages of notifications of the last 30 days.", []string{"state"}, nil,
	)
	descFree = prometheus.NewDesc(
		namespace+"_disk_free_bytes", "What the disk with the director's state has left.", nil, nil,
	)
	descBucket = prometheus.NewDesc(
		namespace+"_registry_bucket_up", "Whether the bucket of the registry can be used: 1 or 0.", nil, nil,
	)
	descPackages = prometheus.NewDesc(
		namespace+"_root_packages_timestamp_seconds",
		"The state of Debian's archives that the packages of the appliance's root are from.", nil, nil,
	)
	descUpdates = prometheus.NewDesc(
		namespace+"_root_security_updates_missing", "Security updates that the appliance's root has not.", nil, nil,
	)
	descUnsent = prometheus.NewDesc(
		namespace+"_audit_unsent", "Entries of the audit trail that have not arrived at the log server.", nil, nil,
	)
)

// looked is what is looked up at each question.
type looked struct{ m *Metrics }

// Describe lists what there is.
func (looked) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descQueue, descHeld, descMachines, descPlans, descSteps, descFree, descBucket, descUnsent, descCertEnds,
		descCertSeen, descCertBegins, descNewestBackup, descLateBackup, descDrillLast, descDrillTook,
		descDrillFailed, descDrillLate, descHooks, descConsulEntries, descConsulSuccess, descConsulHeld,
		descNotified, descPackages, descUpdates,
	} {
		out <- d
	}
}

// Collect looks it up. What cannot be looked up is missing: the rest must not go with it.
func (l looked) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // Prometheus hands no context down
	defer cancel()
	c, err := l.m.cfg.Counts(ctx)
	if err != nil {
		l.m.failures.Inc()
		l.m.cfg.Log.WarnContext(ctx, "metrics could not be looked up", "err", err)
		return
	}
	set := func(d *prometheus.Desc, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	set(descQueue, c.Queue)
	set(descHeld, c.Held)
	backupAges(c.Backups, set)
	if c.Unsent != nil {
		set(descUnsent, *c.Unsent)
	}
	if c.Free != nil {
		set(descFree, *c.Free)
	}
	if p := c.Packages; p != nil {
		if !p.Of.IsZero() {
			set(descPackages, int(p.Of.Unix()))
		}
		if p.Missing != nil {
			set(descUpdates, *p.Missing)
		}
	}
	if c.Bucket != nil {
		up := 0
		if *c.Bucket {
			up = 1
		}
		set(descBucket, up)
	}
	certificateEnds(c.Certificates, out)
	consuls(c.Consuls, out)
	for d, by := range map[*prometheus.Desc]map[string]int{
		descMachines: c.Machines, descPlans: c.Plans, descSteps: c.Steps, descHooks: c.Hooks,
		descNotified: c.Notified,
	} {
		for label, n := range by {
			set(d, n, label)
		}
	}
}

// backupAges tells how old the newest backups are, and how restore drills went.
func backupAges(of []BackupAge, set func(d *prometheus.Desc, n int, labels ...string)) {
	at := func(t time.Time) int {
		if t.IsZero() {
			return 0
		}
		return int(t.Unix())
	}
	yes := map[bool]int{true: 1}
	for _, b := range of {
		set(descNewestBackup, at(b.Newest), b.Cluster)
		set(descLateBackup, yes[b.Late], b.Cluster)
		if d := b.Drill; d != nil {
			set(descDrillLast, at(d.Last), b.Cluster)
			set(descDrillTook, int(d.Took.Seconds()), b.Cluster)
			set(descDrillFailed, yes[d.Failed], b.Cluster)
			set(descDrillLate, yes[d.Late], b.Cluster)
		}
	}
}
