package planning

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// facts read what a plan freezes of the world.
type facts struct{ *Service }

func (s *Service) facts() facts { return facts{s} }

// world reads everything that a plan of the cluster is made from.
func (s facts) world(ctx context.Context, cluster string) (planner.World, error) {
	return s.Reader.World(ctx, cluster)
}

// seen is the world with a look at the cluster and the hypervisor, for requests that need one.
func (s facts) seen(ctx context.Context, cluster string, r plan.Request) (*snapshot.Snapshot, error) {
	if r.Operation.OnDirector() {
		w, err := s.Reader.TakeDirector(ctx, cluster)
		if err == nil && r.Operation == plan.DirectorUpgrade {
			w.Gone, err = s.sameUpgrade(ctx, w.World)
		}
		return w, err
	}
	w, err := s.Reader.TakeAs(ctx, cluster, changeOf(r))
	if err == nil {
		err = w.Observe(ctx, r)
	}
	if err == nil && r.Operation == plan.ClusterRotateCerts && s.Certificates != nil {
		w.CertificateEnds, err = s.Certificates.Ends(ctx, w.Cluster.UID)
	}
	if err == nil && r.Operation == plan.ClusterRotateCerts && r.Certificates.Cold {
		if w.EndedAuthorities, err = s.Site.EndedAuthorities(ctx, w.Cluster.UID, s.Now()); err == nil {
			w.Authorities, err = s.authorities(ctx, w.Cluster.UID)
		}
	}
	if err == nil && r.Operation == plan.ClusterEncryptionKey {
		var keys, former []backup.Key
		keys, former, err = s.Site.EncryptionKeys(ctx, w.Cluster.UID)
		w.Encryption = planner.KeyNames{Keys: backup.KeyNames(keys), Former: backup.KeyNames(former)}
	}
	if err == nil && r.Operation == plan.ClusterSigningKey {
		w.Signing.Keys, w.Signing.Former, err = s.Site.SigningKeys(ctx, w.Cluster.UID)
	}
	if err == nil && w.Installed != nil && meetsAuthorities(r) {
		if w.Authorities, err = s.authorities(ctx, w.Cluster.UID); director.KindOf(err) == director.KindNotFound {
			err = nil // none were made yet
		}
	}
	if err == nil && r.Operation == plan.ClusterSSHAuthority {
		w.SSHAuthorities.Keys, w.SSHAuthorities.Former, err = s.Site.SSHAuthorities(ctx, w.Cluster.UID)
	}
	if err == nil && planner.ChangesKeys(w.World, r) {
		w.DirectorBackups, err = s.directorBackups(ctx)
	}
	if err == nil && r.Operation == plan.ClusterDrill {
		err = w.ReadDrills(ctx)
	}
	restores := r.Operation == plan.ClusterRestore || r.Operation == plan.ClusterDrill
	if err == nil && restores && r.Restore.Backup != "" && s.Backups != nil {
		w.Restore, err = s.restore(ctx, w.World, r.Restore.Backup)
	}
	return w, err
}

// sameUpgrade returns the id of the director's newest plan if that began the upgrade that its document asks for, and
// did not bring it to its end.
func (s facts) sameUpgrade(ctx context.Context, w planner.World) (string, error) {
	id, err := s.Store.NewestStarted(ctx, w.Cluster.Metadata.Name, store.LaneNodes)
	if err != nil || id == "" {
		return "", err
	}
	p, state, err := s.Store.Plan(ctx, id)
	if err != nil || p.Operation != plan.DirectorUpgrade || state.Status == plan.StatusDone {
		return "", err
	}
	for _, st := range p.Steps {
		var of step.DirectorParams
		if st.Kind == step.DirectorRecord && json.Unmarshal(st.Params, &of) == nil && of.UID == w.Cluster.UID &&
			of.Document.SameVM(w.Cluster.Director) {
			return id, nil
		}
	}
	return "", nil
}

// meetsAuthorities reports whether the plan must know of a change of an authority that is half done.
func meetsAuthorities(r plan.Request) bool {
	switch r.Operation {
	case "", plan.ClusterScale, plan.ClusterUpgrade, plan.ClusterRotateCerts:
		return true
	}
	return slices.Contains(planner.AuthorityOperations(), r.Operation)
}

func (s facts) authorities(ctx context.Context, uid string) (map[string]planner.KeyNames, error) {
	trusted, former, err := s.Site.Authorities(ctx, uid)
	if err != nil {
		return nil, err
	}
	names := map[string]planner.KeyNames{}
	for which, keys := range trusted {
		names[which] = planner.KeyNames{Keys: keys, Former: former[which]}
	}
	return names, nil
}

// directorBackups reads where the director's schedules back it up. Errors: conflict for a target that is not there.
func (s facts) directorBackups(ctx context.Context) (planner.DirectorBackups, error) {
	docs, err := s.Store.Documents(ctx, model.KindSchedule)
	if err != nil {
		return planner.DirectorBackups{}, err
	}
	targets, keep := schedule.BackupPlaces(docs)
	for _, target := range targets {
		_, err := s.Store.Document(ctx, model.Ref{Kind: model.KindBackupTarget, Name: target})
		if director.KindOf(err) == director.KindNotFound {
			return planner.DirectorBackups{}, director.Errorf(
				director.KindConflict, "planning.backups",
				"the director has to be backed up first, and a schedule of the job backup names BackupTarget/%s, "+
					"which does not exist", target,
			).WithHint("correct spec.job.params.target of the schedule, or suspend it: directorctl schedules")
		}
		if err != nil {
			return planner.DirectorBackups{}, err
		}
	}
	if !s.CopiesDatabase {
		keep = 0
	}
	return planner.DirectorBackups{Targets: targets, Copies: keep}, nil
}

// Backups is what is known of the backups of clusters.
type Backups interface {
	// Get returns one backup, or not_found.
	Get(ctx context.Context, id string) (backup.Entry, error)
	// List returns the backups of the cluster, the newest first.
	List(ctx context.Context, cluster string) ([]backup.Entry, error)
}

// restore looks the backup up. Errors: not_found, and conflict for one that does not fit the cluster.
func (s facts) restore(ctx context.Context, w planner.World, id string) (*planner.Restore, error) {
	e, err := s.Backups.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if e.Problem != "" {
		return nil, director.Errorf(
			director.KindConflict, "planning.restore", "backup %s was found damaged: %s", id, e.Problem,
		).WithHint("choose another one: directorctl backup list %s", w.Cluster.Metadata.Name)
	}
	keys, former, err := s.Site.EncryptionKeys(ctx, w.Cluster.UID)
	if err != nil {
		return nil, err
	}
	all := backup.KeyIDs(slices.Concat(keys, former))
	if err := e.Fits(w.Cluster.UID, w.Bundle.Components["etcd"], all); err != nil {
		return nil, err
	}
	return &planner.Restore{
		Backup: e.ID, Target: e.Target, Made: e.Made, Kubernetes: e.Kubernetes, Revision: e.Snapshot.Revision,
		Size: e.Snapshot.Size, SHA256: e.Snapshot.SHA256,
		// A key that another restore has taken up may not be on the masters.
		FormerKeys: backup.KeyNames(e.KeysOf(slices.Concat(keys[1:], former))),
	}, nil
}

// Certificates is what is known of the certificates of clusters.
type Certificates interface {
	// Look looks at the certificates of the cluster.
	Look(ctx context.Context, cluster string) error
	// Ends returns when the first certificate in the files of each node ends, by node.
	Ends(ctx context.Context, uid string) (map[string]time.Time, error)
}

// lookAtCertificates looks at them for a plan that renews them. Its start compares with what was seen then.
func (s facts) lookAtCertificates(ctx context.Context, cluster string, r plan.Request) error {
	if r.Operation != plan.ClusterRotateCerts || s.Certificates == nil {
		return nil
	}
	return s.Certificates.Look(ctx, cluster)
}

// Facts returns what playbooks know of the cluster. Errors: not_found, and conflict for a cluster without machines.
func (s *Service) Facts(ctx context.Context, cluster string) (step.Facts, error) {
	w, err := s.facts().world(ctx, cluster)
	if err != nil {
		return step.Facts{}, err
	}
	if w.NoBundle != nil {
		return step.Facts{}, w.NoBundle
	}
	facts := planner.FactsOf(w)
	if len(facts.Nodes) == 0 {
		return step.Facts{}, director.Errorf(
			director.KindConflict, "planning.facts", "cluster %s has no machines yet", cluster,
		).
			WithHint("start a plan for it first")
	}
	return facts, nil
}

// declareLost writes down what the plan was started with: from then on the host is asked nothing. It belongs to the
// transaction of the start.
func (s facts) declareLost(tx *store.Tx, p *plan.Plan, actor string) error {
	if p.Request.LostHost == "" {
		return nil
	}
	facts, err := step.DecodeFacts(p.Content)
	if err != nil {
		return err
	}
	h := director.LostHost{
		Provider: facts.Document.Provider, Host: p.Request.LostHost, By: actor, Plan: p.ID, At: s.Now(),
	}
	if err := tx.LoseHost(h); err != nil {
		return err
	}
	return tx.Audit(h.At, actor, "declare lost", "host "+h.Host+" of Provider/"+h.Provider)
}
