package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/director-kaas/kaas/director"
)

// LeaseName is the lease that the replicas elect their leader with.
const LeaseName = "consul-sync"

// Lease has the times of the election.
type Lease struct {
	Duration, Renew, Retry time.Duration
}

// usual are the times of Kubernetes' own controllers.
var usual = Lease{Duration: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}

const stopLimit = 5 * time.Second

// Run serves health and metrics, and syncs while it leads, until ctx ends. Then it gives the lease back and returns
// nil. It returns an error when it lost the lease or cannot lead: the process should end, and start again.
func (c *Controller) Run(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	health := leaderelection.NewLeaderHealthzAdaptor(20 * time.Second)
	server := &http.Server{
		Handler: c.handler(health), ReadHeaderTimeout: stopLimit, ReadTimeout: stopLimit, WriteTimeout: callLimit,
		MaxHeaderBytes: 8 << 10,
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			c.opt.Log.ErrorContext(ctx, "Health and metrics are not served", "err", err)
			cancel()
		}
	})
	defer func() {
		stop, done := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer done()
		_ = server.Shutdown(stop) // what is left has nothing to lose
	}()
	return c.elect(ctx, cancel, health)
}

// elect takes part in the election until ctx ends, the lease is lost, or leading fails.
func (c *Controller) elect(ctx context.Context, cancel func(), health *leaderelection.HealthzAdaptor) error {
	lease := c.opt.Lease
	if lease == (Lease{}) {
		lease = usual
	}
	var failure error
	var turn turn
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: LeaseName,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: c.opt.Config.Namespace, Name: LeaseName},
			Client:     c.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.opt.Replica},
		},
		LeaseDuration: lease.Duration, RenewDeadline: lease.Renew, RetryPeriod: lease.Retry,
		// The lease is given back below, when the work has ended, and not before.
		ReleaseOnCancel: false,
		WatchDog:        health,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				if !turn.begin() {
					return
				}
				defer turn.end()
				c.opt.Log.InfoContext(leading, "This replica leads")
				if failure = c.lead(leading); failure != nil {
					cancel()
				}
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(id string) {
				c.opt.Log.InfoContext(ctx, "The leader is", "replica", id)
			},
		},
	})
	if err != nil {
		return director.Errorf(director.KindInternal, "consulsync.elect", "%w", err)
	}
	elector.Run(ctx)
	ended := ctx.Err() != nil
	turn.wait()
	switch {
	case failure != nil:
		c.release(ctx)
		return failure
	case !ended:
		return director.Errorf(director.KindUnavailable, "consulsync.elect", "the lease was lost").
			WithHint("the program starts again; look at the API server if it happens often")
	}
	c.release(ctx)
	return nil
}

// turn is the time in which a replica leads. The election starts it in a goroutine of its own, perhaps only after the
// election has ended.
type turn struct {
	mu   sync.Mutex
	over bool
	work sync.WaitGroup
}

func (t *turn) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.work.Add(1)
	return true
}

func (t *turn) end() { t.work.Done() }

// wait lets nothing begin any more and waits for what has begun.
func (t *turn) wait() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.work.Wait()
}

// release gives the lease back if it is this replica's, so that another one need not wait for its end.
func (c *Controller) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	leases := c.client.CoordinationV1().Leases(c.opt.Config.Namespace)
	l, err := leases.Get(ctx, LeaseName, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != c.opt.Replica {
		return
	}
	none, second, now := "", int32(1), metav1.NowMicro()
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &none, &second
	l.Spec.RenewTime, l.Spec.AcquireTime = &now, &now
	if _, err := leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
		c.opt.Log.WarnContext(ctx, "The lease was not given back", "err", err)
	}
}

// handler serves /livez, /readyz and /metrics.
func (c *Controller) handler(health *leaderelection.HealthzAdaptor) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
		if err := health.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // to someone who has gone
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch c.state.Load() {
		case following:
			_, _ = fmt.Fprintln(w, "ok: another replica leads")
		case syncing:
			_, _ = fmt.Fprintln(w, "ok: both sides are in step")
		case listing:
			http.Error(w, "the first comparison has not ended", http.StatusServiceUnavailable)
		default:
			why := "the last comparison failed"
			if p := c.fault.Load(); p != nil {
				why += ": " + *p
			}
			http.Error(w, why, http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", c.metrics.handler())
	return mux
}
