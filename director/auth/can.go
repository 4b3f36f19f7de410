package auth

import "github.com/director-kaas/kaas/director"

// userKinds are the kinds that a user may look at. Providers, images and networks are infrastructure.
var userKinds = map[string]bool{"Cluster": true, "Plan": true, "Release": true}

// Can reports whether actor may do the action on the object. It is the only place that decides, and it is pure.
func Can(actor director.Actor, action director.Action, object director.Object) bool {
	switch {
	case actor.User == "":
		return false
	case action == director.ActSelf:
		return true
	case actor.MustChange:
		return false
	}
	switch actor.Role {
	case director.RoleAdmin:
		return true
	case director.RoleUser:
		return action == director.ActRead && userKinds[object.Kind]
	}
	return false
}

// Require returns nil if Can says yes, and otherwise a forbidden error that tells what to do.
func (s *Service) Require(actor director.Actor, action director.Action, object director.Object) error {
	if Can(actor, action, object) {
		return nil
	}
	e := &director.Error{
		Kind: director.KindForbidden, Op: "auth.can", Msg: "this needs the role admin", Hint: "ask an administrator",
	}
	if actor.MustChange {
		e.Msg, e.Hint = "the one-time password must be changed first", "change it with: directorctl password"
	}
	return e
}
