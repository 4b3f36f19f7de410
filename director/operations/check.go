package operations

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Check looks at everything that a plan for the request would be refused for, and returns all of it. Nothing is stored.
// What could not be looked at because of something else that is wrong is not in it: an invalid document has no plan
// whose room could be asked for.
func (o *Operations) Check(ctx context.Context, cluster string, r plan.Request) (api.CheckView, error) {
	v := api.CheckView{Cluster: cluster}
	add := func(err error, at string) {
		if err == nil {
			return
		}
		fields := slices.Clone(director.FieldsOf(err))
		for i := range fields {
			fields[i].Hint = cmp.Or(fields[i].Hint, director.HintOf(err))
		}
		if len(fields) > 0 {
			v.Problems = append(v.Problems, fields...)
			return
		}
		f := director.Field{Path: at, Msg: director.MessageOf(err), Hint: director.HintOf(err)}
		v.Problems = append(v.Problems, f)
	}
	doc, err := o.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster})
	if err != nil {
		return v, err
	}
	holder, err := o.Store.Holder(ctx, cluster)
	if err != nil {
		return v, err
	}
	if holder != "" {
		add(o.Store.HeldBy(ctx, "operations.check", holder, cluster), doc.Ref().String())
	}
	w, err := o.seen(ctx, cluster, r)
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	add(err, "Release/"+doc.Cluster.Release)
	prechecked := false
	if err == nil {
		content, err := o.draft(w.World, r)
		if err == nil {
			v.Addresses, err = o.check(ctx, w, &content)
		}
		v.Operation, v.Summary, v.Warnings, v.Steps = content.Operation, content.Summary, content.Warnings,
			len(content.Steps)
		add(err, doc.Ref().String())
		e, _ := errors.AsType[*director.Error](err)
		prechecked = err == nil || e != nil && e.Op == opPrecheck
	}
	if prechecked {
		return v, ctx.Err()
	}
	if w.Image.Image != nil { // what can be told without a plan
		v.Problems = append(v.Problems, o.checkImage(ctx, w.World)...)
	}
	if w.Provider.Provider != nil && w.Cluster.Cluster != nil {
		v.Problems = append(v.Problems, o.checkQuota(w)...)
		_, err := w.VMs(ctx)
		add(err, w.Provider.Ref().String())
	}
	return v, ctx.Err()
}
