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
	cmd.AddCommand(a.rotatePullCommand(), a.tokenKeysCommand(), a.encryptionKeyCommand())
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

func (a *clusterCommands) tokenKeysCommand() *cobra.Command {
	var options requestOptions
	cmd := &cobra.Command{
		Use:   "token-keys CLUSTER",
		Short: "Give the masters the director's present token keys",
		Long: "Give the masters of a cluster the director's present token keys, and its roles their rights, so that " +
			"people log in with their own names.\n" +
			"The director does so by itself when its keys change; a cluster from before has it done once, here or by " +
			"its next upgrade. Nothing restarts.",
		Example:           "  directorctl rotate token-keys demo --wait",
		Args:              exact("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			return a.request(cmd.Context(), api, args[0], plan.Request{Operation: plan.ClusterTokenKeys}, options)
		}),
	}
	options.flags(cmd)
	return cmd
}

func (a *clusterCommands) encryptionKeyCommand() *cobra.Command {
	var options requestOptions
	cmd := &cobra.Command{
		Use:   "encryption-key CLUSTER",
		Short: "Encrypt the Secrets of a cluster with another key",
		Long: "Make another key for Secrets at rest, give it to all masters, and encrypt all Secrets in etcd with " +
			"it. Then the former key is taken from the masters; the director keeps it for older backups.\n" +
			"Nothing restarts: API servers look for other keys once a minute. A plan that stopped half way is " +
			"resumed by asking again.",
		Example:           "  directorctl rotate encryption-key demo --wait",
		Args:              exact("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			return a.request(cmd.Context(), api, args[0], plan.Request{Operation: plan.ClusterEncryptionKey}, options)
		}),
	}
	options.flags(cmd)
	return cmd
}
