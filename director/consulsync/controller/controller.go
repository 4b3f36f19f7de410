// Package controller runs the sync of a cluster with Consul: informers and queries that wait tell it that something
// changed, a pass compares both sides and acts, and one of several replicas leads.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulsync"
)

const (
	listLimit = 2 * time.Minute // until the lists of a large cluster are complete
	leastGap  = 300 * time.Millisecond
	// Between two passes lies nine times what a pass takes, so that a cluster in which something always changes costs a
	// tenth of a core; but a new address is in Consul within five seconds.
	gapFactor = 9
	mostGap   = 3 * time.Second

	queriesPerSecond, burst = 50, 100 // to the API server
)

// Options says what a controller works on.
type Options struct {
	Config  consulsync.Config
	Kube    *rest.Config
	Replica string // a name that no other replica has
	Version string
	Lease   Lease // the usual times if zero
	Log     *slog.Logger
}

// Controller syncs a cluster. Make it with New and run it once.
type Controller struct {
	opt      Options
	identity consulsync.Identity
	client   kubernetes.Interface
	catalog  *catalog
	metrics  *metrics

	wake  chan struct{}
	state atomic.Int32
	fault atomic.Pointer[string] // what failed in the last pass
}

// What a replica is doing, for its health.
const (
	following int32 = iota // another one leads, or none yet
	listing                // leads, and has not compared yet
	failing                // leads, and the last pass failed
	syncing                // leads, and the last pass was good
)

// New returns a controller that has talked to no one yet. Errors: invalid, for files that cannot be read.
func New(o Options) (*Controller, error) {
	config := rest.CopyConfig(o.Kube)
	config.QPS, config.Burst, config.UserAgent = queriesPerSecond, burst, component+"/"+o.Version
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, "consulsync.new", "the client of Kubernetes: %w", err)
	}
	consul, long, err := newClient(o.Config.Consul)
	if err != nil {
		return nil, err
	}
	identity := consulsync.Identity{Owner: o.Config.Owner, Cluster: o.Config.Cluster}
	return &Controller{
		opt: o, identity: identity, client: client,
		catalog: &catalog{client: consul, lists: long, identity: identity, blocking: blocking},
		metrics: newMetrics(o.Version),
		wake:    make(chan struct{}, 1),
	}, nil
}

// changed asks for a pass. It never blocks.
func (c *Controller) changed() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// lead syncs until ctx ends. It returns nil then, and an error when it cannot begin.
func (c *Controller) lead(ctx context.Context) error {
	c.state.Store(listing)
	c.metrics.leader.Set(1)
	defer func() {
		c.metrics.leader.Set(0)
		c.state.Store(following)
	}()
	ctx, cancel := context.WithCancel(ctx)
	world, err := newCluster(c.client, c.opt.Config, c.identity, c.changed)
	if err != nil {
		cancel()
		return err
	}
	defer world.stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if err := world.start(ctx, listLimit); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	w := newWatcher(c.catalog, c.opt.Log, c.changed)
	wg.Go(func() { w.run(ctx, c.opt.Config.Import) })
	reporter, stop := newReporter(c.client, c.opt.Config.Namespace, c.opt.Log)
	defer stop()
	p := &pass{
		c: c, cluster: world, reporter: reporter,
		importer: &importer{
			client: c.client, cluster: world, identity: c.identity, cfg: c.opt.Config, known: w.instances,
		},
	}
	c.loop(ctx, p, w)
	return nil
}

// loop runs passes: after a change, at the latest after the resync time, and sooner after a failure.
func (c *Controller) loop(ctx context.Context, p *pass, w *watcher) {
	retry := firstRetry
	for ctx.Err() == nil {
		started := time.Now()
		err := p.run(ctx)
		if ctx.Err() != nil {
			return
		}
		took := time.Since(started)
		c.metrics.seconds.Observe(took.Seconds())
		wait := time.Duration(c.opt.Config.Resync)
		if err != nil {
			text := director.MessageOf(err)
			c.fault.Store(&text)
			c.state.Store(failing)
			wait = min(wait, retry)
			wait += rand.N(wait / 4) // the clusters of a Consul that came back do not all ask at once
			c.opt.Log.ErrorContext(ctx, "The sync failed and is tried again", "err", err, "hint", director.HintOf(err),
				"after", wait)
			retry = min(2*retry, mostWait(err))
			sleep(ctx, wait) // changes do not make it faster
			continue
		}
		if retry != firstRetry {
			w.back()
		}
		retry = firstRetry
		c.state.Store(syncing)
		c.metrics.success(time.Now())
		sleep(ctx, min(max(gapFactor*took, leastGap), mostGap))
		t := time.NewTimer(wait)
		select {
		case <-c.wake:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// mostWait is the longest time until a failed pass is tried again. A pass against a Consul that is away costs one
// refused connection, and a cluster that waits long after an outage is wrong for as long. What people have to mend is
// asked about less often.
func mostWait(err error) time.Duration {
	if director.KindOf(err) == director.KindUnavailable {
		return outageRetry
	}
	return lastRetry
}

// pass is one comparison of both sides.
type pass struct {
	c        *Controller
	cluster  *cluster
	reporter *reporter
	importer *importer
}

// run compares once and acts. Export and import do not wait for one another: Consul may be away for the one, and the
// other is still done.
func (p *pass) run(ctx context.Context) error {
	statusMap := p.cluster.statusMap(p.c.opt.Config.Namespace)
	ids := confirmed(statusMap)
	found, exportErr := p.export(ctx, ids)
	in := p.importer.pass(ctx, ids)
	importErr := errors.Join(in.errs...)
	p.c.count(exportErr, importErr)
	p.c.metrics.endpoints.Set(float64(in.endpoints))
	p.c.metrics.skipped.Set(float64(in.skipped))
	if exportErr != nil {
		found.holds = nil // not known
	}
	holds := slices.Concat(found.holds, in.holds)
	refusals := slices.Concat(found.refusals, in.refusals)
	p.c.metrics.refused.Set(float64(len(refusals)))
	p.c.metrics.held.Reset()
	for _, h := range holds {
		p.c.metrics.held.WithLabelValues(h.What).Set(float64(h.Count))
	}
	p.reporter.refusals(ctx, refusals)
	p.reporter.strangers(ctx, found.strangers)
	if exportErr != nil {
		return errors.Join(exportErr, importErr)
	}
	p.reporter.holds(ctx, holds)
	return errors.Join(importErr, p.show(ctx, statusMap, holds, refusals, found.strangers))
}

func (p *pass) show(
	ctx context.Context, have *corev1.ConfigMap, holds []consulsync.Hold, refusals []consulsync.Refusal,
	strangers []string,
) error {
	err := p.reporter.show(ctx, have, status{
		Holds: holds, Refusals: shown(refusals), Refused: len(refusals),
		Strangers: strangers[:min(len(strangers), maxShown)],
	})
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// count counts failures by their side.
func (c *Controller) count(export, imports error) {
	if export != nil {
		c.metrics.failures.WithLabelValues("consul").Inc()
	}
	if imports != nil {
		c.metrics.failures.WithLabelValues("kubernetes").Inc()
	}
}

// found is what the export of a pass found out.
type found struct {
	holds     []consulsync.Hold
	refusals  []consulsync.Refusal
	strangers []string
}

// export brings Consul to what the cluster wants. What the guard holds is not deleted; everything else is done.
func (p *pass) export(ctx context.Context, ids []string) (found, error) {
	m := p.c.metrics
	wanted, refusals := consulsync.Wanted(p.c.identity, p.c.opt.Config.Export, p.cluster.world())
	out := found{refusals: refusals}
	m.wanted.Set(float64(len(wanted)))
	have, err := p.c.catalog.read(ctx)
	if err != nil {
		return out, err
	}
	changes := consulsync.Diff(p.c.identity, wanted, have.entries)
	out.strangers = changes.Strangers
	m.present.Set(float64(changes.Own))
	m.strangers.Set(float64(len(changes.Strangers)))
	gone := make([]string, len(changes.Delete))
	for i, d := range changes.Delete {
		gone[i] = d.ID
	}
	hold := p.c.opt.Config.Guard.Check(consulsync.HoldExport, gone, changes.Own, ids)
	if hold != nil {
		out.holds = append(out.holds, *hold)
		changes.Delete = nil
	}
	if len(changes.Put)+len(changes.Delete) == 0 {
		return out, nil
	}
	did, err := p.c.catalog.apply(ctx, changes, have.nodes)
	m.changes.WithLabelValues("put").Add(float64(did.put))
	m.changes.WithLabelValues("delete").Add(float64(did.deleted))
	p.c.opt.Log.InfoContext(ctx, "Consul was changed", "put", did.put, "deleted", did.deleted,
		"failed", len(did.failed))
	if err != nil {
		return out, err
	}
	return out, refusedByConsul(did.failed)
}

// refusedByConsul returns an error that shows the first of what Consul refused.
func refusedByConsul(failed map[string]string) error {
	if len(failed) == 0 {
		return nil
	}
	first := ""
	for id := range failed {
		if first == "" || id < first {
			first = id
		}
	}
	return director.Errorf(director.KindForbidden, "consulsync.write", "Consul refused %d entries; the first is %s: %s",
		len(failed), first, failed[first]).
		WithHint("give the token's policy the rights of docs/operate/consul-sync.md")
}

// KubeConfig returns how the API server is reached: by a kubeconfig, or with the service account of the pod if path is
// empty. Errors: invalid.
func KubeConfig(path string) (*rest.Config, error) {
	const op = "consulsync.kubeconfig"
	if path == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, director.Errorf(director.KindInvalid, op, "this is no pod of a cluster: %w", err).
				WithHint("set kubeconfig in the configuration to run it elsewhere")
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		// The decoder's error is left out: it may quote a key.
		return nil, director.Errorf(director.KindInvalid, op, "the kubeconfig %s cannot be used", path)
	}
	return c, nil
}
