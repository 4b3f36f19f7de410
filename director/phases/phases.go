// Package phases answers an outer orchestrator that works on hosts: may it begin, and are the nodes back. Its tasks are
// written down before anything is planned.
package phases

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/store"
)

// Worlds reads what plans are made from. *snapshot.Reader implements it.
type Worlds interface {
	World(ctx context.Context, cluster string) (planner.World, error)
}

// Plans makes plans and starts them.
type Plans interface {
	// MakePlanWith freezes a plan; with, called with the plan's id, belongs to the transaction that stores it.
	MakePlanWith(
		ctx context.Context, actor, cluster string, r plan.Request, with func(tx *store.Tx, id string) error,
	) (plan.View, error)
	// Try says what the plan would be refused for. Nothing is stored.
	Try(ctx context.Context, cluster string, r plan.Request) error
	// Start starts the plan with the hash.
	Start(ctx context.Context, actor, id, hash string) error
	// WantsApproval reports whether a person has to agree to the plan before it starts.
	WantsApproval(p plan.Plan, s plan.State) bool
}

// Journal shows plans with their states.
type Journal interface {
	Plan(ctx context.Context, id string) (plan.View, error)
}

// Nodes says how nodes are.
type Nodes interface {
	// Ill names the nodes of the cluster that are not well, each with what is wrong with it. unseen says why that is
	// not known.
	Ill(ctx context.Context, cluster string) (ill []string, unseen string, err error)
}

// Upgrades changes the root of the appliance that this director runs on. *upgrades.Service implements it.
type Upgrades interface {
	// State returns which root runs, and how far the last change is; not_found on a machine that is no appliance.
	State(ctx context.Context) (rootdisk.State, error)
	// Look checks an uploaded archive, and returns the root in it.
	Look(ctx context.Context, upload string) (rootdisk.Root, error)
	// Upgrade asks for the root in the archive.
	Upgrade(ctx context.Context, upload string, r rootdisk.Request) error
}

// Config is what New needs.
type Config struct {
	Store    *store.Store
	Worlds   Worlds
	Plans    Plans
	Journal  Journal
	Nodes    Nodes
	Upgrades Upgrades
	// Fetch brings an upload here from another director of the database; not_found if none has it. It is nil without
	// other directors.
	Fetch    func(ctx context.Context, upload string) error
	Instance string        // of this director
	Host     string        // that it runs on
	Held     func() bool   // whether this director may change nothing now; nil for never
	PlanLife time.Duration // after which a task that has begun nothing is given up; zero is for never
	Now      func() time.Time
}

// Service takes the tasks of outer orchestrators. It is safe for concurrent use.
type Service struct {
	Config
	moves sync.Mutex // held by who moves a task
}

// New returns the service.
func New(c Config) *Service { return &Service{Config: c} }

// View is a task of an outer plan with its plans.
type View struct {
	director.PhaseTask
	Plans map[string]plan.View // by id
}

// askTime bounds how long plans are made for one question. That continues without the asker: what was begun is of use
// to the next one.
const askTime = 45 * time.Second

// AskPhase takes a task of an outer plan (requirement D5). It is written down before anything is planned, and every
// plan in the transaction that stores it, so that a director which dies anywhere in between continues where it was when
// a person asks again.
func (s *Service) AskPhase(ctx context.Context, actor, id string, r director.PhaseRequest) (View, error) {
	if err := check(r); err != nil {
		return View{}, err
	}
	t, err := s.Store.PhaseTask(ctx, id)
	if director.KindOf(err) == director.KindNotFound {
		t = director.PhaseTask{
			ID: id, Request: r, By: actor, State: director.PhaseWaiting, Message: "nothing was begun yet",
			Started: s.instant(),
		}
		if err = s.accept(ctx, &t); err == nil {
			t, err = s.add(ctx, t)
		}
	}
	if err != nil {
		return View{}, err
	}
	if t.Request != r {
		return View{}, director.Errorf(
			director.KindConflict, "phases", "task %s was given for %s, and is now asked for %s", id,
			textOf(t.Request), textOf(r),
		).
			WithHint("use an id of its own for each task; look at this one: GET /phases/%s", id)
	}
	return s.move(ctx, t)
}

// Phase returns the task, moved on as far as it goes now.
func (s *Service) Phase(ctx context.Context, id string) (View, error) {
	t, err := s.Store.PhaseTask(ctx, id)
	if err != nil {
		return View{}, err
	}
	return s.move(ctx, t)
}

// check refuses requests that name the wrong things for their phase.
func check(r director.PhaseRequest) error {
	var problems []director.Field
	bad := func(path, msg, hint string) {
		problems = append(problems, director.Field{Path: path, Msg: msg, Hint: hint})
	}
	switch {
	case r.Phase == director.PhaseDirector:
		if r.Upload == "" {
			bad("upgrade", "director is for the upgrade in an upload", "name the upload")
		}
		if r.Cluster != "" || r.Host != "" || r.Node != "" || r.Provider != "" {
			bad("host", "director is for the appliance of a director", "leave cluster, host, node and provider out")
		}
		if r.Undrained || r.Unmanaged || r.DeleteEmptyDir {
			bad("drain", "no node is drained for the upgrade of a director", "leave drain and undrained out")
		}
	case r.Phase.OnNodes():
		if (r.Host == "") == (r.Node == "") {
			bad("host", string(r.Phase)+" is for a host or for a node", "name exactly one of host and node")
		}
		if r.Cluster != "" {
			bad("cluster", string(r.Phase)+" concerns every cluster that has nodes there", "leave it out")
		}
	default:
		if r.Cluster == "" {
			bad("cluster", string(r.Phase)+" is for a cluster", "name it")
		}
		if r.Host != "" || r.Node != "" || r.Provider != "" {
			bad("host", string(r.Phase)+" is for a cluster as a whole", "leave host, node and provider out")
		}
	}
	if r.Phase != director.PhaseDirector && (r.Director != "" || r.Upload != "" || r.Within != 0) {
		bad("upgrade", "directors are upgraded in the phase director", "leave director and upgrade out")
	}
	if r.Install && r.Phase != director.PhaseCluster {
		bad("install", "clusters are installed in "+string(director.PhaseCluster), "leave it out")
	}
	if r.HostKeys != "" && r.Phase != director.PhasePostNodeUnlock {
		bad("host_keys", "host keys are for "+string(director.PhasePostNodeUnlock), "leave them out")
	}
	return director.Invalid("phases", "the task does not fit its phase", problems)
}

// textOf tells what a request asks for, with all that makes it differ from another one.
func textOf(r director.PhaseRequest) string {
	text := string(r.Phase) + " of"
	for _, part := range [][2]string{
		{"cluster", r.Cluster}, {"host", r.Host}, {"node", r.Node}, {"director", r.Director}, {"upload", r.Upload},
	} {
		if part[1] != "" {
			text += " " + part[0] + " " + part[1]
		}
	}
	if r.Provider != "" {
		text += " of provider " + r.Provider
	}
	var how []string
	if r.DrainTimeout != 0 {
		how = append(how, "drain timeout "+r.DrainTimeout.String())
	}
	if r.Within != 0 {
		how = append(how, "within "+r.Within.String())
	}
	for word, set := range map[string]bool{
		"unmanaged": r.Unmanaged, "delete emptydir": r.DeleteEmptyDir, "undrained": r.Undrained, "install": r.Install,
		"host keys of " + strings.Join(slices.Sorted(maps.Keys(r.KeysOfHosts())), ", "): r.HostKeys != "",
	} {
		if set {
			how = append(how, word)
		}
	}
	if slices.Sort(how); len(how) > 0 {
		text += " (" + strings.Join(how, ", ") + ")"
	}
	return text
}

// accept finds what a new task is about, and refuses it for what is in its way, other than plans: those it waits for.
func (s *Service) accept(ctx context.Context, t *director.PhaseTask) error {
	if t.Request.Phase == director.PhaseDirector {
		return s.acceptUpgrade(ctx, t)
	}
	parts, err := s.parts(ctx, t.Request)
	if err != nil {
		return err
	}
	t.Parts = parts
	for node := range t.Request.KeysOfHosts() {
		if !slices.ContainsFunc(parts, func(p director.PhasePart) bool { return slices.Contains(p.Nodes, node) }) {
			return director.Errorf(
				director.KindConflict, "phases",
				"there is a host key for %s, which is not out of its cluster there", node,
			).
				WithHint(
					"lock its host before its VM is recreated, or rejoin it: directorctl node rejoin CLUSTER %s "+
						"--host-key FILE",
					node,
				)
		}
	}
	keys := t.Request.KeysOfHosts()
	if _, err := planner.CheckHostKeys(plan.Request{
		Operation: plan.NodeRejoin, Nodes: slices.Collect(maps.Keys(keys)), HostKeys: keys,
	}); err != nil {
		return err
	}
	if len(parts) == 0 {
		t.State, t.Message, t.Finished = director.PhaseDone, nothingToDo(t.Request), t.Started
		return nil
	}
	// Side by side: a cluster that does not answer takes its time, and the caller waits.
	refusals := make([]error, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() { refusals[i] = s.acceptPart(ctx, t.Request, p) })
	}
	all.Wait()
	for _, err := range refusals {
		if err != nil {
			return err
		}
	}
	return nil
}

// acceptPart makes the plan that the part would have, to see what is in its way, and forgets it.
func (s *Service) acceptPart(ctx context.Context, r director.PhaseRequest, p director.PhasePart) error {
	installing, err := s.installing(ctx, r, p, plan.State{})
	if err != nil {
		return err
	}
	if !installing {
		if err := s.mayBegin(ctx, r, p.Cluster, p.Nodes); err != nil || !r.Phase.OnNodes() {
			return err
		}
	}
	holder, err := s.Store.Holder(ctx, p.Cluster)
	if err != nil || holder != "" {
		return err
	}
	request, err := s.request(ctx, r, p)
	if err != nil {
		return err
	}
	return s.Plans.Try(ctx, p.Cluster, request)
}

func nothingToDo(r director.PhaseRequest) string {
	what := "host " + r.Host + " has no node of a cluster"
	if r.Node != "" {
		what = "node " + r.Node + " is out of its cluster already"
	}
	if r.Phase == director.PhasePostNodeUnlock {
		what = "host " + r.Host + " has no node that is out of its cluster"
		if r.Node != "" {
			what = "node " + r.Node + " is in its cluster"
		}
	}
	return what + ": nothing is to be done"
}

// add stores the task, and returns the one that is stored then: another try may have been quicker.
func (s *Service) add(ctx context.Context, t director.PhaseTask) (director.PhaseTask, error) {
	err := s.Store.Update(ctx, func(tx *store.Tx) error {
		added, err := tx.AddPhaseTask(t)
		if err != nil || !added {
			return err
		}
		for _, p := range t.Parts {
			object := "Cluster/" + p.Cluster
			if p.Upgrade.Host != "" {
				object = "Appliance/" + p.Upgrade.Host
			}
			if err := tx.Audit(s.Now(), t.By, string(t.Request.Phase)+" "+t.ID, object); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	return s.Store.PhaseTask(ctx, t.ID)
}

// mayBegin checks what the phase asks of a cluster, other than that no plan holds it.
func (s *Service) mayBegin(ctx context.Context, r director.PhaseRequest, cluster string, nodes []string) error {
	switch r.Phase {
	case director.PhasePreNodeLock:
		w, err := s.Worlds.World(ctx, cluster)
		if err != nil {
			return err
		}
		leaving, err := s.leaving(ctx, cluster)
		if err != nil {
			return err
		}
		host := r.Host
		for _, m := range w.Machines {
			if m.Name == r.Node && m.Deleted.IsZero() {
				host = m.Host
			}
		}
		return planner.TakeOut(w, host, nodes, leaving)
	case director.PhaseCluster, director.PhasePostCluster:
		holder, err := s.Store.Holder(ctx, cluster)
		if err != nil || holder != "" {
			return err // what a plan is at is judged after it
		}
		return s.allWell(ctx, cluster)
	}
	return nil
}

// installing reports whether the part creates its cluster, or continues to: the request asks for it, and the cluster
// was not installed when the task came to it. state is that of the part's newest plan.
func (s *Service) installing(
	ctx context.Context, r director.PhaseRequest, p director.PhasePart, state plan.State,
) (bool, error) {
	if !r.Install {
		return false, nil
	}
	if len(p.Plans) > 0 {
		return state.Status != plan.StatusDone, nil
	}
	_, installed, err := s.Store.Installed(ctx, p.Cluster)
	return !installed, err
}

// leaving returns the nodes that the plan which holds the cluster takes out for good or for a time.
func (s *Service) leaving(ctx context.Context, cluster string) ([]string, error) {
	holder, err := s.Store.Holder(ctx, cluster)
	if err != nil || holder == "" {
		return nil, err
	}
	p, _, err := s.Store.Plan(ctx, holder)
	if err != nil || (p.Operation != plan.NodeDelete && p.Operation != plan.NodeReplace) {
		return nil, err
	}
	return p.Request.Nodes, nil
}

// allWell returns nil if the cluster is installed and every node of it is well, and otherwise a conflict that names
// those that are not.
func (s *Service) allWell(ctx context.Context, cluster string) error {
	const op = "phases"
	ill, unseen, err := s.Nodes.Ill(ctx, cluster)
	if err != nil {
		return err
	}
	if _, installed, err := s.Store.Installed(ctx, cluster); err != nil {
		return err
	} else if !installed {
		return director.Errorf(director.KindConflict, op, "cluster %s is not installed", cluster).
			WithHint("finish its creation first: directorctl plan %s", cluster)
	}
	if unseen != "" {
		return director.Errorf(
			director.KindConflict, op, "the state of the nodes of cluster %s is unknown: %s", cluster, unseen,
		).
			WithHint("bring its Kubernetes API back first; see: directorctl node list %s", cluster)
	}
	if len(ill) > 0 {
		return director.Errorf(
			director.KindConflict, op, "nodes of cluster %s are not well: %s", cluster, strings.Join(ill, "; "),
		).
			WithHint("repair them first: directorctl node repair %s --wait", cluster)
	}
	return nil
}

// request returns the plan that the part needs next. Nodes cannot join while the document asks for a release that the
// masters do not run yet: then the members are upgraded first, and the nodes come back at that release.
func (s *Service) request(ctx context.Context, r director.PhaseRequest, p director.PhasePart) (plan.Request, error) {
	if r.Phase == director.PhaseCluster {
		return plan.Request{Operation: plan.ClusterCreate}, nil
	}
	drain := plan.Drain{Timeout: r.DrainTimeout, Unmanaged: r.Unmanaged, DeleteEmptyDir: r.DeleteEmptyDir}
	if r.Phase == director.PhasePreNodeLock {
		return plan.Request{
			Operation: plan.NodeDelete, Nodes: p.Nodes, KeepVM: true, Undrained: r.Undrained, Drain: drain,
		}, nil
	}
	w, err := s.Worlds.World(ctx, p.Cluster)
	if err != nil {
		return plan.Request{}, err
	}
	if runs, _ := w.Behind(); runs != "" {
		return plan.Request{Operation: plan.ClusterUpgrade, Drain: drain}, nil
	}
	request := plan.Request{Operation: plan.NodeRejoin, Nodes: p.Nodes}
	for node, key := range r.KeysOfHosts() {
		if slices.Contains(p.Nodes, node) {
			if request.HostKeys == nil {
				request.HostKeys = map[string]string{}
			}
			request.HostKeys[node] = key
		}
	}
	return request, nil
}
