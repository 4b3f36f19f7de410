package steps

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// kubeSteps look at a cluster through its API, and record what it is.
type kubeSteps struct {
	Installation
	Clusters
	Backups Backups
}

// kubeReady waits until every node of the cluster is Ready and everything in kube-system runs, seen from the director
// through the API.
func (e kubeSteps) kubeReady(ctx context.Context, r plan.Run, p step.ClusterParams) error {
	return e.await(ctx, r, p.UID, p.Name, p.Endpoint, func(ctx context.Context, client API) (string, error) {
		return notReady(ctx, client, p.Nodes)
	})
}

// kubeTraffic waits until no rollout of kube-proxy or of the pod network is in the way of traffic: a node whose
// kube-proxy is just being exchanged continues sending to pods that a drain has moved.
func (e kubeSteps) kubeTraffic(ctx context.Context, r plan.Run, p step.ClusterParams) error {
	return e.await(ctx, r, p.UID, p.Name, p.Endpoint, func(ctx context.Context, client API) (string, error) {
		missing, err := client.RollingOut(ctx)
		return reasons(missing), err
	})
}

// nodeReady waits until the node is Ready at its version and carries traffic, and records that it is a member. The
// cluster gets its host key, for a director that is restored from a bundle of before.
func (e kubeSteps) nodeReady(ctx context.Context, r plan.Run, p step.NodeParams) error {
	signed, err := e.signedHostKey(ctx, p.UID, p.Machine)
	if err != nil {
		return err
	}
	err = e.await(ctx, r, p.UID, p.Cluster, p.Endpoint, func(ctx context.Context, client API) (string, error) {
		if signed != "" { // as soon as it is registered: see remake
			err := client.RecordHostKey(ctx, p.Node, signed)
			if err != nil && director.KindOf(err) != director.KindNotFound {
				return "", err
			}
		}
		missing, err := client.NodesReady(ctx, []string{p.Node}, p.Version)
		if err != nil || len(missing) > 0 {
			return reasons(missing), err
		}
		why, err := client.NotCarrying(ctx, p.Node)
		if why != "" {
			why = p.Node + " " + why
		}
		return why, err
	})
	if err != nil {
		return err
	}
	return e.Records.SetNode(ctx, p)
}

// nodeLeft records that the node is no member any more.
func (e kubeSteps) nodeLeft(ctx context.Context, r plan.Run, p step.NodeParams) error {
	if stays, err := e.stays(ctx, r, p); err != nil || stays {
		if stays {
			r.Note(ctx, p.Node+" is in the cluster still: its removal was skipped")
		}
		return err
	}
	if p.Keep {
		p.KeptBy = cmp.Or(r.Plan.CreatedBy, "unknown")
	}
	return e.Records.SetNode(ctx, p)
}

// clusterReady records what was installed. Of its nodes only those are recorded that are members for certain, see
// members.
func (e kubeSteps) clusterReady(ctx context.Context, r plan.Run, p step.ClusterParams) error {
	var err error
	if p.Nodes, err = e.members(ctx, r, p); err != nil {
		return err
	}
	return e.Records.ClusterInstalled(ctx, p, e.Now())
}

func (e kubeSteps) clusterForget(ctx context.Context, r plan.Run, p step.ClusterParams) error {
	if err := awaitDrill(ctx, e.Backups, p.UID); err != nil {
		return err
	}
	return e.Records.ForgetCluster(ctx, p, r.Plan.CreatedBy, e.Now())
}

// await asks the cluster every second until missing says "", and tells what it waits for. A cluster that does not
// answer is asked again. One that does not accept our certificate is asked again with a new one; if it does not accept
// that either, the wait is over.
func (e Clusters) await(
	ctx context.Context, r plan.Run, uid, cluster, endpoint string, missing func(context.Context, API) (string, error),
) error {
	client, err := e.connect(ctx, uid, cluster, endpoint, 0)
	if err != nil {
		return err
	}
	defer func() { client.Close() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	why, renewed := "nothing was seen yet", false
	for {
		now, err := missing(ctx, client)
		switch {
		case err == nil && now == "":
			return nil
		case director.KindOf(err) == director.KindUnauthenticated && !renewed:
			again, cerr := e.connect(ctx, uid, cluster, endpoint, 0)
			if cerr != nil {
				return cerr
			}
			client.Close()
			client, renewed = again, true
			continue
		case err == nil:
			why, renewed = now, false
			r.Note(ctx, why)
		case ctx.Err() == nil && director.KindOf(err) != director.KindUnavailable:
			return err
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			return director.Errorf(
				director.KindUnavailable, "kube.ready", "cluster %s is not ready: %s: %w", cluster, why,
				errors.Join(err, ctx.Err()),
			).
				WithHint(
					"look at it with: directorctl kubeconfig %s, and kubectl -n kube-system get pods,events", cluster,
				)
		case <-tick.C:
		}
	}
}

// notReady says what is missing, or "".
func notReady(ctx context.Context, client API, nodes []string) (string, error) {
	missing, err := client.NodesReady(ctx, nodes, "")
	if err != nil || len(missing) > 0 {
		return reasons(missing), err
	}
	loads, err := client.Workloads(ctx, "kube-system")
	if err != nil {
		return "", err
	}
	var why []string
	for _, w := range kube.Unhealthy(loads) {
		why = append(why, w.String())
	}
	if len(why) > 0 {
		return "not running yet: " + strings.Join(why, ", "), nil
	}
	return "", nil
}

func reasons(missing []kube.Absence) string {
	if len(missing) == 0 {
		return ""
	}
	var why []string
	for _, m := range missing {
		why = append(why, m.Name+" "+m.Why)
	}
	return "nodes are not ready: " + strings.Join(why, "; ")
}

// The lives of the director's certificates for a cluster.
const (
	shortLife  = 10 * time.Minute // where the caller sets no deadline
	lifeMargin = 10 * time.Minute // behind the deadline
)

// credentialLife is how long a certificate has to be good that is used until ctx is done, and a spare time longer.
func credentialLife(ctx context.Context, spare time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return shortLife + spare
	}
	return max(time.Until(deadline), 0) + lifeMargin + spare
}

// connect connects to a cluster as the director. The spare is how much longer the certificate lives than it has to.
func (e Clusters) connect(ctx context.Context, uid, name, endpoint string, spare time.Duration) (API, error) {
	authorities, err := e.ClusterPKI(ctx, uid)
	if err != nil {
		return nil, err
	}
	pair, err := pki.ClientCert(authorities.CA, "director", []string{"system:masters"}, credentialLife(ctx, spare))
	if err != nil {
		return nil, err
	}
	config, err := pki.Kubeconfig(name, "https://"+endpoint, authorities.CA.Cert, pair)
	if err != nil {
		return nil, err
	}
	if e.Connect == nil {
		return kube.Connect([]byte(config.Reveal()))
	}
	return e.Connect([]byte(config.Reveal()))
}
