package steps

import (
	"context"
	"fmt"
	"strings"
	"time"

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
	missing, err := client.NotReady(ctx, p.Nodes)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return plan.After(3*time.Second, "nodes are not ready: "+strings.Join(missing, "; "))
	}
	loads, err := client.Workloads(ctx, "kube-system")
	if err != nil {
		return err
	}
	var waiting []string
	for _, w := range loads {
		if w.Ready < w.Desired {
			waiting = append(waiting, fmt.Sprintf("%s %d/%d", w.Name, w.Ready, w.Desired))
		}
	}
	if len(waiting) > 0 {
		return plan.After(3*time.Second, "not running yet: "+strings.Join(waiting, ", "))
	}
	return nil
}

// kubeClient connects as the director, with a certificate of ten minutes.
func (e Env) kubeClient(ctx context.Context, p planner.ClusterParams) (*kube.Client, error) {
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
	return kube.Connect([]byte(config.Reveal()))
}
