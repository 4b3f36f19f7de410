package nodes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// repairActor is who makes and starts the plans of automatic repairs. No user can have a name with a space.
const repairActor = "automatic repair"

// repairs remembers since when nodes are ill, and what was said last. It is lost with the process: then a repair comes
// later, and none comes too soon.
type repairs struct {
	mu    sync.Mutex
	since map[string]map[string]time.Time // by cluster and node
	said  map[string]string               // by cluster
}

// only forgets all other clusters than these, and what was said of them.
func (r *repairs) only(clusters []model.Stored) {
	stays := make(map[string]bool, len(clusters))
	for _, d := range clusters {
		stays[d.Metadata.Name] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.since, func(name string, _ map[string]time.Time) bool { return !stays[name] })
	maps.DeleteFunc(r.said, func(name, _ string) bool { return !stays[name] })
}

// forget ends what is known of the cluster's nodes: they were not looked at, or are being worked on.
func (r *repairs) forget(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.since, cluster)
}

// seen notes which nodes are ill now, and fills in since when they have been at every look.
func (r *repairs) seen(cluster string, ill []ailing, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, is := r.since[cluster], map[string]time.Time{}
	for i := range ill {
		a := &ill[i]
		a.since = now
		if t, known := was[a.node]; known {
			a.since = t
		}
		is[a.node] = a.since
	}
	r.since[cluster] = is
}

// say remembers what is shown of the cluster, and reports whether that is news.
func (r *repairs) say(cluster, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := r.said[cluster] != text
	if r.said[cluster] = text; text == "" {
		delete(r.said, cluster)
	}
	return news
}

func (r *repairs) saying(cluster string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said[cluster]
}

// Repair looks at every cluster whose document asks for automatic repair, and begins to mend at most one node of each
// (requirement B7). It is called again and again; a node is mended when it was ill at every call for as long as the
// document says. Errors of one cluster do not keep others from being looked at.
func (s *Service) Repair(ctx context.Context, now time.Time) error {
	docs, err := s.Store.SelfRepairing(ctx)
	if err != nil {
		return err
	}
	s.repairs.only(docs)
	var errs []error
	for _, d := range docs {
		name := d.Metadata.Name
		v, err := s.repairOne(ctx, name, *d.Cluster.Maintenance.Repair, now)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && director.KindOf(err) == director.KindInternal:
			errs = append(errs, err)
			continue
		case err != nil: // the request does not fit the world: quorum, room, another's VM
			why := append([]string{v.why, director.MessageOf(err)}, fieldTexts(err)...)
			v = verdict{stop: true, why: strings.Join(why, "; ")}
		}
		if s.repairs.say(name, v.why) && v.stop {
			s.Log.WarnContext(ctx, "automatic repair has stopped", "cluster", name, "why", v.why)
			errs = append(
				errs,
				s.Store.Update(ctx, func(tx *store.Tx) error {
					return tx.Audit(now, repairActor, "stopped: "+v.why, "Cluster/"+name)
				}),
			)
		}
	}
	return errors.Join(errs...)
}

func fieldTexts(err error) []string {
	var out []string
	for _, f := range director.FieldsOf(err) {
		out = append(out, f.String())
	}
	return out
}

// repairOne looks at one cluster. With an error, the verdict says what was to be mended.
func (s *Service) repairOne(ctx context.Context, cluster string, care model.Repair, now time.Time) (verdict, error) {
	v, err := s.nodes(ctx, cluster)
	if err != nil {
		return verdict{}, err
	}
	if why := unsure(v); why != "" {
		s.repairs.forget(cluster)
		return verdict{why: why}, nil
	}
	w := ward{care: care, now: now}
	for _, n := range v.Nodes {
		// taken out, or being worked on; what is on a lost host is a person's to give up
		if n.Version == "" || n.Cordoned || n.HostLost {
			continue
		}
		w.members++
		if n.Repair != "" {
			w.ill = append(w.ill, ailing{node: n.Name, problem: n.Problem, mend: s.mildest(ctx, cluster, n)})
		}
	}
	s.repairs.seen(cluster, w.ill, now)
	var half string
	if w.past, half, err = s.pastRepairs(ctx, cluster, now, time.Duration(care.After)); err != nil {
		return verdict{}, err
	}
	if half != "" && len(w.ill) > 0 {
		return verdict{stop: true, why: half}, nil
	}
	d := w.decide()
	if d.op == "" {
		return d, nil
	}
	p, err := s.Plans.MakePlan(ctx, repairActor, cluster, plan.Request{Operation: d.op, Nodes: []string{d.node}})
	if err != nil {
		return d, err
	}
	if len(p.Plan.Steps) == 0 {
		return verdict{stop: true, why: d.why + "; and " + p.Plan.Summary}, nil
	}
	if s.Plans.WantsApproval(p.Plan, p.State) {
		return verdict{
			stop: true,
			why: d.why + "; plan " + p.Plan.ID + " has to be approved and started: " +
				strings.Join(p.Plan.Approvals, "; "),
		}, nil
	}
	if err := s.Plans.Start(ctx, repairActor, p.Plan.ID, p.Plan.Hash); err != nil {
		return d, err
	}
	s.repairs.forget(cluster)
	s.Log.InfoContext(
		ctx, "a repair was started", "cluster", cluster, "plan_id", p.Plan.ID, "operation", string(d.op), "node",
		d.node, "why", d.why,
	)
	return verdict{why: d.why + "; plan " + p.Plan.ID + " mends it"}, nil
}

// unsure says why it is not known how the nodes are: then nothing is an illness. An outage of the API or of the
// hypervisor must not cost a VM.
func unsure(v View) string {
	switch {
	case v.Plan != "":
		return "plan " + v.Plan + " holds the cluster"
	case v.Unseen != "" && v.Unseen != pretends:
		return "the state of the nodes is unknown: " + v.Unseen
	case slices.ContainsFunc(v.Nodes, func(n Node) bool { return n.Power == "" && !n.HostLost }):
		return "the state of the VMs is unknown: the hypervisor cannot be asked"
	}
	return ""
}

// mildest returns what may mend the node with the least loss: a machine that answers is joined again, and keeps its VM.
func (s *Service) mildest(ctx context.Context, cluster string, n Node) plan.Operation {
	if n.Repair != plan.NodeReplace || n.Power != string(hypervisor.PowerOn) {
		return n.Repair
	}
	if up, err := s.Clusters.Answers(ctx, director.Machine{
		Cluster: cluster, Name: n.Name, Address: n.Address,
	}); err == nil && up {
		return plan.NodeRejoin
	}
	return n.Repair
}

// pastRepairs returns the automatic repairs of the last day. half says which other plan was left half way, or was made
// just now by a person who will want to start it: then it is not the time to make another one.
func (s *Service) pastRepairs(
	ctx context.Context, cluster string, now time.Time, courtesy time.Duration,
) (past []pastRepair, half string, err error) {
	const most = 200 // plans of a cluster within a day, and then some
	ids, err := s.Store.Plans(ctx, store.PlanFilter{Cluster: cluster, Limit: most})
	if err != nil {
		return nil, "", err
	}
	newest := true // of those that were started
	for _, id := range ids {
		p, state, err := s.Store.Plan(ctx, id)
		if err != nil {
			return nil, "", err
		}
		waits := state.Status == plan.StatusPlanned || state.Status == plan.StatusApproved
		if state.StartedAt.IsZero() && (!waits || s.PlanLife > 0 && now.After(p.CreatedAt.Add(s.PlanLife))) {
			continue // it never did anything and never will
		}
		ours := p.CreatedBy == repairActor
		switch {
		case ours && len(p.Request.Nodes) == 1:
			at := state.StartedAt
			if at.IsZero() {
				at = p.CreatedAt
			}
			if at.After(now.Add(-repairDay)) || unfinished(state.Status) && newest {
				past = append(past, pastRepair{
					plan: id, node: p.Request.Nodes[0], op: p.Operation, at: at, status: state.Status,
				})
			}
		case waits && p.CreatedAt.After(now.Add(-courtesy)):
			half = "plan " + id + " of " + p.CreatedBy + " waits to be started"
		case !waits && newest && unfinished(state.Status):
			half = "plan " + id + " is " + string(state.Status) + ": finish it or discard it first"
		}
		newest = newest && waits
	}
	return past, half, nil
}
