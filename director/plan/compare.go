package plan

import (
	"fmt"
	"slices"
)

// Comparison says how a newer plan differs from an older one of the same cluster.
type Comparison struct {
	Same                        bool     // a start of either would do the same
	Reasons                     []string // what has moved since the older one was made; empty if Same
	EffectsGone, EffectsNew     []Effect // in the order of their plans
	ApprovalsGone, ApprovalsNew []string
	StepsGone, StepsNew         []Step // by id
}

// Compare says how the plan differs from the older one.
func Compare(was, is Plan) Comparison {
	c := Comparison{Same: was.Hash == is.Hash}
	if c.Same {
		return c
	}
	c.Reasons = Reasons(was.Content, is.Content)
	c.EffectsGone, c.EffectsNew = missing(effects(was), effects(is)), missing(effects(is), effects(was))
	c.ApprovalsGone, c.ApprovalsNew = missing(was.Approvals, is.Approvals), missing(is.Approvals, was.Approvals)
	id := func(s Step) string { return s.ID }
	c.StepsGone, c.StepsNew = missingBy(was.Steps, is.Steps, id), missingBy(is.Steps, was.Steps, id)
	return c
}

func effects(p Plan) []Effect {
	var out []Effect
	for _, s := range p.Steps {
		out = append(out, s.Effects...)
	}
	return out
}

// missing returns what is in these and not in those, once each.
func missing[T comparable](these, those []T) []T {
	return missingBy(these, those, func(t T) T { return t })
}

func missingBy[T any, K comparable](these, those []T, key func(T) K) []T {
	known := map[K]bool{}
	for _, t := range those {
		known[key(t)] = true
	}
	var out []T
	for _, t := range these {
		if k := key(t); !known[k] {
			known[k] = true
			out = append(out, t)
		}
	}
	return out
}

// Reasons says in which way two contents differ that are not the same.
func Reasons(was, is Content) []string {
	var out []string
	for _, m := range is.Models {
		if !slices.Contains(was.Models, m) {
			out = append(out, fmt.Sprintf("%s/%s has changed (now generation %d)", m.Kind, m.Name, m.Generation))
		}
	}
	if was.Playbooks != is.Playbooks {
		out = append(out, "the director has other playbooks")
	}
	before := map[string]Machine{}
	for _, m := range was.Machines {
		before[m.Name] = m
	}
	for _, m := range is.Machines {
		if b, ok := before[m.Name]; ok && b.Address != m.Address {
			out = append(out, fmt.Sprintf("%s would get %s instead of %s", m.Name, m.Address, b.Address))
		} else if ok && b.MAC != m.MAC {
			out = append(out, fmt.Sprintf("%s would get the MAC address %s instead of %s", m.Name, m.MAC, b.MAC))
		}
	}
	if len(was.Steps) != len(is.Steps) {
		out = append(out, fmt.Sprintf("it would have %d steps instead of %d", len(is.Steps), len(was.Steps)))
	}
	if len(out) == 0 {
		out = append(out, "sizes, capacity warnings or bundle contents have changed")
	}
	return out
}
