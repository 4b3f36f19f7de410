package main

import (
	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
)

func (a *clusterCommands) rotateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Give a cluster other credentials",
		Args:  exact(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.rotatePullCommand())
	return cmd
}

func (a *clusterCommands) rotatePullCommand() *cobra.Command {
	var options requestOptions
	cmd := &cobra.Command{
		Use:   "pull-password CLUSTER",
		Short: "Give the nodes another password for the director's registry",
		Long: "Give the nodes of a cluster another password for the director's registry. Both passwords are " +
			"accepted until every node has the new one;\n" +
			"then the former one ends. No pod is moved and nothing is restarted. A plan that stopped half way is " +
			"resumed by asking again.",
		Example:           "  directorctl rotate pull-password demo --wait",
		Args:              exact("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			return a.request(cmd.Context(), api, args[0], plan.Request{Operation: plan.ClusterRotatePull}, options)
		}),
	}
	options.flags(cmd)
	return cmd
}
