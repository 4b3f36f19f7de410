package planner

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// pulling has the cluster's document name a registry for one more host.
func pulling(w *World, host string) {
	w.Registries = append(w.Registries, Registry{Stored: model.Stored{Document: model.Document{
		Kind: model.KindRegistry, Metadata: model.Metadata{Name: strings.ReplaceAll(host, ".", "-")},
		Registry: &model.Registry{Host: host, Mode: model.RegistryDirect, Credentials: "hub"},
	}}, Revision: 1})
}

// recorded is what the plan records of the registries.
func recorded(t *testing.T, c plan.Content) string {
	t.Helper()
	var p step.ClusterParams
	if err := json.Unmarshal(stepOf(t, c, "cluster.ready/demo").Params, &p); err != nil {
		t.Fatal(err)
	}
	return p.Registries
}

// Nodes that run are told of registries that come, change, or go, and of another password, and of nothing twice.
func TestRegistriesFollowTheDocuments(t *testing.T) {
	t.Parallel()
	told := []string{"registry_trust/demo", "cluster.ready/demo"}
	for name, tt := range map[string]struct {
		change func(w *World)
		want   []string
	}{
		"nothing":          {func(*World) {}, []string{}},
		"one comes":        {func(w *World) { pulling(w, "quay.io") }, told},
		"another mode":     {func(w *World) { w.Registries[0].Registry.Mode = model.RegistryMirror }, told},
		"another password": {func(w *World) { w.Registries[0].Revision++ }, told},
		"all go":           {func(w *World) { w.Registries = nil }, told},
	} {
		w := running(t, 1, 2, v)
		pulling(&w, "docker.io")
		w.Installed.Registries = step.DigestOf(outerRegistries{w}.list())
		w.Seen = map[string]Seen{"demo-master-1": {Ready: true}, "demo-worker-1": {Ready: true}}
		tt.change(&w)
		c, err := Apply(w, plan.Request{})
		if diff := cmp.Diff(tt.want, ids(t, c, err)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
			continue
		}
		if len(tt.want) == 0 {
			continue
		}
		if c.Operation != plan.ClusterRegistries || recorded(t, c) != step.DigestOf(outerRegistries{w}.list()) {
			t.Errorf("%s: %s records %q", name, c.Operation, recorded(t, c))
		}
		if play := string(c.Steps[0].Params); strings.Contains(play, "demo-worker-2") ||
			!strings.Contains(strings.Join(c.Warnings, "\n"), "demo-worker-2 does not answer") {
			t.Errorf("%s: a node that is off: %s, %q", name, play, c.Warnings)
		}
	}
}

// Whatever else a plan does, what it records of registries is what its nodes were told.
func TestPlansRecordWhatNodesWereTold(t *testing.T) {
	t.Parallel()
	w := running(t, 1, 1, v)
	w.Installed.Registries = "former"
	pulling(&w, "docker.io")
	w.Registries[0].Revision = 0
	want(&w, func(c *model.Cluster) { c.Workers[0].Count = 2 })
	c, err := Apply(w, plan.Request{})
	told := step.DigestOf(outerRegistries{w}.list())
	if err != nil || stepOf(t, c, "registry_trust/demo").ID == "" || recorded(t, c) != told {
		t.Errorf("a scale: %v, %v", err, ids(t, c, err))
	}
	if !strings.Contains(strings.Join(c.Warnings, "\n"), "Registry/docker-io names credentials hub, and there") {
		t.Errorf("nobody is told of the credentials: %q", c.Warnings)
	}
	var f step.Facts
	if err := json.Unmarshal(c.Facts, &f); err != nil || len(f.Registries) != 1 ||
		f.Registries[0].Spec.Host != "docker.io" {
		t.Errorf("the facts have %v, %v", f.Registries, err)
	}
	w.Cluster.UID = director.DrillUID(w.Cluster.UID)
	if (outerRegistries{w}).list() != nil {
		t.Error("a drill is told of outer registries")
	}
}
