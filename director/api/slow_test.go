package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// slowPlanning takes its time for a plan, as with gigabytes on a slow disk, unless the caller's context ends before.
type slowPlanning struct {
	api.Planning
	took time.Duration
}

func (p slowPlanning) MakePlan(ctx context.Context, actor, cluster string, r plan.Request) (plan.View, error) {
	timer := time.NewTimer(p.took)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return plan.View{}, ctx.Err()
	case <-timer.C:
		return p.Planning.MakePlan(ctx, actor, cluster, r)
	}
}

// A plan may take longer to make than other requests.
func TestPlanTakesLongerThanOtherRequests(t *testing.T) {
	t.Parallel()
	const limit = time.Second // the handshake has it too, on a machine with other work
	var c api.Config
	b := setup(t, func(config *api.Config) {
		config.Planning = slowPlanning{config.Planning, 2 * limit}
		c = *config
	})
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = api.NewServer(api.New(c), nil, c.Log)
	srv.Config.WriteTimeout = limit
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	req, err := http.NewRequestWithContext(
		t.Context(), http.MethodPost, srv.URL+wire.Prefix+"/clusters/none/plans", http.NoBody,
	)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.token)
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("status %s, want the planner's answer", resp.Status)
	}
}
