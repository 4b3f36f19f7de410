package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func TestProblemFieldsPointIntoDocuments(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][2]string{
		"spec.workers[0].memory":                   {"", "/spec/workers/0/memory"},
		"Provider/lab: spec.quota.machines":        {"Provider/lab", "/spec/quota/machines"},
		"Image/debian12-k8s-1.37: spec.kubernetes": {"Image/debian12-k8s-1.37", "/spec/kubernetes"},
		"Provider/lab: host h1":                    {"Provider/lab", ""},
		"models/a.yaml:4: spec.sha256":             {"", "/spec/sha256"},
		"metadata.name":                            {"", "/metadata/name"},
		"query.memory":                             {"", ""},
		"Cluster/demo: spec is wrong":              {"Cluster/demo", ""},
		"Schedule/x: spec.job.params.keep":         {"Schedule/x", "/spec/job/params/keep"},
	} {
		got := ProblemFieldOf(director.Field{Path: path, Msg: "m", Hint: "h"})
		if diff := cmp.Diff(
			ProblemField{Field: path, Document: want[0], Pointer: want[1], Message: "m", Hint: "h"}, got,
		); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	for path, want := range map[string]string{
		"t:4: spec.cidr": "/spec/cidr", "Network/N 1: metadata.name": "/metadata/name",
	} {
		got := ProblemFieldOf(director.Field{Path: path, Document: "Network/N 1"})
		if got.Document != "Network/N 1" || got.Pointer != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
}
