package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *modelCommands) networkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "network", Short: "Show which addresses of a network are in use",
		Args: exact(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.addressesCommand())
	return cmd
}

func networkNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindNetwork)
}

func (a *modelCommands) addressesCommand() *cobra.Command {
	form := formTable
	var f client.AddressFilter
	cmd := &cobra.Command{
		Use: "addresses NETWORK [TEXT]", Short: "List the addresses in use, and count the free ones of the pool",
		Long: "List the addresses of a network that are in use, as the ledger and the documents have them:\n\n" +
			"  node      a machine has it\n" +
			"  virtual   the API of a cluster answers there\n" +
			"  static    a document gives it to a node that is not made yet\n" +
			"  gateway, router, dns   the document of the network names it\n" +
			"  excluded  the pool leaves it to others\n\n" +
			"With a text, only addresses that contain it, or whose node or cluster does. No hypervisor is asked: to\n" +
			"look for strangers, directorctl check CLUSTER",
		Example: "  directorctl network addresses net\n  directorctl network addresses net --use node demo",
		Args:    between(1, "NETWORK", "TEXT"), ValidArgsFunction: a.complete(0, networkNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			if len(args) > 1 {
				f.Text = args[1]
			}
			v, err := api.NetworkAddresses(cmd.Context(), args[0], f)
			if err != nil {
				return err
			}
			return a.show(form, v, func() { a.printAddresses(v) })
		}),
	}
	cmd.Flags().StringSliceVar(
		&f.Uses, "use", nil, "only node, virtual, static, gateway, router, dns or excluded addresses",
	)
	outputFlag(cmd, &form)
	return cmd
}

func (a *app) printAddresses(v wire.NetworkAddresses) {
	table(a.out, "ADDRESS USE CLUSTER NODE ROLE STATE", func(row func(...string)) {
		for _, u := range v.Items {
			row(u.Address, u.Use, u.Cluster, u.Machine, u.Role, u.State)
		}
	})
	say(a.out, "\n%d of the %d addresses of the pool are free\n", v.Free, v.Pool)
}
