package store

import (
	"context"

	"github.com/director-kaas/kaas/director/model"
)

// clusterAccess is how people get into a cluster.
type clusterAccess struct {
	TokenKeys string // digest of the token keys that all masters have; "-" if they may have different ones
	Group     string // of kubeconfigs with a certificate; empty before there was one
}

// clusterAccess returns what is known of the cluster with that uid, and nothing of one that is not known.
func (s *documentStore) clusterAccess(ctx context.Context, uid string) (clusterAccess, error) {
	var a clusterAccess
	err := s.read.WithContext(ctx).Raw(
		"SELECT token_keys, kubeconfig_group FROM cluster_access WHERE uid = ?", uid,
	).Row().Scan(&a.TokenKeys, &a.Group)
	if isNoRows(err) {
		return clusterAccess{}, nil
	}
	return a, dbError("store.cluster_access", "access to cluster "+uid, err)
}

// TokenKeys returns the digests of the token keys that the clusters have, by their names; "-" if masters may have
// different ones, and nothing of clusters that have none. It is asked every minute, of fleets of a thousand.
func (s *documentStore) TokenKeys(ctx context.Context) (map[string]string, error) {
	var rows []struct{ Name, TokenKeys string }
	err := s.read.WithContext(ctx).Raw(
		"SELECT d.name, a.token_keys FROM cluster_access a JOIN documents d ON d.uid = a.uid AND d.kind = ? "+
			"WHERE a.token_keys <> ''", model.KindCluster,
	).Scan(&rows).Error
	out := make(map[string]string, len(rows))
	for _, r := range rows {
		out[r.Name] = r.TokenKeys
	}
	return out, dbError("store.cluster_access", "access to clusters", err)
}

// SetTokenKeys records which token keys all masters of the cluster have.
func (s *documentStore) SetTokenKeys(ctx context.Context, uid, digest string) error {
	return s.access(ctx, uid, "INSERT INTO cluster_access (uid, token_keys) VALUES (?, ?) "+
		"ON CONFLICT (uid) DO UPDATE SET token_keys = excluded.token_keys", digest)
}

// StartTokenKeys records that a master of the cluster has token keys, and others may have none. What is recorded
// already stays.
func (s *documentStore) StartTokenKeys(ctx context.Context, uid string) error {
	return s.access(ctx, uid, "INSERT INTO cluster_access (uid, token_keys) VALUES (?, ?) "+
		"ON CONFLICT (uid) DO UPDATE SET token_keys = excluded.token_keys WHERE cluster_access.token_keys = ''", "-")
}

// SetKubeconfigGroup records whose kubeconfigs are good from now on.
func (s *documentStore) SetKubeconfigGroup(ctx context.Context, uid, group string) error {
	return s.access(ctx, uid, "INSERT INTO cluster_access (uid, kubeconfig_group) VALUES (?, ?) "+
		"ON CONFLICT (uid) DO UPDATE SET kubeconfig_group = excluded.kubeconfig_group", group)
}

// StartKubeconfigGroup records the first group of the cluster unless there is one, and returns the one that is
// recorded then.
func (s *documentStore) StartKubeconfigGroup(ctx context.Context, uid, group string) (string, error) {
	if err := s.access(ctx, uid, "INSERT INTO cluster_access (uid, kubeconfig_group) VALUES (?, ?) ON CONFLICT (uid) "+
		"DO UPDATE SET kubeconfig_group = excluded.kubeconfig_group WHERE cluster_access.kubeconfig_group = ''",
		group); err != nil {
		return "", err
	}
	a, err := s.clusterAccess(ctx, uid)
	return a.Group, err
}

func (s *documentStore) access(ctx context.Context, uid, statement, value string) error {
	return dbError("store.cluster_access", "access to cluster "+uid,
		s.write.WithContext(ctx).Exec(statement, uid, value).Error)
}
