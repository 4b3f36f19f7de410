package api

import (
	"context"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// asked is what a request wants to do.
type asked struct {
	action director.Action
	object director.Object
	some   string // the kind of the objects of which one that the actor may do it on is enough; empty for the object
}

// metaSome is where an operation says that its handler narrows what it is about to what the actor may do it on.
const metaSome = "some"

// ofSome marks an operation that is about all objects of the kind that the actor may do it on, such as a list. The kind
// "" is that of the operation. Its handler has to narrow.
func ofSome(op huma.Operation, kind string) huma.Operation {
	if op.Metadata == nil {
		op.Metadata = map[string]any{}
	}
	op.Metadata[metaSome] = kind
	return op
}

func isOfSome(op huma.Operation) bool {
	_, ok := op.Metadata[metaSome]
	return ok
}

// authorize lets an actor through who may. The kind "" is the one in the path.
func (s *server) authorize(
	action director.Action, kind string, op huma.Operation,
) func(huma.Context, func(huma.Context)) {
	some, ofSome := op.Metadata[metaSome].(string)
	return func(ctx huma.Context, next func(huma.Context)) {
		object := director.Object{Kind: kind, Name: ctx.Param("name")}
		if kind == "" {
			object.Kind = ctx.Param("kind")
		}
		if kind == kindPlan {
			object.Name = ctx.Param("id")
		}
		want := asked{action: action, object: object}
		if ofSome {
			if want.some = some; some == "" {
				want.some = object.Kind
			}
		}
		note(ctx.Context()).object, note(ctx.Context()).asked = object.Kind+"/"+object.Name, want
		if err := s.permit(ctx.Context(), actorOf(ctx.Context()), want); err != nil {
			s.attempted(ctx.Context(), err)
			_ = s.problem(ctx.Context(), err) // for the log
			s.abort(humagin.Unwrap(ctx), err)
			return
		}
		// A token changes nothing, and people need theirs to use clusters meanwhile.
		if action != director.ActRead && action != director.ActToken && s.Held != nil && s.Held() {
			s.abort(humagin.Unwrap(ctx), s.heldError())
			return
		}
		next(ctx)
	}
}

// permit returns nil if the actor may. To who may see some clusters alone, all others do not exist: the error is
// not_found, the same as for a name that there is not.
func (s *server) permit(ctx context.Context, a director.Actor, want asked) error {
	if want.some != "" && auth.CanSome(a, want.action, want.some) || auth.Can(a, want.action, want.object) {
		return nil
	}
	refused := auth.Refusal(a, want.action, want.object)
	if want.object.Name == "" || auth.VisibleTo(a, want.object.Kind) == nil ||
		!auth.CanSome(a, director.ActRead, want.object.Kind) {
		return refused // it is said of all objects of the kind
	}
	object, err := want.object, error(nil)
	switch want.object.Kind {
	case kindCluster:
		object, err = s.Scopes.ClusterScope(ctx, want.object.Name)
	case kindPlan:
		object, err = s.Scopes.PlanScope(ctx, want.object.Name)
	}
	switch {
	case err != nil && director.KindOf(err) != director.KindNotFound:
		return err
	case err == nil && auth.Can(a, want.action, object):
		return nil
	case err == nil && auth.Can(a, director.ActRead, object):
		return refused
	}
	return hidden(want.object)
}

// hidden is the error for what does not exist, as far as the actor knows.
func hidden(o director.Object) error {
	return director.Errorf(
		director.KindNotFound, "api.permit", "there is no %s %s that you may see", strings.ToLower(o.Kind), o.Name,
	).WithHint("directorctl whoami shows what you may do")
}

// lost reports whether the actor may no longer do what the request asked for.
func (s *server) lost(ctx context.Context, a director.Actor) bool {
	switch director.KindOf(s.permit(ctx, a, note(ctx).asked)) {
	case director.KindForbidden, director.KindNotFound:
		return true
	}
	return false
}

// authorOf is the actor as the author of documents: who may not store every document may store clusters, in projects
// where a grant says so.
func authorOf(a director.Actor) documents.Author {
	by := documents.Author{Name: a.User}
	if auth.Can(a, director.ActApply, director.Object{}) {
		return by
	}
	by.May = func(was, is *model.Document) error { return mayStore(a, was, is) }
	return by
}

func mayStore(a director.Actor, was, is *model.Document) error {
	const op = "api.apply"
	ref := is.Ref().String()
	if is.Kind != model.KindCluster {
		return director.Errorf(director.KindForbidden, op, "%s: this needs the role admin on the whole director", ref).
			WithHint("your grants are only for clusters; ask an administrator")
	}
	next := director.Object{Kind: kindCluster, Name: is.Metadata.Name, Project: is.Cluster.Project}
	var vars map[string]any
	if was != nil {
		here := next
		here.Cluster, here.Project = is.Metadata.Name, was.Cluster.Project
		if !auth.Can(a, director.ActRead, here) {
			return director.Errorf(director.KindConflict, op, "%s: the name is taken", ref).
				WithHint("choose another name")
		}
		if !auth.Can(a, director.ActApply, here) {
			return director.Errorf(director.KindForbidden, op, "%s: this needs the role admin on the cluster", ref).
				WithHint("directorctl whoami shows what you may do")
		}
		if was.Cluster.Project == is.Cluster.Project {
			next = here
		}
		vars = was.Cluster.Vars
	}
	if !auth.Can(a, director.ActApply, next) {
		return director.Invalid(op, "nothing was applied", []director.Field{{
			Path: ref + ": spec.project", Msg: "is not a project that you are an admin of",
			Hint: "directorctl whoami shows them",
		}})
	}
	return mayHaveVars(ref, vars, is.Cluster.Vars)
}

// mayHaveVars refuses other variables than before: playbooks run on the director with them.
func mayHaveVars(ref string, was, is map[string]any) error {
	for _, c := range model.Changes(
		model.Document{Kind: model.KindCluster, Cluster: &model.Cluster{Vars: was}},
		model.Document{Kind: model.KindCluster, Cluster: &model.Cluster{Vars: is}},
	) {
		return director.Invalid("api.apply", "nothing was applied", []director.Field{{
			Path: ref + ": " + c.At, Msg: "can be changed only by administrators of the whole director",
			Hint: "leave it as it is, or ask one of them",
		}})
	}
	return nil
}

// mayAsk refuses, to who may not plan for every cluster, what reaches beyond the cluster that is planned for.
func mayAsk(a director.Actor, r plan.Request) error {
	if auth.Can(a, director.ActPlan, director.Object{Kind: kindCluster}) {
		return nil
	}
	var out []director.Field
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"adopt_disks", len(r.AdoptDisks) > 0}, {"lost_host", r.LostHost != ""}, {"host_keys", len(r.HostKeys) > 0},
	} {
		if f.set {
			out = append(out, director.Field{
				Path: f.name, Msg: "can be requested only by operators of the whole director", Hint: "ask one of them",
			})
		}
	}
	return director.Invalid("api.plan", "the plan reaches beyond the cluster", out)
}
