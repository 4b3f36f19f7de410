package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/diskimage/diskimagetest"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// imported sends an image file and lets the document name it.
func imported(t *testing.T, api *client.Client, path, document string) wire.ImageFile {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	sum := diskimagetest.SHA256(t, path)
	if _, err := api.SendFile(
		t.Context(), wire.UploadRequest{SHA256: sum, Size: info.Size(), Name: filepath.Base(path)}, f, nil, nil,
	); err != nil {
		t.Fatal(err)
	}
	file, err := api.ImportImage(t.Context(), wire.ImageImport{Upload: sum}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: kaas/v1\nkind: Image\nmetadata: {name: " + document + "}\nspec: {sha256: \"" + file.SHA256 +
		"\", kubernetes: " + file.Kubernetes + "}\n"
	if _, err := api.Apply(t.Context(), []byte(text), "x", false); err != nil {
		t.Fatal(err)
	}
	return file
}

// An image document moves on to an imported file while VMs of the old one live, and what is not needed any more is
// taken away (A2).
func TestImagesMoveOn(t *testing.T) {
	t.Parallel()
	c := simulating(t, demoDocuments)
	_, api := created(t, c)
	image := func() wire.Image {
		t.Helper()
		items, err := api.Images(t.Context())
		if err != nil || len(items) == 0 || items[0].Name != "node" {
			t.Fatalf("got %+v, %v", items, err)
		}
		return items[0]
	}
	if got := image(); got.File != nil || got.Source == "" || got.Old != 0 || len(got.Providers) != 1 ||
		len(got.Clusters) != 1 {
		t.Errorf("got %+v", got)
	}

	disk := diskimagetest.Node(t, "v1.37.1")
	first := imported(t, api, diskimagetest.Convert(t, disk, "qcow2"), "node")
	if got := image(); got.File == nil || got.SHA256 != first.SHA256 || got.Old != 1 || len(got.Providers) != 0 {
		t.Errorf("after the import: %+v", got)
	}
	more := strings.Replace(demoDocuments[strings.LastIndex(demoDocuments, "---"):], "count: 3", "count: 4", 1)
	if _, err := api.Apply(t.Context(), []byte(more), "x", false); err != nil {
		t.Fatal(err)
	}
	run(t, api, plan.ClusterScale)
	if got := image(); len(got.Providers) != 1 || got.Old != 1 {
		t.Errorf("after a VM was made of it: %+v", got)
	}
	prune := func(want ...string) {
		t.Helper()
		p, err := api.PruneImages(t.Context(), 0, false)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, i := range p.Items {
			got = append(got, i.Provider+" "+i.Name+" "+i.Kept)
		}
		if d := cmp.Diff(append([]string{}, want...), got); d != "" {
			t.Error(d)
		}
	}
	prune() // the VMs of the old one live
	second := imported(t, api, diskimagetest.Convert(t, disk, "qcow2", "-o", "compat=0.10"), "node")
	if err := api.DeleteImageFile(
		t.Context(), second.SHA256,
	); director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "Image/node names it") {
		t.Errorf("a file that is named went: %v", err)
	}
	prune("  ") // the file of the first alone: its image is still under the fourth worker's VM
	if _, err := os.Stat(filepath.Join(c.StateDir, "images", first.SHA256+".qcow2")); !os.IsNotExist(err) {
		t.Errorf("the file of nobody is there: %v", err)
	}
	if err := api.DeleteDocument(t.Context(), model.Ref{
		Kind: model.KindImage, Name: "node",
	}); director.KindOf(err) != director.KindConflict {
		t.Errorf("an image in use went: %v", err)
	}
	run(t, api, plan.ClusterDelete)
	items, err := api.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if items[0].Old != 2 {
		t.Errorf("got %+v", items)
	}
	p, err := api.PruneImages(t.Context(), 0, true)
	if err != nil || len(p.Items) != 2 {
		t.Errorf("a rehearsal: %+v, %v", p, err)
	}
	p, err = api.PruneImages(t.Context(), 0, false)
	if err != nil || len(p.Items) != 2 || p.Items[0].Kept+p.Items[1].Kept != "" {
		t.Errorf("got %+v, %v", p, err)
	}
	prune()
	if err := api.DeleteDocument(t.Context(), model.Ref{Kind: model.KindImage, Name: "node"}); err != nil {
		t.Fatal(err)
	}
	if err := api.DeleteImageFile(t.Context(), second.SHA256); err != nil {
		t.Fatal(err)
	}
	if items, err := api.Images(t.Context()); err != nil || len(items) != 0 {
		t.Errorf("left: %+v, %v", items, err)
	}
}

// A plan for a cluster whose image was never imported says what to do.
func TestImageThatWasNotImported(t *testing.T) {
	t.Parallel()
	_, api := opened(t, simulating(t, demoDocuments))
	text := "apiVersion: kaas/v1\nkind: Image\nmetadata: {name: node}\nspec: {sha256: \"" + strings.Repeat("5", 64) +
		"\", kubernetes: v1.37.1}\n"
	if _, err := api.Apply(t.Context(), []byte(text), "x", false); err != nil {
		t.Fatal(err)
	}
	_, err := api.MakePlan(t.Context(), "demo", plan.Request{})
	if director.KindOf(err) != director.KindInvalid ||
		!strings.Contains(err.Error(), "Image/node: spec.sha256: this director has no imported image") ||
		!strings.Contains(err.Error(), "directorctl image import FILE node") {
		t.Errorf("got %v", err)
	}
}
