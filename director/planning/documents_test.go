package planning

import (
	"encoding/json"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

func TestDocumentChangeOf(t *testing.T) {
	t.Parallel()
	encode := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	p := plan.Plan{ID: "p1", Content: plan.Content{Cluster: "demo", Steps: []plan.Step{{Kind: step.VMEnsure}}}}
	if c, err := DocumentChangeOf(p); c != nil || err != nil {
		t.Errorf("a plan that puts no document into force: %v, %v", c, err)
	}
	p.Steps = append(p.Steps, plan.Step{Kind: step.ClusterReady, Params: encode(step.ClusterParams{
		Generation: 3, Document: model.Cluster{Release: "new"}, Labels: map[string]string{"env": "prod"},
	})})
	c, err := DocumentChangeOf(p)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	if c.Was != nil || c.Generation != 3 || c.Is.Cluster.Release != "new" || c.Is.Metadata.Labels["env"] != "prod" {
		t.Errorf("the first document of a cluster: %+v", c)
	}
	p.Before = &plan.Former{Generation: 1, Spec: encode(model.Cluster{Release: "old"})}
	if c, err = DocumentChangeOf(p); err != nil || c.Was == nil || c.Former != 1 || c.Was.Cluster.Release != "old" ||
		c.Was.Metadata.Name != "demo" {
		t.Errorf("a further document: %+v, %v", c, err)
	}
	p.Before.Spec = json.RawMessage(`[]`)
	if _, err = DocumentChangeOf(p); director.KindOf(err) != director.KindInternal {
		t.Errorf("a document that cannot be read: %v", err)
	}
}
