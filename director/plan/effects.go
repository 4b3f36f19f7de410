package plan

// EffectGroup is the effects of a plan that do the same to the same kind of object.
type EffectGroup struct {
	Verb, Object string
	Names        []string // each once, with its detail in parentheses, in the order of the steps
}

// Effects returns what the plan does to the world, in the order of its steps.
func (p *Plan) Effects() []EffectGroup {
	type kind struct{ verb, object string }
	type one struct {
		kind
		name string
	}
	var out []EffectGroup
	at, known := map[kind]int{}, map[one]bool{}
	for i := range p.Steps {
		for _, e := range p.Steps[i].Effects {
			k := kind{e.Verb, e.Object}
			if _, there := at[k]; !there {
				at[k] = len(out)
				out = append(out, EffectGroup{Verb: e.Verb, Object: e.Object})
			}
			name := e.Name
			if e.Detail != "" {
				name += " (" + e.Detail + ")"
			}
			if !known[one{k, name}] {
				known[one{k, name}] = true
				out[at[k]].Names = append(out[at[k]].Names, name)
			}
		}
	}
	return out
}
