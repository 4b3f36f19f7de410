package rig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/director-kaas/kaas/director/simulate"
)

// Kubernetes is the version of all pretended releases.
const Kubernetes = "v1.37.1"

// Base renders a provider of type sim with the hosts and settings, and a network for each range, an image and a
// release.
func (r *Rig) Base(ctx context.Context, sim string, ranges map[string]string) (string, error) {
	bundle, err := simulate.Bundle(ctx, filepath.Join(r.Dir, "bundles"), "k8s", Kubernetes)
	if err != nil {
		return "", err
	}
	image := filepath.Join(r.Dir, "node.img")
	text := []byte("a node image\n")
	if err := os.WriteFile(image, text, 0o600); err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	var b strings.Builder
	doc := func(kind, name, spec string) {
		fmt.Fprintf(&b, "---\napiVersion: kaas/v1\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", kind, name, spec)
	}
	doc("Provider", "lab", "{type: sim, sim: "+sim+"}")
	doc(
		"Image", "node",
		fmt.Sprintf(
			"{source: %s, sha256: %q, kubernetes: %s, unsigned: made for a test}", image, hex.EncodeToString(sum[:]),
			Kubernetes,
		),
	)
	doc("Release", "k8s", fmt.Sprintf("{bundle: %s, kubernetes: %s, unsigned: made for a test}", bundle, Kubernetes))
	for name, spec := range ranges {
		doc("Network", name, spec)
	}
	return b.String(), nil
}

// Cluster renders a cluster of one master and some workers.
func Cluster(name, network string, workers int) string {
	return fmt.Sprintf("---\napiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: %s}\nspec:\n  release: k8s\n  "+
		"provider: lab\n  image: node\n  network: %s\n"+
		"  masters: {memory: 2GiB, disk: 10GiB}\n  workers: [{name: w, count: %d, memory: 2GiB, disk: 10GiB}]\n", name,
		network, workers)
}
