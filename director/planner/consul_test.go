package planner

import (
	"slices"
	"testing"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// A cluster that names a Consul is registered once its nodes are ready, and taken out once its VMs are gone; the plans
// of others have no such step.
func TestConsulSteps(t *testing.T) {
	t.Parallel()
	of := func(c plan.Content, kind string) *plan.Step {
		i := slices.IndexFunc(c.Steps, func(s plan.Step) bool { return s.Kind == kind })
		if i < 0 {
			return nil
		}
		return &c.Steps[i]
	}
	w := demo(t)
	c, err := Create(w)
	if err != nil || of(c, step.ConsulRegister) != nil {
		t.Errorf("without a Consul: %v, %v", of(c, step.ConsulRegister), err)
	}
	w.Cluster.Cluster.Discovery.Consul = "dc1"
	if c, err = Create(w); err != nil {
		t.Fatal(err)
	}
	s := of(c, step.ConsulRegister)
	if s == nil || !slices.Contains(s.Needs, step.KubeReady+"/demo") || len(s.Effects) != 1 ||
		s.Effects[0].Name != "Consul/dc1" {
		t.Errorf("the step of the creation is %+v", s)
	}
	gone, err := Delete(w, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	s = of(gone, step.ConsulDeregister)
	if s == nil || !slices.Contains(of(gone, step.ClusterForget).Needs, s.ID) {
		t.Errorf("the step of the deletion is %+v", s)
	}
}
