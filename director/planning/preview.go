package planning

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/capacity"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/snapshot"
)

// PreviewView is the plan that would be made for a cluster if documents were stored.
type PreviewView struct {
	CheckView
	Groups    []plan.Group // of its steps
	Effects   []plan.Effect
	Approvals []string
	Estimate  time.Duration
	Machines  int        // VMs that it makes or takes away
	Hosts     []HostLeft // of the provider; none if it was not asked
}

// HostLeft is what a host has left after a plan.
type HostLeft struct {
	Host         string
	CPUs         int // math.MaxInt without a bound
	Memory, Disk int64
}

// Preview plans for the cluster as if the documents were stored, and checks the plan. Nothing is stored. A provider
// that is not stored yet, or would be another one, is not asked: its account is bound to what is stored.
func (s *Service) Preview(ctx context.Context, docs []model.Stored, cluster string) (PreviewView, error) {
	with := *s
	with.Reader = s.Reader.With(docs)
	v := PreviewView{CheckView: CheckView{Cluster: cluster}}
	holder, err := s.Store.Holder(ctx, cluster)
	if err != nil {
		return v, err
	}
	if holder != "" {
		v.add(s.Store.HeldBy(ctx, "planning.preview", holder, cluster), "Cluster/"+cluster)
	}
	w, err := with.facts().seen(ctx, cluster, plan.Request{})
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	if err != nil {
		v.add(err, "Cluster/"+cluster)
		return v, nil
	}
	content, err := with.draft(w.World, plan.Request{})
	if err != nil {
		v.add(err, "Cluster/"+cluster)
		return v, nil
	}
	changed := slices.ContainsFunc(docs, func(d model.Stored) bool {
		return d.Ref() == w.Provider.Ref() && !s.storedSo(ctx, d)
	})
	if changed {
		v.Warnings = append(v.Warnings, w.Provider.Ref().String()+" is not stored so yet: its hosts were not asked")
		v.Problems = append(v.Problems, with.prechecks().checkQuota(w, "")...)
	} else {
		v.Addresses, err = with.check(ctx, w, &content)
		v.add(err, "Cluster/"+cluster)
		v.Hosts = with.left(ctx, w, content)
	}
	v.of(content)
	return v, ctx.Err()
}

// storedSo reports whether the document is stored as it is.
func (s *Service) storedSo(ctx context.Context, d model.Stored) bool {
	is, err := s.Store.Document(ctx, d.Ref())
	return err == nil && len(model.Changes(is.Document, d.Document)) == 0
}

// of takes over what the plan does.
func (v *PreviewView) of(c plan.Content) {
	v.Operation, v.Summary, v.Steps = c.Operation, c.Summary, len(c.Steps)
	v.Warnings = append(v.Warnings, c.Warnings...)
	v.Approvals, v.Estimate, v.Machines = c.Approvals, c.Estimate, len(c.Machines)
	p := plan.Plan{Content: c}
	state := plan.NewState(&p)
	v.Groups = plan.Rollup(&p, &state).Groups
	for _, st := range c.Steps {
		if !st.Back() {
			v.Effects = append(v.Effects, st.Effects...)
		}
	}
}

// left is what the hosts have left after the plan.
func (s *Service) left(ctx context.Context, w *snapshot.Snapshot, c plan.Content) []HostLeft {
	b, err := w.Backend(ctx)
	if err != nil {
		return nil // the check says so
	}
	teller, ok := hypervisor.Capability[hypervisor.Capacity](b)
	if !ok {
		return nil
	}
	vms, err := w.VMs(ctx)
	if err != nil {
		return nil
	}
	rows, err := teller.Capacity(ctx)
	if err != nil {
		return nil
	}
	existing := map[string]bool{}
	for _, vm := range vms {
		existing[vm.Stamp.Machine] = existing[vm.Stamp.Machine] || vm.Stamp.Director == s.Director
	}
	sizes := map[string]model.VMSize{"master": w.Cluster.Cluster.Masters.VMSize}
	for _, p := range w.Cluster.Cluster.Workers {
		sizes[p.Name] = p.VMSize
	}
	needs := map[string]capacity.Need{}
	for _, m := range c.Machines {
		if !existing[m.ID] {
			needs[m.Host] = needs[m.Host].Add(capacity.NeedOf(sizes[m.Pool], 1))
		}
	}
	var out []HostLeft
	for _, h := range capacity.Hosts(rows, vms, w.Provider.Provider.Overcommit) {
		n := needs[h.Host]
		left := HostLeft{Host: h.Host, CPUs: h.CPUsLeft, Memory: h.MemoryLeft - n.Memory, Disk: h.DiskLeft - n.Disk}
		if left.CPUs != math.MaxInt {
			left.CPUs -= n.CPUs
		}
		out = append(out, left)
	}
	return out
}

// add takes the problems of an error. One without fields is about the place.
func (v *CheckView) add(err error, at string) {
	if err == nil {
		return
	}
	fields := slices.Clone(director.FieldsOf(err))
	for i := range fields {
		fields[i].Hint = cmp.Or(fields[i].Hint, director.HintOf(err))
	}
	if len(fields) == 0 {
		fields = []director.Field{{Path: at, Msg: director.MessageOf(err), Hint: director.HintOf(err)}}
	}
	v.Problems = append(v.Problems, fields...)
}
