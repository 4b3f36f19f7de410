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
	cmd.AddCommand(
		a.rotation(
			"pull-password", plan.ClusterRotatePull, "Give the nodes another password for the director's registry",
			"Give the nodes of a cluster another password for the director's registry. Both passwords are accepted "+
				"until every node has the new one;\n"+
				"then the former one ends. No pod is moved and nothing is restarted. A plan that stopped half way is "+
				"resumed by asking again.",
		),
		a.rotation(
			"token-keys", plan.ClusterTokenKeys, "Give the masters the director's present token keys",
			"Give the masters of a cluster the director's present token keys, and its roles their rights, so that "+
				"people log in with their own names.\n"+
				"The director does so by itself when its keys change; a cluster from before has it done once, here or "+
				"by its next upgrade. Nothing restarts.",
		),
		a.rotation(
			"encryption-key", plan.ClusterEncryptionKey, "Encrypt the Secrets of a cluster with another key",
			"Make another key for Secrets at rest, give it to all masters, and encrypt all Secrets in etcd with it. "+
				"Then the former key is taken from the masters; the director keeps it for older backups.\n"+
				"Nothing restarts: API servers look for other keys once a minute. A plan that stopped half way is "+
				"resumed by asking again.",
		),
		a.rotation(
			"service-account-key", plan.ClusterSigningKey,
			"Sign the service account tokens of a cluster with another key",
			"Make another key for service account tokens: all API servers accept it, then they sign with it, and they "+
				"refuse the former one when no token of it is in use any more.\n"+
				"API servers restart one by one. The tokens of pods are renewed within the hour, and the plan waits "+
				"for it. It waits for a person while a Secret has a token of the former key, and names it.\n"+
				"A plan that stopped half way is resumed by asking again.",
		),
		a.authorityRotation(
			"cluster-ca", plan.ClusterCA, "cluster",
			"the API servers, the kubelets and all their clients; pods get it as kube-root-ca.crt",
		),
		a.rotation(
			"ssh-authority", plan.ClusterSSHAuthority, "Give a cluster another authority for logins to its nodes",
			"Have all nodes trust another SSH authority, log in by it, and take the former one from all nodes. "+
				"Nothing restarts. All nodes have to be ready.\n"+
				"Exported inventories open no node after it. A plan that stopped half way is resumed by asking again.",
		),
		a.consulRotation(),
		a.authorityRotation("etcd-ca", plan.ClusterEtcdCA, "etcd", "etcd's members and the API servers towards them"),
		a.authorityRotation(
			"front-proxy-ca", plan.ClusterFrontProxyCA, "front-proxy", "the API servers towards extension API servers",
		),
	)
	return cmd
}

func (a *clusterCommands) consulRotation() *cobra.Command {
	return a.rotation(
		"consul-token", plan.ClusterConsul, "Give a cluster other tokens for Consul",
		"Make other ACL tokens for the sync of Services with Consul and for the agents on nodes, give them to the "+
			"cluster, and end the former ones. The sync, the agents and the\n"+
			"name servers of the cluster follow its document and that of Consul. Agents restart, no pod does.",
	)
}

func (a *clusterCommands) authorityRotation(name string, operation plan.Operation, which, what string) *cobra.Command {
	return a.rotation(
		name, operation, "Give a cluster another "+which+" certificate authority",
		"Make another authority for "+what+". All nodes trust both; then the new one signs every certificate; then "+
			"the former one is forgotten, once nothing uses it.\n"+
			"Masters go one by one, workers in their window. A plan that stopped half way is resumed by asking again.",
	)
}

// rotation is a command that asks for a plan of the operation, which needs nothing but the cluster.
func (a *clusterCommands) rotation(what string, operation plan.Operation, short, long string) *cobra.Command {
	var options requestOptions
	cmd := &cobra.Command{
		Use: what + " CLUSTER", Short: short, Long: long, Example: "  directorctl rotate " + what + " demo --wait",
		Args: exact("CLUSTER"), ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			return a.request(cmd.Context(), api, args[0], plan.Request{Operation: operation}, options)
		}),
	}
	options.flags(cmd)
	return cmd
}
