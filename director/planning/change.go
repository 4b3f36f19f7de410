package planning

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

const opChange = "planning.change"

// changeOf returns what the request makes of the cluster's document; nil if it leaves it as it is.
func changeOf(r plan.Request) func(model.Stored) (model.Stored, error) {
	if len(r.Change) == 0 {
		return nil
	}
	return func(was model.Stored) (model.Stored, error) { return Changed(was, r.Change) }
}

// Changed returns the document with the merge patch applied to its spec, as the start of a plan would store it. One
// that is the same afterwards keeps its generation. Errors: invalid, with every problem.
func Changed(was model.Stored, patch json.RawMessage) (model.Stored, error) {
	before, err := model.EncodeJSON(was.Document)
	if err != nil {
		return was, err
	}
	var whole map[string]any
	var change any
	if err := json.Unmarshal(before, &whole); err != nil {
		return was, err
	}
	if err := json.Unmarshal(patch, &change); err != nil {
		return was, director.Invalid(opChange, "the patch is not JSON", []director.Field{{
			Path: "patch", Msg: err.Error(), Hint: `write it like {"release": "k8s-1.38"}`,
		}})
	}
	if _, ok := change.(map[string]any); !ok {
		return was, director.Invalid(opChange, "the patch is not an object", []director.Field{{
			Path: "patch", Msg: "names no field of spec", Hint: `write it like {"release": "k8s-1.38"}`,
		}})
	}
	whole["spec"] = merged(whole["spec"], change)
	text, err := json.Marshal(whole)
	if err != nil {
		return was, err
	}
	docs, err := model.Parse(text, "patch")
	if err != nil {
		return was, err
	}
	if _, err := model.Validate(&docs[0]); err != nil {
		return was, err
	}
	after, err := model.EncodeJSON(docs[0])
	if err != nil || bytes.Equal(before, after) {
		return was, err
	}
	is := was
	is.Document, is.Generation = docs[0], was.Generation+1
	return is, nil
}

// merged is the target with the merge patch applied (RFC 7396).
func merged(target, patch any) any {
	change, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if old, ok := target.(map[string]any); ok {
		for key, value := range old {
			out[key] = value
		}
	}
	for key, value := range change {
		if value == nil {
			delete(out, key)
			continue
		}
		out[key] = merged(out[key], value)
	}
	return out
}

// storeChange stores the document that the plan was made for. It belongs to the transaction of the start, which has
// looked whether the document is still the one that the plan changes.
func (s *Service) storeChange(tx *store.Tx, p *plan.Plan, is model.Stored, actor string, now time.Time) error {
	if len(p.Request.Change) == 0 {
		return nil
	}
	stored, err := tx.Documents()
	if err != nil {
		return err
	}
	for i := range stored {
		if stored[i].Ref() != is.Ref() || stored[i].Generation == is.Generation {
			continue
		}
		before, err := model.Encode(stored[i].Document)
		if err != nil {
			return err
		}
		after, err := model.Encode(is.Document)
		if err != nil {
			return err
		}
		if err := tx.PutDocument(is.Document, actor, now); err != nil {
			return err
		}
		return tx.AuditChange(now, actor, "apply", is.Ref().String(), model.Diff(string(before), string(after)))
	}
	return nil
}
