package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/store"
)

// The lives of kubeconfigs with a certificate: hours, because a certificate cannot be revoked one by one.
const (
	kubeconfigLife    = 12 * time.Hour
	longestKubeconfig = 7 * 24 * time.Hour
	breakGlassLife    = time.Hour
	longestBreakGlass = 4 * time.Hour
)

// masters is the group whose rights no cluster can take away: the API server does not look them up.
const masters = "system:masters"

// UserKubeconfig returns the kubeconfig of the cluster that is the same for everyone and holds no secret: directorctl
// gets a token for the user who is logged in.
func (s *Service) UserKubeconfig(ctx context.Context, cluster string) ([]byte, error) {
	inst, authorities, err := s.installed(ctx, cluster)
	if err != nil {
		return nil, err
	}
	config, err := pki.UserKubeconfig(
		cluster, "https://"+inst.Endpoint, authorities.CA.Cert, "directorctl",
		"directorctl gets tokens for this cluster. Install it from the director, and log in with: directorctl login",
		"kube-token", cluster,
	)
	return []byte(config), err
}

// Kubeconfig mints a kubeconfig for an administrator with a client certificate of its own that lives for ttl, or for
// kubeconfigLife with 0. RevokeKubeconfigs ends it earlier. Errors: unavailable if the cluster cannot be asked to
// accept it.
func (s *Service) Kubeconfig(ctx context.Context, actor, cluster string, ttl time.Duration) ([]byte, error) {
	if ttl = cmp.Or(ttl, kubeconfigLife); ttl < time.Minute || ttl > longestKubeconfig {
		return nil, wrongLife("access.kubeconfig", longestKubeconfig)
	}
	inst, authorities, err := s.installed(ctx, cluster)
	if err != nil {
		return nil, err
	}
	group, err := s.store.StartKubeconfigGroup(ctx, inst.UID, newGroup())
	if err != nil {
		return nil, err
	}
	if err := s.bind(ctx, inst, group); err != nil {
		return nil, director.Errorf(
			director.KindOf(err), "access.kubeconfig", "cluster %s cannot be told to accept a kubeconfig: %w",
			cluster, err,
		).WithHint("if the cluster does not work, get one that it accepts anyway: directorctl kubeconfig %s "+
			"--break-glass", cluster)
	}
	return s.mint(ctx, actor, inst, authorities, group, ttl, "kubeconfig")
}

// BreakGlass mints a kubeconfig that the cluster accepts whatever its RBAC says and whether the director reaches it or
// not, for an hour or ttl. Nothing ends it earlier. Errors: invalid for a life that is too long.
func (s *Service) BreakGlass(ctx context.Context, actor, cluster string, ttl time.Duration) ([]byte, error) {
	if ttl = cmp.Or(ttl, breakGlassLife); ttl < time.Minute || ttl > longestBreakGlass {
		return nil, wrongLife("access.break_glass", longestBreakGlass)
	}
	inst, authorities, err := s.installed(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return s.mint(ctx, actor, inst, authorities, masters, ttl, "break glass kubeconfig")
}

// RevokeKubeconfigs ends every kubeconfig that Kubeconfig has minted for the cluster, at once: later ones are of
// another group. It is safe to repeat. Errors: unavailable if the cluster cannot be asked; then the old ones are good.
func (s *Service) RevokeKubeconfigs(ctx context.Context, actor, cluster string) error {
	inst, _, err := s.installed(ctx, cluster)
	if err != nil {
		return err
	}
	group := newGroup()
	if err := s.store.SetKubeconfigGroup(ctx, inst.UID, group); err != nil {
		return err
	}
	if err := s.bind(ctx, inst, group); err != nil {
		return director.Errorf(
			director.KindOf(err), "access.revoke_kubeconfigs", "the kubeconfigs of cluster %s are still good: %w",
			cluster, err,
		).WithHint("bring the cluster's API back, and revoke them again")
	}
	return s.store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.now(), actor, "revoke kubeconfigs", "Cluster/"+cluster)
	})
}

func (s *Service) bind(ctx context.Context, inst store.Installed, group string) error {
	api, err := s.keys.Cluster(ctx, inst.UID, inst.Name, inst.Endpoint)
	if err != nil {
		return err
	}
	defer api.Close()
	return api.BindAdministrators(ctx, group)
}

// mint is audited before anything is handed out.
func (s *Service) mint(
	ctx context.Context, actor string, inst store.Installed, authorities pki.ClusterPKI, group string,
	ttl time.Duration, action string,
) ([]byte, error) {
	// The prefix is that of tokens: the cluster's own audit trail shows one name for one person.
	pair, err := pki.ClientCert(authorities.CA, "director:"+actor, []string{group}, ttl)
	if err != nil {
		return nil, err
	}
	config, err := pki.Kubeconfig(inst.Name, "https://"+inst.Endpoint, authorities.CA.Cert, pair)
	if err != nil {
		return nil, err
	}
	err = s.store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.now(), actor, action, "Cluster/"+inst.Name)
	})
	if err != nil {
		return nil, err
	}
	return []byte(config.Reveal()), nil
}

// installed returns what was installed under the name. Errors: conflict before that, and not_found.
func (s *Service) installed(ctx context.Context, cluster string) (store.Installed, pki.ClusterPKI, error) {
	inst, ok, err := s.store.Installed(ctx, cluster)
	if err != nil {
		return inst, pki.ClusterPKI{}, err
	}
	if !ok {
		if _, err := s.store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster}); err != nil {
			return inst, pki.ClusterPKI{}, err
		}
		return inst, pki.ClusterPKI{}, director.Errorf(
			director.KindConflict, "access.kubeconfig", "cluster %s is not installed", cluster,
		).WithHint("see what runs with: directorctl describe cluster %s", cluster)
	}
	authorities, err := s.keys.ClusterPKI(ctx, inst.UID)
	return inst, authorities, err
}

func wrongLife(op string, longest time.Duration) error {
	return director.Invalid(op, "the certificate cannot be good for that long", []director.Field{{
		Path: "ttl_seconds", Msg: fmt.Sprintf("is not between %s and %s", time.Minute, longest),
		Hint: "get another kubeconfig when it has ended",
	}})
}

// newGroup returns a group that no certificate has yet.
func newGroup() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // crypto/rand.Read never fails
	return "kaas:kubeconfigs:" + hex.EncodeToString(random)
}
