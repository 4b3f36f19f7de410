package store

import "context"

// AnonymousPulls returns the uids of the clusters whose nodes were set up without credentials for the registry.
func (s *Store) AnonymousPulls(ctx context.Context) ([]string, error) {
	var uids []string
	err := s.read.WithContext(ctx).Raw("SELECT cluster_uid FROM anonymous_pulls ORDER BY cluster_uid").Scan(&uids).Error
	return uids, dbError("store.pulls", "clusters", err)
}
