package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store/storetest"
	"github.com/director-kaas/kaas/director/wire"
)

// fleet are documents of clusters of one master, and of the next release.
func fleet(clusters int) string {
	base, _, _ := strings.Cut(demoDocuments, "---\napiVersion: kaas/v1\nkind: Cluster")
	var b strings.Builder
	b.WriteString(base + `---
apiVersion: kaas/v1
kind: Release
metadata: {name: next}
spec: {bundle: /nowhere/next, kubernetes: v1.38.0}
`)
	for i := range clusters {
		fmt.Fprintf(&b, "---\napiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: c%02d}\n"+
			"spec: {release: k8s, provider: "+
			"lab, image: node, network: net, masters: {count: 1}}\n", i)
	}
	return b.String()
}

// pair returns two directors that simulate on one PostgreSQL.
func pair(t *testing.T, documents string) (first, second Config) {
	t.Helper()
	first, second = simulating(t, documents), simulating(t, documents)
	server := storetest.Shared(t)
	address, password := server.TCP(server.Database(t)), filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(storetest.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	worlds := t.TempDir()
	for _, c := range []*Config{&first, &second} {
		c.Database, c.DatabasePasswordFile, c.Simulation.Worlds = address, password, worlds
	}
	second.Simulation.Documents = nil
	return first, second
}

// join gives the second director what the first one has made: the sealing key and the authority.
func join(t *testing.T, first, second Config) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(second.StateDir, "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"sealing.key", "tls/ca.crt", "tls/ca.key"} {
		copyFile(t, filepath.Join(first.StateDir, file), filepath.Join(second.StateDir, file))
	}
}

// reach asks for the campaign until it has the status.
func reach(t *testing.T, api *client.Client, id, status string) wire.Campaign {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
		c, err := api.Campaign(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if c.Status == status {
			return c
		}
		if c.Status == "paused" || c.Status == "done" {
			t.Fatalf("the campaign is %s: %s", c.Status, c.Reason)
		}
	}
}

// Two directors move a campaign on, and one of them goes in the middle: every cluster is upgraded once.
func TestCampaignOfTwoDirectors(t *testing.T) {
	t.Parallel()
	const clusters = 4
	first, second := pair(t, fleet(clusters))
	one, err := start(t, first, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	join(t, first, second)
	two, err := start(t, second, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	api := connect(t, second, two)
	for i := range clusters {
		name := fmt.Sprintf("c%02d", i)
		p, err := api.MakePlan(t.Context(), name, plan.Request{})
		if err == nil {
			_, err = api.StartPlan(t.Context(), p.ID, p.Hash)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, api, clusters)
	c, err := api.CreateCampaign(t.Context(), wire.CampaignNew{
		Name: "next", Target: wire.CampaignTarget{Release: "next"}, Canary: 1, Wave: "100%",
	})
	if err != nil {
		t.Fatal(err)
	}
	c = reach(t, api, c.ID, "waiting")
	if _, err := api.AgreeCampaign(t.Context(), c.ID, 1, c.Waves[0].Hash); err != nil {
		t.Fatal(err)
	}
	if err := one.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for c = reach(t, api, c.ID, "waiting"); c.Wave == 1; c = reach(t, api, c.ID, "waiting") { // not seen yet
	}
	if _, err := api.AgreeCampaign(t.Context(), c.ID, 2, c.Waves[1].Hash); err != nil {
		t.Fatal(err)
	}
	c = reach(t, api, c.ID, "done")
	if c.Counts["done"] != clusters {
		t.Errorf("%v", c.Counts)
	}
	plans, err := api.Plans(t.Context(),
		client.PlanFilter{Limit: 100, Operations: []string{string(plan.ClusterUpgrade)}})
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for _, p := range plans {
		if p.StartedAt != nil {
			ran[p.Cluster]++
		}
	}
	for i := range clusters {
		if name := fmt.Sprintf("c%02d", i); ran[name] != 1 {
			t.Errorf("%s was upgraded %d times", name, ran[name])
		}
	}
}

// waitFor waits until so many clusters are ready.
func waitFor(t *testing.T, api *client.Client, clusters int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for tick := time.NewTicker(200 * time.Millisecond); ; <-tick.C {
		list, err := api.Plans(ctx, client.PlanFilter{Statuses: []plan.Status{plan.StatusDone}, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == clusters {
			return
		}
	}
}
