package main

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *providerCommands) consulCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "consul", Short: "Test Consuls, and show and repair what is registered there", Args: exact(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.consulListCommand(), a.consulTestCommand(), a.consulServicesCommand(), a.consulDiffCommand(),
		a.consulSyncCommand(),
	)
	return cmd
}

func consulNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindConsul)
}

func (a *providerCommands) consulListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List Consuls with how their last comparisons went", Args: exact(),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.Consuls, error) {
		list, err := api.Consuls(ctx)
		return wire.Consuls{Items: list}, err
	}, func(list wire.Consuls) {
		table(a.out, "NAME DATACENTER WANTED FAILING SUCCESS PROBLEM", func(row func(...string)) {
			for _, c := range list.Items {
				success := "never"
				if c.State.SuccessAt != nil {
					success = age(time.Since(*c.State.SuccessAt)) + " ago"
				}
				row(c.Name, c.Datacenter, strconv.Itoa(c.State.Wanted), strconv.Itoa(c.State.Failing), success,
					plain(c.State.Problem))
			}
		})
	})
}

func (a *providerCommands) consulTestCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "test NAME", Short: "Ask a Consul and say what is wrong", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, consulNames),
		Long: "Ask a Consul and say of each thing whether it is well: addresses, certificates, the datacenter, the\n" +
			"leader, the token, each right, the domain. Nothing is changed. Exits with 8 if something is wrong.",
		RunE: a.tests(&form, "Consul/%s does not work", (*client.Client).TestConsul),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *providerCommands) consulServicesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "services NAME", Short: "List what is registered in a Consul", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, consulNames),
		Long: "Ask a Consul for all entries on the director's nodes: those of the director, and those that programs " +
			"in\nclusters write. DRIFT says how an entry differs from what is wanted.",
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, args []string) (wire.ConsulServices, error) {
		list, err := api.ConsulServices(ctx, args[0])
		return wire.ConsulServices{Items: list}, err
	}, func(list wire.ConsulServices) { a.printServices(list.Items) })
}

func (a *providerCommands) consulDiffCommand() *cobra.Command {
	form, exit := formTable, false
	cmd := &cobra.Command{
		Use: "diff NAME", Short: "Show how a Consul differs from what is wanted there, and who cannot reach what",
		Args: exact("NAME"), ValidArgsFunction: a.complete(0, consulNames),
		Long: "Show how a Consul differs from what is wanted there, and which nodes have no route to which services, " +
			"as " +
			"far as\nNetwork documents tell. It also names services with instances of several clusters, which is no " +
			"difference.",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			list, err := api.ConsulServices(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			shared := sharedServices(list)
			list = slices.DeleteFunc(list, func(s wire.ConsulService) bool { return s.Drift == "" })
			gaps, err := api.ConsulGaps(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			err = a.show(form, consulDiff{list, gaps.Items, shared}, func() {
				if len(list) == 0 {
					say(a.out, "Consul/%s has what is wanted.\n", args[0])
				} else {
					a.printServices(list)
				}
				a.printGaps(gaps)
				for _, s := range shared {
					say(a.out, "%s is one service with instances of the clusters %s\n", plain(s.Service),
						strings.Join(s.Clusters, ", "))
				}
			})
			if err == nil && exit && len(list)+len(gaps.Items) > 0 {
				return differsError{}
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&exit, "exit-code", false, "exit with 9 if there are differences")
	outputFlag(cmd, &form)
	return cmd
}

// consulDiff is what consul diff shows.
type consulDiff struct {
	Items  []wire.ConsulService `json:"items"`
	Gaps   []wire.ConsulGap     `json:"gaps"`
	Shared []sharedService      `json:"shared"`
}

// sharedService is a service with instances of several clusters. That may be meant: it is no difference.
type sharedService struct {
	Service  string   `json:"service"`
	Clusters []string `json:"clusters"`
}

// sharedServices returns the services that several clusters have registered, by name.
func sharedServices(list []wire.ConsulService) []sharedService {
	clusters := map[string][]string{}
	for _, s := range list {
		if s.Cluster != "" && s.Drift != "missing" && !slices.Contains(clusters[s.Service], s.Cluster) {
			clusters[s.Service] = append(clusters[s.Service], s.Cluster)
		}
	}
	out := []sharedService{}
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		if of := clusters[name]; len(of) > 1 {
			slices.Sort(of)
			out = append(out, sharedService{name, of})
		}
	}
	return out
}

func (a *providerCommands) printGaps(g wire.ConsulGaps) {
	for _, gap := range g.Items {
		at := gap.CIDR
		if gap.Network != "" {
			at = "Network/" + gap.Network + " (" + gap.CIDR + ")"
		}
		who, hosts, where := "Cluster/"+gap.Cluster+" does not reach", "nodes", ""
		if gap.From != "" {
			who, hosts = "hosts on Network/"+gap.From+" do not reach", "hosts"
			where = "Cluster/" + gap.Cluster + " has "
		}
		services := plain(strings.Join(gap.Services, ", "))
		if where == "" {
			services += " is"
		}
		say(a.out, "%s %s, where %s%s: %s\n", who, at, where, services, plain(gap.Problem))
		say(a.out, "  %s: %s\n  hint: %s\n", hosts, plain(strings.Join(gap.Nodes, ", ")), plain(gap.Hint))
	}
	if g.More > 0 {
		say(a.out, "%d more are not shown\n", g.More)
	}
}

func (a *providerCommands) printServices(list []wire.ConsulService) {
	table(a.out, "CLUSTER SERVICE ADDRESS TAGS CHECK WRITER DRIFT", func(row func(...string)) {
		for _, s := range list {
			check := "failing"
			if s.Passing {
				check = "passing"
			}
			if s.Drift == "missing" {
				check = ""
			}
			row(
				s.Cluster, plain(s.Service), plain(s.Address)+":"+strconv.Itoa(s.Port),
				plain(strings.Join(s.Tags, ",")), check, s.Writer, s.Drift,
			)
		}
	})
}

func (a *providerCommands) consulSyncCommand() *cobra.Command {
	form, confirm := formTable, ""
	cmd := &cobra.Command{
		Use: "sync NAME", Short: "Compare a Consul with what is wanted now, and repair it", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, consulNames),
		Long: "Compare a Consul with what is wanted, and repair it. The director does so every 15 seconds.\n\n" +
			"Removals of more than 10 entries and of more than a fifth of all are held. If they should go, give " +
			"their\nid with --confirm. Exits with 8 if the comparison did not end well.",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			v, err := api.SyncConsul(cmd.Context(), args[0], confirm)
			if err != nil {
				return err
			}
			err = a.show(form, v, func() {
				say(a.out, "%d entries are wanted, %d were written, %d were removed\n", v.Wanted, v.Written, v.Removed)
			})
			if err != nil || v.Problem == "" {
				return err
			}
			return director.Errorf(
				director.KindUnavailable, "directorctl.consul_sync", "%s", plain(v.Problem),
			).WithHint("%s", plain(v.Hint))
		}),
	}
	cmd.Flags().StringVar(&confirm, "confirm", "", "id of the removals that are held, if they should go")
	outputFlag(cmd, &form)
	return cmd
}
