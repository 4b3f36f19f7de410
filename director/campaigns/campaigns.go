package campaigns

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// Planning makes plans and starts them. *planning.Service implements it.
type Planning interface {
	MakePlanWith(
		ctx context.Context, actor, cluster string, r plan.Request, with func(tx *store.Tx, id string) error,
	) (plan.View, error)
	StartWith(ctx context.Context, actor, id, hash string, with func(*store.Tx) error) error
	// Moved returns a conflict that says why the plan would not be started as it is.
	Moved(ctx context.Context, p plan.Plan, state plan.State) error
	// WantsApproval reports whether a person has to agree to the plan itself before it starts.
	WantsApproval(p plan.Plan, state plan.State) bool
	// MayApprove returns why the person may not agree to the plan.
	MayApprove(actor string, p plan.Plan) error
	// Approve agrees to the plan.
	Approve(ctx context.Context, actor, id, hash string) error
}

// Candidate is a cluster that a campaign may be for.
type Candidate struct{ Name, Project string }

// Clusters lists clusters.
type Clusters interface {
	// Select returns the clusters with the labels and one of the statuses, by name.
	Select(ctx context.Context, labels, statuses []string, visible *director.Visible) ([]Candidate, error)
}

// Documents checks documents. *documents.Service implements it.
type Documents interface {
	Apply(ctx context.Context, actor string, text []byte, source string, dryRun bool) ([]model.Change, error)
}

// Config is what New needs.
type Config struct {
	Store     *store.Store
	Planning  Planning
	Clusters  Clusters
	Documents Documents
	// Difference says in which way a plan differs from a newer one.
	Difference func(was, is plan.Plan) string
	// Changed returns the document with a merge patch applied to its spec.
	Changed func(was model.Stored, patch json.RawMessage) (model.Stored, error)
	// May reports whether the person of the name may do the action on the object now; nil lets all. Starts ask it:
	// between an agreement and the start of the last plan weeks may pass.
	May func(ctx context.Context, name string, a director.Action, o director.Object) (bool, error)
	// Look computes the plan that a cluster would get, or everything that there would be none for. Nothing is stored.
	Look  func(ctx context.Context, cluster string, r plan.Request) (Look, error)
	Lease time.Duration // how long a silent director keeps a campaign; 20 s if zero
	Log   *slog.Logger
}

// Service makes campaigns and moves them on. It is safe for concurrent use.
type Service struct {
	Config
	owner string
	wake  chan struct{}
	stop  context.CancelFunc
	loop  sync.WaitGroup

	mu    sync.Mutex
	later map[string]time.Time // when a cluster is tried again: campaign/cluster
}

// New returns the service. Nothing moves before Start.
func New(c Config) *Service {
	if c.Lease == 0 {
		c.Lease = 20 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{Config: c, owner: newID(), wake: make(chan struct{}, 1), later: map[string]time.Time{}}
}

func newID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return hex.EncodeToString(b)
}

// Person is who asks.
type Person struct {
	Name    string
	Visible *director.Visible // the clusters that the person may see; nil for all
	// May reports whether the person may do the action on the object.
	May func(director.Action, director.Object) bool
	// Store returns why the person may not replace a document; nil for a person who may store all.
	Store func(was, is *model.Document) error
}

// View is a campaign with how far it is.
type View struct {
	director.Campaign
	Progress
}

const op = "campaigns.make"

// Create makes a campaign for the clusters of the selector that the person may change. Its plans are made afterwards,
// one by one. Every problem is reported at once.
func (s *Service) Create(ctx context.Context, by Person, name string, spec director.CampaignSpec) (View, error) {
	spec = filled(spec)
	problems := append(problemsOf(spec), nameProblems(name)...)
	more, err := s.missing(ctx, spec.Target)
	if err != nil {
		return View{}, err
	}
	if err := director.Invalid(op, "the campaign is not valid", append(problems, more...)); err != nil {
		return View{}, err
	}
	list, err := s.choose(ctx, by, spec)
	if err != nil {
		return View{}, err
	}
	now, err := s.Store.Clock(ctx)
	if err != nil {
		return View{}, err
	}
	c := director.Campaign{
		ID: now.UTC().Format("0102-150405") + "-" + newID()[:6], Name: name, Spec: spec, Created: now.UTC(),
		CreatedBy: by.Name, Clusters: list,
	}
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		busy, err := tx.BusyInCampaigns(list)
		if err == nil {
			err = notBusy(list, busy)
		}
		if err != nil {
			return err
		}
		if err := tx.AddCampaign(c); err != nil {
			return err
		}
		if err := tx.Witnessed(ctx, c.ID); err != nil {
			return err
		}
		return tx.Audit(now, by.Name, fmt.Sprintf("make for %d clusters", len(list)), object(c.ID))
	})
	if err != nil {
		return View{}, err
	}
	s.Wake()
	return s.Get(ctx, by, c.ID)
}

func nameProblems(name string) []director.Field {
	if strings.TrimSpace(name) == "" || utf8.RuneCountInString(name) > 100 ||
		strings.ContainsFunc(name, unicode.IsControl) {
		return []director.Field{{
			Path: "name", Msg: "is no name", Hint: "write a line of at most 100 characters that says what it is for",
		}}
	}
	return nil
}

func object(id string) string { return "Campaign/" + id }

// notBusy is a conflict if another campaign has one of the clusters: each would take the plans of the other away.
func notBusy(list []director.CampaignCluster, busy map[string]string) error {
	var texts []string
	other := ""
	for _, m := range list {
		if id, ok := busy[m.Name]; ok {
			other = cmp.Or(other, id)
			texts = append(texts, m.Name+" in "+id)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	more := ""
	if n := len(texts) - 5; n > 0 {
		texts, more = texts[:5], fmt.Sprintf(" and %d more", n)
	}
	return director.Errorf(
		director.KindConflict, op, "clusters are in campaigns that have not ended: %s%s", strings.Join(texts, ", "),
		more,
	).WithHint(
		"end that campaign: directorctl campaign end %s, or remove clusters from it: directorctl campaign skip", other,
	)
}

// missing returns the documents of the target that there are not.
func (s *Service) missing(ctx context.Context, t director.CampaignTarget) ([]director.Field, error) {
	var out []director.Field
	for _, d := range []struct {
		path, name string
		kind       model.Kind
	}{{"target.release", t.Release, model.KindRelease}, {"target.image", t.Image, model.KindImage}} {
		if d.name == "" {
			continue
		}
		_, err := s.Store.Document(ctx, model.Ref{Kind: d.kind, Name: d.name})
		switch {
		case director.KindOf(err) == director.KindNotFound:
			out = append(out, director.Field{
				Path: d.path, Msg: fmt.Sprintf("there is no %s/%s", d.kind, d.name), Hint: "apply its document first",
			})
		case err != nil:
			return nil, err
		}
	}
	return out, nil
}

// choose returns the clusters of the selector, in the order in which they are changed.
func (s *Service) choose(
	ctx context.Context, by Person, spec director.CampaignSpec,
) ([]director.CampaignCluster, error) {
	sel := spec.Selector
	all, err := s.Clusters.Select(ctx, sel.Labels, sel.Statuses, by.Visible)
	if err != nil {
		return nil, err
	}
	byName := map[string]Candidate{}
	names := sel.Clusters
	for _, c := range all {
		byName[c.Name] = c
		if len(sel.Clusters) == 0 {
			names = append(names, c.Name)
		}
	}
	var out []director.CampaignCluster
	var problems []director.Field
	seen := map[string]bool{}
	for _, name := range names {
		c, ok := byName[name]
		path := fmt.Sprintf("selector.clusters[%d]", slices.Index(names, name))
		if seen[name] {
			continue
		}
		seen[name] = true
		if !ok {
			problems = append(problems, director.Field{
				Path: path, Msg: "there is no cluster " + name + " that the rest of the selector fits",
				Hint: "see directorctl get clusters",
			})
			continue
		}
		doc, err := s.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: name})
		if err != nil {
			return nil, err
		}
		if fits, err := s.versionFits(ctx, sel.Versions, name); err != nil {
			return nil, err
		} else if !fits {
			continue
		}
		if err := s.may(by, spec.Target, doc, c); err != nil {
			if len(sel.Clusters) > 0 {
				problems = append(problems, director.Field{
					Path: path, Msg: director.MessageOf(err), Hint: director.HintOf(err),
				})
			}
			continue
		}
		out = append(out, director.CampaignCluster{Name: name, UID: doc.UID, Project: c.Project})
	}
	if len(problems) == 0 {
		problems = tooFewOrMany(len(out))
	}
	return out, director.Invalid(op, "the campaign is not valid", problems)
}

// tooFewOrMany says what is wrong with a selector that fits so many clusters.
func tooFewOrMany(clusters int) []director.Field {
	switch {
	case clusters == 0:
		return []director.Field{{
			Path: "selector", Msg: "fits no cluster that you may change", Hint: "see directorctl get clusters",
		}}
	case clusters > mostClusters:
		return []director.Field{{
			Path: "selector", Msg: fmt.Sprintf("fits %d clusters", clusters),
			Hint: fmt.Sprintf("make several campaigns of at most %d", mostClusters),
		}}
	}
	return nil
}

func (s *Service) versionFits(ctx context.Context, wanted []string, cluster string) (bool, error) {
	if len(wanted) == 0 {
		return true, nil
	}
	version, err := s.version(ctx, cluster)
	return version != "" && model.FitsVersion(wanted, version), err
}

// version is the Kubernetes version that was installed; empty for none, or one whose release is gone.
func (s *Service) version(ctx context.Context, cluster string) (string, error) {
	inst, ok, err := s.Store.Installed(ctx, cluster)
	if err != nil || !ok {
		return "", err
	}
	r, err := s.Store.Document(ctx, model.Ref{Kind: model.KindRelease, Name: inst.Document.Cluster.Release})
	if director.KindOf(err) == director.KindNotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return r.Release.Kubernetes, nil
}

// needs are the actions that a person must be allowed to do on a cluster to bring it to the target.
func needs(t director.CampaignTarget) []director.Action {
	if t.Changes() {
		return []director.Action{director.ActPlan, director.ActRun, director.ActApply}
	}
	return []director.Action{director.ActPlan, director.ActRun}
}

func (s *Service) may(by Person, t director.CampaignTarget, doc model.Stored, c Candidate) error {
	o := clusterObject(c.Name, c.Project)
	for _, a := range needs(t) {
		if !by.May(a, o) {
			return director.Errorf(director.KindForbidden, op, "you may not %s cluster %s", a, c.Name).
				WithHint("directorctl whoami shows what you may do")
		}
	}
	if r := request(t); len(r.Change) > 0 && by.Store != nil {
		is, err := s.Changed(doc, r.Change)
		if err != nil {
			return nil //nolint:nilerr // its plan is refused with the reason
		}
		return by.Store(&doc.Document, &is.Document)
	}
	return nil
}

func clusterObject(name, project string) director.Object {
	return director.Object{Kind: string(model.KindCluster), Name: name, Cluster: name, Project: project}
}

// allowed is forbidden unless the person may do to every cluster of the campaign what it does; to who may not see all
// of them it does not exist.
func allowed(by Person, c director.Campaign, change bool) error {
	for _, m := range c.Clusters {
		o := clusterObject(m.Name, m.Project)
		if !by.May(director.ActRead, o) {
			return director.Errorf(director.KindNotFound, "campaigns.get", "there is no campaign %s", c.ID).
				WithHint("see directorctl campaign list")
		}
		for _, a := range needs(c.Spec.Target) {
			if change && !by.May(a, o) {
				return director.Errorf(
					director.KindForbidden, "campaigns.may", "you may not %s cluster %s, which is in the campaign", a,
					m.Name,
				).WithHint("directorctl whoami shows what you may do")
			}
		}
	}
	return nil
}

// Get returns the campaign, or not_found.
func (s *Service) Get(ctx context.Context, by Person, id string) (View, error) {
	c, err := s.Store.Campaign(ctx, id)
	if err != nil {
		return View{}, err
	}
	if err := allowed(by, c, false); err != nil {
		return View{}, err
	}
	return s.view(ctx, c)
}

func (s *Service) view(ctx context.Context, c director.Campaign) (View, error) {
	now, err := s.Store.Clock(ctx)
	return View{c, ProgressOf(c, now)}, err
}

// List returns the campaigns that the person may see, the newest first.
func (s *Service) List(ctx context.Context, by Person) ([]View, error) {
	ids, err := s.Store.Campaigns(ctx, false)
	if err != nil {
		return nil, err
	}
	out := []View{}
	for _, id := range ids {
		v, err := s.Get(ctx, by, id)
		if director.KindOf(err) == director.KindNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

var errSame = errors.New("campaigns: nothing is to be done")

// change does what a person says, in one transaction.
func (s *Service) change(
	ctx context.Context, by Person, id, verb string,
	fn func(tx *store.Tx, c *director.Campaign, p Progress, now time.Time) error,
) (View, error) {
	now, err := s.Store.Clock(ctx)
	if err != nil {
		return View{}, err
	}
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		c, err := tx.Campaign(id)
		if err != nil {
			return err
		}
		if err := allowed(by, c, true); err != nil {
			return err
		}
		p := ProgressOf(c, now)
		if !c.Ended.IsZero() || p.Status == StatusDone { // done: a director writes the end down in a moment
			return director.Errorf(director.KindConflict, "campaigns.change", "campaign %s has ended", id)
		}
		if err := fn(tx, &c, p, now); err != nil {
			return err
		}
		if err := tx.SetCampaign(c); err != nil {
			return err
		}
		return tx.Audit(now, by.Name, verb, object(id))
	})
	if err != nil && !errors.Is(err, errSame) {
		return View{}, err
	}
	s.forget(id)
	s.Wake()
	return s.Get(ctx, by, id)
}
