package releases_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/releases"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/store"
)

func names(n releases.Needed) []string { return slices.Sorted(maps.Keys(n.Names)) }

// Documents and imported bundles keep the images of releases.
func TestNeeded(t *testing.T) {
	t.Parallel()
	s := open(t)
	f, err := s.imports(t, s.upload(t, packed(t, s.bundle(t, true))), "")
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Needed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// No cluster runs the lab's release, whose bundle is not there.
	if diff := cmp.Diff([]string{"k8s"}, names(n)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if len(n.Bundles) != 1 || n.Bundles[0].Name != "" || n.Bundles[0].Digest() != f.Digest || !n.Digests[f.Digest] {
		t.Errorf("imported: %+v", n)
	}
	s.lab.Put(t, "apiVersion: kaas/v1\nkind: Release\nmetadata: {name: stable}\nspec: {digest: "+f.Digest+
		", kubernetes: v1.37.1}\n")
	if n, err = s.Needed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"k8s", "stable"}, names(n)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if len(n.Bundles) != 1 || n.Bundles[0].Name != "stable" || len(n.Bundles[0].Images()) == 0 {
		t.Errorf("named: %+v", n)
	}
}

// It is an error if a cluster runs a release whose bundle is not there, or that has no document.
func TestNeededIsUnknown(t *testing.T) {
	t.Parallel()
	s := open(t)
	f, err := s.imports(t, s.upload(t, packed(t, s.bundle(t, true))), "")
	if err != nil {
		t.Fatal(err)
	}
	stable := "apiVersion: kaas/v1\nkind: Release\nmetadata: {name: stable}\nspec: {digest: " + f.Digest +
		", kubernetes: v1.37.1}\n"
	cluster := "---\napiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: demo}\nspec: {release: RELEASE, " +
		"provider: lab, image: node, network: net}\n"
	put := func(release string) { s.lab.Put(t, stable+strings.ReplaceAll(cluster, "RELEASE", release)) }
	put("stable")
	if n, err := s.Needed(t.Context()); err != nil || len(n.Bundles) != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	// The document names another release; the cluster still runs this one.
	doc, err := s.lab.Store.Document(t.Context(), model.Ref{Kind: model.KindCluster, Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	installed := doc.Document
	old := *installed.Cluster
	old.Release = "k8s"
	installed.Cluster = &old
	err = s.lab.Store.Update(t.Context(), func(tx *store.Tx) error {
		return tx.PutInstalled(store.Installed{
			UID: doc.UID, Name: "demo", Generation: 1, Document: installed, At: time.Now(),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Needed(t.Context())
	servicetest.WantKind(t, err, director.KindConflict, "the bundle of Release/k8s cannot be read")
	put("nothing")
	err = s.lab.Store.Update(t.Context(), func(tx *store.Tx) error {
		old.Release = "stable"
		return tx.PutInstalled(store.Installed{
			UID: doc.UID, Name: "demo", Generation: 1, Document: installed, At: time.Now(),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Needed(t.Context())
	servicetest.WantKind(t, err, director.KindConflict, "runs the release nothing, which has no document")
}
