package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *clusterCommands) summaryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "summary", Short: "Count clusters, nodes, plans, waits and certificates that end",
		Long: "Count what you may see: clusters, nodes, plans, what they wait for, and certificates of nodes that " +
			"end soon. Nodes and certificates are counted\nas they were seen last.",
		Example: "  directorctl summary\n  directorctl summary -o json", Args: exact(),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.Summary, error) {
		return api.Summary(ctx)
	}, a.printSummary)
}

func (a *app) printSummary(v wire.Summary) {
	waits := 0
	for _, n := range v.Waits {
		waits += n
	}
	plans := 0
	for _, n := range v.Plans {
		plans += n
	}
	certificates := "none seen"
	if next := v.Certificates.NextAt; next != nil {
		certificates = fmt.Sprintf(
			"%d ended, %d end before %s, the next %s", v.Certificates.Ended, v.Certificates.Ending-v.Certificates.Ended,
			v.Certificates.Before.Format(time.DateOnly), next.Format(time.DateOnly),
		)
	}
	table(a.out, "WHAT COUNT OF THEM", func(row func(...string)) {
		row("clusters", fmt.Sprint(v.Clusters), counts(v.ClusterStatus))
		row("nodes", fmt.Sprint(v.Nodes), counts(v.Conditions))
		row("plans", fmt.Sprint(plans), counts(v.Plans))
		row("waits", fmt.Sprint(waits), counts(v.Waits))
		row("waits for you", fmt.Sprint(v.Mine), "")
		row("nodes with a problem", fmt.Sprint(v.Problems), "")
		row("nodes with a certificate that ends", fmt.Sprint(v.Certificates.Ending), certificates)
	})
}

// counts says how many there are of each that there is one of.
func counts(of map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if of[name] > 0 {
			out = append(out, fmt.Sprintf("%d %s", of[name], name))
		}
	}
	return strings.Join(out, ", ")
}
