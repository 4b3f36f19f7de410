package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// Backups lists the backups of the cluster, or of all if it is empty; late ones alone if told.
func (c *clusterCalls) Backups(ctx context.Context, cluster string, late bool) (wire.Backups, error) {
	q := url.Values{}
	if cluster != "" {
		q.Set("cluster", cluster)
	}
	if late {
		q.Set("late", "true")
	}
	var v wire.Backups
	err := c.call(ctx, request{method: http.MethodGet, path: "/backups", query: q}, &v)
	return v, err
}

// Backup returns one backup.
func (c *clusterCalls) Backup(ctx context.Context, id string) (wire.Backup, error) {
	var v wire.Backup
	err := c.call(ctx, request{method: http.MethodGet, path: "/backups/" + url.PathEscape(id)}, &v)
	return v, err
}

// VerifyBackup has a backup read to its end. The problem in the answer says what is wrong with it.
func (c *clusterCalls) VerifyBackup(ctx context.Context, id string) (wire.Backup, error) {
	var v wire.Backup
	err := c.call(ctx, request{method: http.MethodPost, path: "/backups/" + url.PathEscape(id) + "/verify"}, &v)
	return v, err
}

// RereadBackupTarget compares the list of backups with what lies in the target.
func (c *clusterCalls) RereadBackupTarget(ctx context.Context, target string) (wire.BackupsReread, error) {
	var v wire.BackupsReread
	path := "/backup-targets/" + url.PathEscape(target) + "/reread"
	err := c.call(ctx, request{method: http.MethodPost, path: path}, &v)
	return v, err
}

// DeleteBackup deletes a backup in its target.
func (c *clusterCalls) DeleteBackup(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/backups/" + url.PathEscape(id)}, nil)
}

// ExtractBackup returns objects out of a backup, Secrets too.
func (c *clusterCalls) ExtractBackup(
	ctx context.Context, id string, password director.Secret, q wire.BackupExtract,
) (wire.BackupObjects, error) {
	q.Password = password.Reveal()
	var v wire.BackupObjects
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/backups/" + url.PathEscape(id) + "/objects", body: q,
	}, &v)
	return v, err
}
