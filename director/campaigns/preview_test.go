package campaigns_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/campaigns"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/servicetest"
)

// A preview says which clusters, in which wave, and all that is wrong, while half of the campaign is written; and it
// stores nothing.
func TestPreview(t *testing.T) {
	t.Parallel()
	w := open(t, 12)
	s := campaigns.New(campaigns.Config{
		Store: w.db, Planning: w, Clusters: w, Difference: planning.Difference, Changed: planning.Changed,
		Look: func(_ context.Context, cluster string, r plan.Request) (campaigns.Look, error) {
			if cluster == "c001" {
				return campaigns.Look{}, director.Errorf(director.KindConflict, "test", "c001 is busy")
			}
			return campaigns.Look{Operation: r.Operation, Summary: "upgrade " + cluster, Steps: 3}, nil
		},
	})
	ctx := t.Context()
	half, err := s.Preview(ctx, ann, "", director.CampaignSpec{Wave: "x"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, p := range half.Problems {
		paths = append(paths, p.Path)
	}
	if diff := cmp.Diff([]string{"name", "wave", "target.release"}, paths); diff != "" || len(half.Clusters) != 12 {
		t.Errorf("%s\n%+v", diff, half)
	}
	spec := upgrade()
	spec.Wave = "5"
	p, err := s.Preview(ctx, ann, "all", spec, []string{"c001", "c002", "unknown"})
	if err != nil || len(p.Problems) > 0 {
		t.Fatalf("%+v, %v", p.Problems, err)
	}
	if diff := cmp.Diff([]int{1, 5, 5, 1}, p.Waves); diff != "" {
		t.Error(diff)
	}
	if a, b, z := p.Clusters[0], p.Clusters[1], p.Clusters[11]; a.Wave != 1 || b.Wave != 2 || z.Wave != 4 ||
		a.Look != nil || b.Look == nil || len(b.Look.Problems) != 1 || b.Look.Problems[0].Msg != "c001 is busy" {
		t.Errorf("%+v", p.Clusters)
	}
	if l := p.Clusters[2].Look; l == nil || l.Summary != "upgrade c002" || l.Operation != plan.ClusterUpgrade {
		t.Errorf("%+v", l)
	}
	if all, err := s.List(ctx, ann); err != nil || len(all) != 0 {
		t.Errorf("a preview has made %+v, %v", all, err)
	}
	v, err := s.Create(ctx, ann, "all", spec)
	v = must(t, v, err)
	again, err := s.Preview(ctx, ann, "again", spec, nil)
	if err != nil || len(again.Problems) != 1 || again.Clusters[0].Busy != v.ID {
		t.Errorf("%+v, %v", again, err)
	}
	var many []string
	for i := range campaigns.MostLooks + 1 {
		many = append(many, fmt.Sprintf("c%03d", i))
	}
	_, err = s.Preview(ctx, ann, "all", spec, many)
	servicetest.WantKind(t, err, director.KindInvalid)
	spec.Selector.Clusters = []string{"c001", "nowhere"}
	if p, err = s.Preview(ctx, ann, "all", spec, nil); err != nil || len(p.Clusters) != 1 || len(p.Problems) == 0 {
		t.Errorf("%+v, %v", p, err)
	}
}
