package steps

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
)

// kubeReady waits until every node of the cluster is Ready and everything in kube-system runs, seen from the director through the API.
func (e Env) kubeReady(ctx context.Context, r plan.Run, p planner.ClusterParams) error {
	client, err := e.kubeClient(ctx, p)
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	why := "nothing was seen yet"
	for {
		now, err := notReady(ctx, client, p.Nodes)
		switch {
		case err == nil && now == "":
			return nil
		case err == nil:
			why = now
			r.Note(ctx, why)
		case ctx.Err() == nil && director.KindOf(err) != director.KindUnavailable:
			return err
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			return director.Errorf(director.KindUnavailable, "kube.ready", "cluster %s is not ready: %s: %w", p.Name, why, errors.Join(err, ctx.Err())).
				WithHint("look at it with: directorctl kubeconfig %s, and kubectl -n kube-system get pods,events", p.Name)
		case <-tick.C:
		}
	}
}

// notReady says what is missing, or "".
func notReady(ctx context.Context, client API, nodes []string) (string, error) {
	missing, err := client.NodesReady(ctx, nodes)
	if err != nil {
		return "", err
	}
	var why []string
	for _, m := range missing {
		why = append(why, m.Name+" "+m.Why)
	}
	if len(why) > 0 {
		return "nodes are not ready: " + strings.Join(why, "; "), nil
	}
	loads, err := client.Workloads(ctx, "kube-system")
	if err != nil {
		return "", err
	}
	for _, w := range kube.Unhealthy(loads) {
		why = append(why, w.String())
	}
	if len(why) > 0 {
		return "not running yet: " + strings.Join(why, ", "), nil
	}
	return "", nil
}

// kubeClient connects as the director, with a certificate of ten minutes.
func (e Env) kubeClient(ctx context.Context, p planner.ClusterParams) (API, error) {
	authorities, err := e.ClusterPKI(ctx, p.UID)
	if err != nil {
		return nil, err
	}
	pair, err := pki.ClientCert(authorities.CA, "director", []string{"system:masters"}, 10*time.Minute)
	if err != nil {
		return nil, err
	}
	config, err := pki.Kubeconfig(p.Name, "https://"+p.Endpoint, authorities.CA.Cert, pair)
	if err != nil {
		return nil, err
	}
	return e.Connect([]byte(config.Reveal()))
}

func connect(kubeconfig []byte) (API, error) { return kube.Connect(kubeconfig) }
