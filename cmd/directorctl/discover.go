package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *providerCommands) discoverCommand() *cobra.Command {
	var kind string
	form := formTable
	cmd := &cobra.Command{
		Use: "discover NAME", Short: "Tell what a provider has that documents may name", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, providerNames),
		Long: "Ask the hypervisor for what you would otherwise look up and type: hosts; storage pools, networks and\n" +
			"bridges of libvirt; datacenters, clusters, resource pools, datastores, port groups, folders and\n" +
			"templates of vSphere. The names are those that documents take. Nothing is changed. The provider's\n" +
			"document needs a working address and account; the rest of it may still be wrong.",
		Example: "  directorctl provider discover lab --kind storage_pool",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if kind != "" && !slices.Contains(wire.DiscoveredKinds(), kind) {
				return usage(cmd, "--kind is not one of %s", strings.Join(wire.DiscoveredKinds(), ", "))
			}
			return nil
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			v, err := api.Discover(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if kind != "" {
				v.Items = slices.DeleteFunc(v.Items, func(i wire.Discovered) bool { return i.Kind != kind })
				v.Left = slices.DeleteFunc(v.Left, func(l wire.DiscoveredLeft) bool { return l.Kind != kind })
			}
			return a.show(form, v, func() { a.printDiscovery(v) })
		}),
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only this kind: "+strings.Join(wire.DiscoveredKinds(), ", "))
	outputFlag(cmd, &form)
	return cmd
}

func (a *providerCommands) printDiscovery(v wire.Discovery) {
	table(a.out, "KIND IN NAME FREE SIZE ABOUT", func(row func(...string)) {
		for _, i := range v.Items {
			free, size, about := "", "", plain(i.About)
			switch {
			case i.SizeBytes > 0:
				free, size = gib(i.FreeBytes), gib(i.SizeBytes)
			case i.MemoryBytes > 0:
				free, size = gib(i.MemoryFreeBytes), gib(i.MemoryBytes)
				about = strings.TrimSpace(strconv.Itoa(i.CPUs) + " CPUs, " + strconv.Itoa(i.VMs) + " VMs, " + about)
			}
			if i.Problem != "" {
				about = strings.TrimPrefix(about+"; "+plain(i.Problem), "; ")
			}
			row(i.Kind, plain(i.In), plain(i.Name), free, size, about)
		}
	})
	for _, l := range v.Left {
		say(a.out, "\n%d more of kind %s are not shown\n", l.Count, l.Kind)
	}
	for _, u := range v.Unseen {
		say(a.out, "\n%s: %s\n%s\n", u.Host, plain(u.Problem), plain(u.Hint))
	}
}
