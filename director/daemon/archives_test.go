package daemon

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
)

// Over the API an archived plan is listed, shown and saved; the plan that its cluster needs next is not archived, and
// the cluster continues.
func TestArchivedPlansOverTheAPI(t *testing.T) {
	t.Parallel()
	d, api := opened(t, simulating(t, demoDocuments))
	first := ended(t, d.services, begin(t, d.services, plan.Request{}).Plan.ID)
	wantStatus(t, first, plan.StatusDone)
	more := strings.Replace(demoDocuments[strings.LastIndex(demoDocuments, "---\n"):], "count: 3", "count: 4", 1)
	if _, err := api.Apply(t.Context(), []byte(more), "x", false); err != nil {
		t.Fatal(err)
	}
	second := ended(t, d.services, begin(t, d.services, plan.Request{}).Plan.ID)
	wantStatus(t, second, plan.StatusDone)
	before, err := api.Plan(t.Context(), first.Plan.ID)
	if err != nil {
		t.Fatal(err)
	}

	later := time.Now().Add(time.Hour)
	n, _, err := d.services.archives.ArchivePlans(t.Context(), "director", later, later, 100)
	if err != nil || n != 1 {
		t.Fatalf("archived %d plans, %v", n, err)
	}
	after, err := api.Plan(t.Context(), first.Plan.ID)
	if diff := cmp.Diff(before, after); diff != "" || err != nil {
		t.Errorf("shown (-before +after), %v:\n%s", err, diff)
	}
	for archived, want := range map[bool]string{true: first.Plan.ID, false: second.Plan.ID} {
		items, err := api.Plans(t.Context(), client.PlanFilter{Cluster: "demo", Archived: archived})
		if err != nil || len(items) != 1 || items[0].ID != want || items[0].Status != string(plan.StatusDone) ||
			items[0].Summary == "" {
			t.Errorf("archived %t: %+v, %v", archived, items, err)
		}
	}
	names := archiveNames(t, api, first.Plan.ID)
	if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "/logs/prepare_") }) ||
		!slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, "/events.jsonl") }) {
		t.Errorf("its file has %v", names)
	}
	_, err = api.StartPlan(t.Context(), first.Plan.ID, first.Plan.Hash)
	if director.KindOf(err) != director.KindNotFound || !strings.Contains(err.Error(), "was archived on") {
		t.Errorf("started again: %v", err)
	}
	wantStatus(t, ended(t, d.services, begin(t, d.services, plan.Request{Operation: plan.ClusterDelete}).Plan.ID),
		plan.StatusDone)
}

func archiveNames(t *testing.T, api *client.Client, id string) (names []string) {
	t.Helper()
	body, err := api.Archive(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	zip, err := gzip.NewReader(body)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(zip); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}
