package planning

import (
	"encoding/json"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/step"
)

// trusted looks at who signed what the plan brings to the registry and to providers. It warns of what is used without a
// signature.
func (s prechecks) trusted(w planner.World, c plan.Content) (warnings []string, problems []director.Field) {
	makes := false
	for _, st := range c.Steps {
		makes = makes || st.Kind == step.ReleasePush || st.Kind == step.VMEnsure && !st.Back()
		var p step.ImageParams
		if st.Kind != step.ImageEnsure || json.Unmarshal(st.Params, &p) != nil {
			continue
		}
		path, err := s.imageFile(p.Image)
		if err != nil {
			continue // the look at the file says what is wrong
		}
		at := "Image/" + p.Document
		if w.Cluster.Director != nil {
			at = w.Image.Ref().String() + ": spec.image"
		}
		reason, err := s.Gate.Image(p.Image, path)
		if err != nil {
			problems = append(problems, director.Field{
				Path: at, Msg: director.MessageOf(err), Hint: director.HintOf(err),
			})
		} else if reason.Words != "" {
			warnings = append(warnings, at+" is used without a signature: "+reason.Words)
		}
	}
	switch {
	case !makes:
	case w.NoBundle != nil:
		problems = append(problems, director.Field{
			Path: w.Release.Ref().String(), Msg: director.MessageOf(w.NoBundle), Hint: director.HintOf(w.NoBundle),
		})
	case w.Bundle.Unsigned != "":
		warnings = append(warnings, w.Release.Ref().String()+" is used without a signature: "+w.Bundle.Unsigned)
	}
	return warnings, problems
}
