// Package planning makes plans of clusters, checks everything that they would be refused for, starts them, and moves
// those that exist. A start makes the plan again and compares: only what a person has read runs.
package planning

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/provenance"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// Plans shows plans with their states.
type Plans interface {
	Plan(ctx context.Context, id string) (plan.View, error)
}

// Site is what the pre-checks look at, other than documents and hypervisors. steps.Env implements it.
type Site interface {
	// Look asks the networks themselves which addresses of the machines, which do not exist yet, are taken. ours are
	// the MAC addresses of the director's machines.
	Look(ctx context.Context, machines []director.Machine, ours map[string]bool) steps.AddressProbe
	// CheckInventory says why the inventory of the facts cannot be rendered.
	CheckInventory(f step.Facts) error
	// EncryptionKeys returns the keys that the API servers of the cluster have for Secrets, the one that encrypts
	// first, and those that older backups are encrypted with.
	EncryptionKeys(ctx context.Context, uid string) (keys, former []backup.Key, err error)
	// SigningKeys returns the names of the keys of the cluster for service account tokens, the one that signs first,
	// and of those that it had.
	SigningKeys(ctx context.Context, uid string) (keys, former []string, err error)
	// Authorities returns the names of the certificate authorities of the cluster by purpose: those that are trusted,
	// the one that signs first, and those that were.
	Authorities(ctx context.Context, uid string) (trusted, former map[string][]string, err error)
	// EndedAuthorities returns the purposes of which an authority that is trusted has ended.
	EndedAuthorities(ctx context.Context, uid string, now time.Time) (map[string]bool, error)
	// SSHAuthorities returns the names of the SSH authorities of the cluster, the one that signs first, and of those
	// that it had.
	SSHAuthorities(ctx context.Context, uid string) (keys, former []string, err error)
	// ImagePath is the file of the image on the director.
	ImagePath(i model.Image) string
}

// Gate says whether an image is used. *provenance.Gate implements it.
type Gate interface {
	Image(i model.Image, path string) (provenance.Reason, error)
}

// Config is what New needs.
type Config struct {
	Store    *store.Store
	Engine   *engine.Engine
	Reader   *snapshot.Reader
	Plans    Plans
	Site     Site
	Gate     Gate
	Director string // id, in the stamps of its VMs
	NewID    func() string
	PlanLife time.Duration // how long a plan can be started after it was made; zero is for ever
	Approval Approval      // who has to agree to plans that destroy
	Now      func() time.Time
	Log      *slog.Logger
	// CreationsPerHour is how many VMs the director may make in an hour on all providers; zero is without bound.
	CreationsPerHour int
	// ProviderTypes are the types of providers that this director takes; any if nil.
	ProviderTypes []string
	Confine       confine.Rules // what documents may name
	Certificates  Certificates  // what is known of them; nothing if nil
	Backups       Backups       // of clusters; none if nil
	Outer         Outer         // authorities; none if nil
	FirstBoots    FirstBoots    // of directors; not looked at if nil
	Consuls       Consuls       // not looked at if nil
	// CopiesDatabase says that a backup of the director without a target is possible.
	CopiesDatabase bool
	// Room says why the director has no room for another plan; nil for one that always has.
	Room func() error
	// Claimed says why no plan may work on the cluster: another copy of this director does. Nil for one without copies.
	Claimed func(ctx context.Context, cluster string) error
}

// Outer are the authorities that issue those of clusters.
type Outer interface {
	// Ready returns an error if the CertificateAuthority of the name could not issue now.
	Ready(ctx context.Context, name string) error
}

// FirstBoots looks at what the VMs of other directors are told at their first boot.
type FirstBoots interface {
	// Problems returns what is wrong with what the credentials of the document hold.
	Problems(ctx context.Context, name string, d model.Director) []director.Field
}

// Service makes plans and moves them. It is safe for concurrent use.
type Service struct {
	Config
	sums *checksums
}

// New returns the service.
func New(c Config) *Service {
	if c.Claimed == nil {
		c.Claimed = func(context.Context, string) error { return nil }
	}
	return &Service{Config: c, sums: &checksums{known: map[fileKey]string{}}}
}

// room refuses what would add to a full disk. What runs already waits for space by itself, and everything can be read.
func (s *Service) room() error {
	if s.Room == nil {
		return nil
	}
	return s.Room()
}

// may refuses a plan that there is no room for, or whose cluster another copy of this director works on.
func (s *Service) may(ctx context.Context, cluster string) error {
	if err := s.room(); err != nil {
		return err
	}
	return s.Claimed(ctx, cluster)
}

// MakePlan freezes a plan for the cluster, after every pre-check; all problems come back at once. Planned plans of the
// cluster that never ran are discarded.
func (s *Service) MakePlan(ctx context.Context, actor, cluster string, r plan.Request) (plan.View, error) {
	return s.MakePlanWith(ctx, actor, cluster, r, func(*store.Tx, string) error { return nil })
}

// MakePlanWith is MakePlan; with, called with the plan's id, belongs to the transaction that stores the plan.
func (s *Service) MakePlanWith(
	ctx context.Context, actor, cluster string, r plan.Request, with func(tx *store.Tx, id string) error,
) (plan.View, error) {
	if err := s.may(ctx, cluster); err != nil {
		return plan.View{}, err
	}
	if err := s.facts().lookAtCertificates(ctx, cluster, r); err != nil {
		return plan.View{}, err
	}
	r, err := s.drills().newest(ctx, cluster, r)
	if err != nil {
		return plan.View{}, err
	}
	w, err := s.facts().seen(ctx, cluster, r)
	if err != nil {
		return plan.View{}, err
	}
	if holder, err := s.drills().holder(ctx, cluster, r.Operation); err != nil {
		return plan.View{}, err
	} else if holder != "" {
		return plan.View{}, s.Store.HeldBy(ctx, "planning.make", holder, cluster)
	}
	content, err := s.content(ctx, w, r)
	if err != nil {
		return plan.View{}, err
	}
	if err := content.Check(); err != nil {
		return plan.View{}, &director.Error{
			Kind: director.KindInternal, Op: "planning.make", Msg: "the planner wrote a plan that cannot run",
			Err: err,
		}
	}
	p := plan.Plan{ID: s.NewID(), CreatedAt: s.Now().UTC(), CreatedBy: actor, Content: content}
	p.Hash = plan.HashOf(content)
	if len(p.Steps) == 0 {
		return plan.View{Plan: p, State: plan.NewState(&p)}, nil // nothing to run, nothing to keep
	}
	err = s.starts().keep(ctx, &p, w.Cluster.Ref(), with)
	return plan.View{Plan: p, State: plan.NewState(&p), Expires: p.CreatedAt.Add(s.PlanLife)}, err
}

// content plans what the request asks for.
func (s *Service) content(ctx context.Context, w *snapshot.Snapshot, r plan.Request) (plan.Content, error) {
	content, err := s.draft(w.World, r)
	if err == nil {
		_, err = s.check(ctx, w, &content)
	}
	if len(r.Change) > 0 {
		content.Format = plan.Format
	}
	return content, err
}

// Try says what a plan for the request would be refused for. Nothing is stored.
func (s *Service) Try(ctx context.Context, cluster string, r plan.Request) error {
	w, err := s.facts().seen(ctx, cluster, r)
	if err == nil {
		_, err = s.content(ctx, w, r)
	}
	return err
}

// check makes the pre-check of a plan that makes VMs, and adds its warnings. What makes no VM needs no room, no image
// and no quota.
func (s *Service) check(ctx context.Context, w *snapshot.Snapshot, c *plan.Content) ([]AddressCheck, error) {
	unsigned, problems := s.prechecks().trusted(w.World, *c)
	c.Warnings = append(c.Warnings, unsigned...)
	problems = append(problems, s.prechecks().checkAgents(ctx, *c)...)
	if !slices.ContainsFunc(c.Steps, func(s plan.Step) bool { return s.Kind == step.VMEnsure && !s.Back() }) {
		return nil, director.Invalid(opPrecheck, unworkable(*c), problems)
	}
	warnings, looked, err := s.prechecks().precheck(ctx, w, *c, problems)
	c.Warnings = append(c.Warnings, warnings...)
	return looked, err
}

// unworkable is the message of the error that holds every problem of a plan.
func unworkable(c plan.Content) string {
	if c.Operation.OnDirector() {
		return "the plan for director " + c.Cluster + " cannot work"
	}
	return "the plan for cluster " + c.Cluster + " cannot work"
}

// draft has the request planned, without a look at the provider.
func (s *Service) draft(w planner.World, r plan.Request) (plan.Content, error) {
	var content plan.Content
	var err error
	w.Take = r.AdoptDisks
	switch {
	case r.Operation == plan.ClusterDelete:
		return planner.Delete(w, r)
	case r.Operation == plan.DirectorCreate:
		return planner.MakeDirector(w)
	case r.Operation == plan.DirectorUpgrade:
		return planner.UpgradeDirector(w, r)
	case r.Operation == plan.DirectorDelete:
		return planner.DeleteDirector(w, r)
	case r.Operation == plan.ClusterRotatePull:
		return planner.RotatePullPassword(w, r)
	case r.Operation == plan.ClusterTokenKeys:
		return planner.TokenKeys(w, r)
	case r.Operation == plan.ClusterEncryptionKey:
		return planner.RotateEncryptionKey(w, r)
	case slices.Contains(planner.AuthorityOperations(), r.Operation):
		return planner.RotateAuthority(w, r)
	case r.Operation == plan.ClusterSigningKey:
		return planner.RotateServiceAccountKey(w, r)
	case r.Operation == plan.ClusterSSHAuthority:
		return planner.RotateSSHAuthority(w, r)
	case r.Operation == plan.ClusterConsul:
		return planner.Consul(w, r)
	case r.Operation == plan.ClusterRotateCerts:
		return planner.RotateCertificates(w, r)
	case r.Operation == plan.ClusterBackup:
		return planner.Backup(w, r)
	case r.Operation == plan.ClusterRestore:
		return planner.RestoreBackup(w, r)
	case r.Operation == plan.ClusterDrill:
		return planner.Drill(w, r)
	case r.Operation.OnNodes():
		content, err = planner.Node(w, r)
	case r.Operation == plan.ClusterCreate && w.Installed != nil:
		return planner.Create(w)
	case r.Operation == "" || slices.Contains(plan.Operations(), r.Operation):
		if content, err = planner.Apply(
			w, r,
		); err == nil && r.Operation != "" && content.Operation != r.Operation && len(content.Steps) > 0 {
			return plan.Content{}, director.Errorf(
				director.KindConflict, "planning.make", "cluster %s needs %s, and not %s", content.Cluster,
				content.Operation, r.Operation,
			).
				WithHint("leave the operation out, and the director chooses it")
		}
	default:
		return plan.Content{}, director.Errorf(
			director.KindInvalid, "planning.make", "there is no operation %q", r.Operation,
		).
			WithHint("one of %s", joined(plan.Operations()))
	}
	return content, err
}

func joined(ops []plan.Operation) string {
	var names []string
	for _, o := range ops {
		names = append(names, string(o))
	}
	return strings.Join(names, ", ")
}
