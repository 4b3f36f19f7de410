package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/backups"
	"github.com/director-kaas/kaas/director/kube/etcdfile"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// Backups is what the API offers of backups of clusters. All methods return *director.Error and are safe for concurrent
// use.
type Backups interface {
	// List returns the backups of the cluster, or of all if it is empty, the newest first.
	List(ctx context.Context, cluster string) ([]backup.Entry, error)
	// Ages returns how old the newest backups of installed clusters with a target are.
	Ages(ctx context.Context) ([]backups.Age, error)
	// Get returns one backup, or not_found.
	Get(ctx context.Context, id string) (backup.Entry, error)
	// Verify reads the whole backup, and writes down what it found.
	Verify(ctx context.Context, actor, id string) (backup.Entry, error)
	// Reread compares the list of backups with what lies in the target.
	Reread(ctx context.Context, actor, target string) (backups.Reread, error)
	// Extract returns the objects of the query as they are in the backup. Its keys are those of the cluster.
	Extract(ctx context.Context, actor, id string, q etcdfile.Query) (backup.Entry, []etcdfile.Object, error)
	// Delete deletes the backup in its target.
	Delete(ctx context.Context, actor, id string) error
}

const kindBackupTarget = string(model.KindBackupTarget)

type backupsInput struct {
	Cluster string `query:"cluster" maxLength:"64" doc:"Only backups of this cluster."`
	Late    bool   `query:"late" doc:"Only clusters whose newest backup is late, and their backups."`
}

type backupInput struct {
	Backup string `path:"backup" maxLength:"128" doc:"Id of the backup."`
}

func (s *clusterRoutes) backups(api huma.API) {
	tags := []string{"Backups"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-backups", Method: http.MethodGet, Path: "/backups", Tags: tags,
		Summary: "List the backups of clusters",
		Description: "The newest first, with how old the newest backup of each cluster is. The targets are not " +
			"asked. " +
			"A plan with the operation cluster.backup makes one.",
	}, director.ActRead, kindBackupTarget, s.listBackups)
	operation(s.server, api, huma.Operation{
		OperationID: "get-backup", Method: http.MethodGet, Path: "/backups/{backup}", Tags: tags,
		Summary: "Show a backup", Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindBackupTarget,
		func(ctx context.Context, _ director.Actor, in *backupInput) (*body[wire.Backup], error) {
			e, err := s.Backups.Get(ctx, in.Backup)
			if err != nil {
				return nil, err
			}
			return &body[wire.Backup]{backupOf(e)}, nil
		})
	operation(s.server, api, huma.Operation{
		OperationID: "verify-backup", Method: http.MethodPost, Path: "/backups/{backup}/verify", Tags: tags,
		Summary: "Read a backup to its end and say what is wrong",
		Description: "The archive is read from its target, decrypted and compared with its manifest. Nothing is " +
			"changed in the target. problem in the answer says what is wrong.",
		Errors: []int{http.StatusNotFound},
	}, director.ActPlan, kindBackupTarget,
		func(ctx context.Context, a director.Actor, in *backupInput) (*body[wire.Backup], error) {
			e, err := s.Backups.Verify(ctx, a.User, in.Backup)
			if err != nil {
				return nil, err
			}
			return &body[wire.Backup]{backupOf(e)}, nil
		})
	operation(s.server, api, huma.Operation{
		OperationID: "reread-backup-target", Method: http.MethodPost, Path: "/backup-targets/{target}/reread",
		Tags: tags, Summary: "Compare the list of backups with what lies in a target",
		Description: "Backups that are not on the list come onto it, if this director made them: after it was " +
			"restored from an older bundle, say. Those that are gone from the target get a problem. Nothing is " +
			"changed in the target, and the archives are not read.",
		Errors: []int{http.StatusNotFound},
	}, director.ActPlan, kindBackupTarget, s.rereadTarget)
	operation(s.server, api, huma.Operation{
		OperationID: "extract-backup", Method: http.MethodPost, Path: "/backups/{backup}/objects", Tags: tags,
		Summary: "Read objects of a namespace out of a backup",
		Description: "The objects as they were when the backup was made, Secrets too. Nothing is changed in the " +
			"cluster. It needs the password of who asks, also with a valid token, and is an audit event of its own.",
		Errors: []int{http.StatusNotFound, http.StatusTooManyRequests},
	}, director.ActSecrets, kindBackupTarget, s.extractBackup)
	operation(s.server, api, huma.Operation{
		OperationID: "delete-backup", Method: http.MethodDelete, Path: "/backups/{backup}", Tags: tags,
		Summary: "Delete a backup", Errors: []int{http.StatusNotFound}, DefaultStatus: http.StatusNoContent,
	}, director.ActDelete, kindBackupTarget,
		func(ctx context.Context, a director.Actor, in *backupInput) (*empty, error) {
			return nil, s.Backups.Delete(ctx, a.User, in.Backup)
		})
}

type targetInput struct {
	Target string `path:"target" maxLength:"64" doc:"Name of the BackupTarget."`
}

func (s *clusterRoutes) rereadTarget(
	ctx context.Context, a director.Actor, in *targetInput,
) (*body[wire.BackupsReread], error) {
	r, err := s.Backups.Reread(ctx, a.User, in.Target)
	if err != nil {
		return nil, err
	}
	out := wire.BackupsReread{Found: r.Found, Added: r.Added, Missing: r.Missing}
	for _, f := range r.Refused {
		out.Refused = append(out.Refused, wire.BackupRefused{File: f.File, Why: f.Why})
	}
	return &body[wire.BackupsReread]{out}, nil
}

func (s *clusterRoutes) listBackups(
	ctx context.Context, _ director.Actor, in *backupsInput,
) (*body[wire.Backups], error) {
	list, err := s.Backups.List(ctx, in.Cluster)
	if err != nil {
		return nil, err
	}
	ages, err := s.Backups.Ages(ctx)
	if err != nil {
		return nil, err
	}
	out := wire.Backups{Items: []wire.Backup{}, Clusters: []wire.BackupAge{}}
	late := map[string]bool{}
	for _, a := range ages {
		late[a.Cluster] = a.Late
		if in.Cluster != "" && in.Cluster != a.Cluster || in.Late && !a.Late {
			continue
		}
		out.Clusters = append(out.Clusters, wire.BackupAge{
			Cluster: a.Cluster, Targets: a.Targets, NewestAt: wire.Optional(a.Newest), Late: a.Late,
			Drills: drillsOf(a.Drills),
		})
	}
	for _, e := range list {
		if !in.Late || late[e.Cluster] {
			out.Items = append(out.Items, backupOf(e))
		}
	}
	return &body[wire.Backups]{out}, nil
}

// drillsOf returns nil for a cluster without drills.
func drillsOf(s backups.DrillState) *wire.Drills {
	if s.Network == "" {
		return nil
	}
	out := &wire.Drills{Network: s.Network, LastAt: wire.Optional(s.Last.Answered), Late: s.Late}
	if d := s.Newest; d.Plan != "" {
		out.Newest = &wire.Drill{
			Plan: d.Plan, Backup: d.Backup, BeganAt: d.Began, EndedAt: wire.Optional(d.Ended), OK: d.OK(), Keys: d.Keys,
			Problem: d.Problem,
		}
		if !d.Answered.IsZero() {
			out.Newest.Seconds = d.Took().Seconds()
		}
	}
	return out
}

type extractInput struct {
	Backup string `path:"backup" maxLength:"128" doc:"Id of the backup."`
	Body   wire.BackupExtract
}

func (s *clusterRoutes) extractBackup(
	ctx context.Context, a director.Actor, in *extractInput,
) (*body[wire.BackupObjects], error) {
	if err := s.accounts().confirm(ctx, a, director.Secret(in.Body.Password)); err != nil {
		return nil, err
	}
	e, list, err := s.Backups.Extract(ctx, a.User, in.Backup, etcdfile.Query{
		Namespace: in.Body.Namespace, Kind: in.Body.Kind, Name: in.Body.Name,
	})
	if err != nil {
		return nil, err
	}
	out := wire.BackupObjects{Backup: e.ID, Cluster: e.Cluster, MadeAt: e.Made, Objects: []map[string]any{}}
	for _, o := range list {
		out.Objects = append(out.Objects, o.Content)
	}
	return &body[wire.BackupObjects]{out}, nil
}

func backupOf(e backup.Entry) wire.Backup {
	out := wire.Backup{
		ID: e.ID, Cluster: e.Cluster, ClusterUID: e.ClusterUID, Target: e.Target, MadeAt: e.Made, Plan: e.Plan,
		Reason: e.Reason, Kubernetes: e.Kubernetes, Etcd: e.Snapshot.Etcd, Revision: e.Snapshot.Revision,
		Keys: e.Snapshot.Keys, SizeBytes: e.Snapshot.Size, SHA256: e.Snapshot.SHA256,
		ArchiveBytes:  e.Archive.Size,
		ArchiveSHA256: e.Archive.SHA256, Archive: e.ArchiveName(), Members: []wire.BackupMember{},
		EncryptionKeys: e.EncryptionKeys, Recipients: e.Recipients, VerifiedAt: wire.Optional(e.Verified),
		Problem: e.Problem,
	}
	for _, m := range e.Members {
		out.Members = append(out.Members, wire.BackupMember{Name: m.Name, Address: m.Address})
	}
	return out
}
