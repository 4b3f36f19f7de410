package wire

import (
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// PlanComparison says how a plan differs from an older one of its cluster.
type PlanComparison struct {
	Plan          string     `json:"plan"`
	Older         string     `json:"older" doc:"Id of the plan that it is compared with."`
	Same          bool       `json:"same" doc:"A start of either would do the same."`
	Reasons       []string   `json:"reasons" nullable:"false" doc:"What has moved since the older plan was made."`
	EffectsGone   []Effect   `json:"effects_gone" nullable:"false" doc:"Only the older plan has them."`
	EffectsNew    []Effect   `json:"effects_new" nullable:"false" doc:"Only the newer plan has them."`
	ApprovalsGone []string   `json:"approvals_gone" nullable:"false"`
	ApprovalsNew  []string   `json:"approvals_new" nullable:"false" doc:"What a person has to agree to in addition."`
	StepsGone     []PlanStep `json:"steps_gone" nullable:"false"`
	StepsNew      []PlanStep `json:"steps_new" nullable:"false"`
}

// PlanStep names a step of a plan.
type PlanStep struct {
	ID    string `json:"id"`
	Title string `json:"title"`
}

// PlanDocuments are the documents that a plan puts into force.
type PlanDocuments struct {
	Items []PlanDocument `json:"items" nullable:"false" doc:"Empty for a plan that puts no document into force, such as one that makes a backup."`
}

// PlanDocument is a document that a plan puts into force, next to the one before it.
type PlanDocument struct {
	ModelRef
	Text       string `json:"text" doc:"The document as YAML."`
	Former     int64  `json:"former,omitempty" doc:"Generation that was in force when the plan was made. Absent for the first document of a cluster, and in plans of older directors."`
	FormerText string `json:"former_text,omitempty" doc:"That document as YAML."`
}

// PlanDocumentOf converts a document, and the one before it unless that is nil.
func PlanDocumentOf(is model.Document, generation int64, was *model.Document, former int64) (PlanDocument, error) {
	text, err := model.Encode(is)
	if err != nil {
		return PlanDocument{}, err
	}
	out := PlanDocument{
		ModelRef: ModelRef{Kind: string(is.Kind), Name: is.Metadata.Name, Generation: generation}, Text: string(text),
	}
	if was != nil {
		if text, err = model.Encode(*was); err != nil {
			return PlanDocument{}, err
		}
		out.Former, out.FormerText = former, string(text)
	}
	return out, nil
}

// ComparisonOf converts a comparison of the plan with an older one.
func ComparisonOf(id, older string, c plan.Comparison) PlanComparison {
	return PlanComparison{
		Plan: id, Older: older, Same: c.Same, Reasons: texts(c.Reasons),
		EffectsGone: effectsOf(c.EffectsGone), EffectsNew: effectsOf(c.EffectsNew),
		ApprovalsGone: texts(c.ApprovalsGone), ApprovalsNew: texts(c.ApprovalsNew),
		StepsGone: stepsOf(c.StepsGone), StepsNew: stepsOf(c.StepsNew),
	}
}

func texts(all []string) []string { return append([]string{}, all...) }

func effectsOf(all []plan.Effect) []Effect {
	out := make([]Effect, len(all))
	for i, e := range all {
		out[i] = Effect(e)
	}
	return out
}

func stepsOf(all []plan.Step) []PlanStep {
	out := make([]PlanStep, len(all))
	for i, s := range all {
		out[i] = PlanStep{s.ID, s.Title}
	}
	return out
}
