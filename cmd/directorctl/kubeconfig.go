package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
)

// kubeconfigOptions are the flags of the command kubeconfig.
type kubeconfigOptions struct {
	out, passwordFile string
	ttl               time.Duration
	admin, breakGlass bool
}

func (a *clusterCommands) kubeconfigCommand() *cobra.Command {
	var o kubeconfigOptions
	cmd := &cobra.Command{
		Use:   "kubeconfig CLUSTER",
		Short: "Get a kubeconfig",
		Long: "Get a kubeconfig with which you use the cluster under your own name. It holds no secret: kubectl runs " +
			"directorctl kube-token whenever\n" +
			"it needs a token, as the user who is logged in. Your role on the cluster says what you may do there.\n\n" +
			"With --admin it has a client certificate with full access, for administrators. It needs no director " +
			"until it ends, and\n" +
			"directorctl access revoke-kubeconfigs ends it earlier. With --break-glass the cluster accepts it " +
			"whatever its own rules say, and\n" +
			"nothing ends it before its time: for a cluster that is out of order. That needs your password.",
		Example: "  directorctl kubeconfig demo -o demo.kubeconfig\n  kubectl --kubeconfig " +
			"demo.kubeconfig get nodes\n  directorctl kubeconfig demo --admin --ttl 2h -o admin.kubeconfig",
		Args:              exact("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		PreRunE:           o.check,
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			text, err := a.kubeconfig(cmd.Context(), api, args[0], o)
			if err != nil {
				return err
			}
			if o.out == "" || o.out == "-" {
				_, err = a.out.Write(text)
				return err
			}
			if err := writeFile(o.out, text, 0o600); err != nil {
				return err
			}
			say(a.err, "written: %s\n", o.out)
			return nil
		}),
	}
	cmd.Flags().StringVarP(&o.out, "output", "o", "", "file to write; - or nothing prints it")
	cmd.Flags().BoolVar(&o.admin, "admin", false, "with a client certificate that may do everything")
	cmd.Flags().BoolVar(&o.breakGlass, "break-glass", false, "with a client certificate that the cluster cannot refuse")
	cmd.Flags().DurationVar(&o.ttl, "ttl", 0,
		"how long the certificate is good for, such as 2h (default 12h; with --break-glass 1h)")
	cmd.Flags().StringVar(
		&o.passwordFile, "password-file", "", "file that holds your password; - is the standard input (default: ask)",
	)
	return cmd
}

func (o *kubeconfigOptions) check(cmd *cobra.Command, _ []string) error {
	switch {
	case o.ttl < 0:
		return usage(cmd, "--ttl is negative")
	case o.admin && o.breakGlass:
		return usage(cmd, "--admin and --break-glass are different kubeconfigs")
	case o.ttl != 0 && !o.admin && !o.breakGlass:
		return usage(cmd, "--ttl is for --admin and --break-glass: without them there is no certificate")
	case o.passwordFile != "" && !o.breakGlass:
		return usage(cmd, "--password-file is for --break-glass")
	}
	return nil
}

func (a *clusterCommands) kubeconfig(
	ctx context.Context, api *client.Client, cluster string, o kubeconfigOptions,
) ([]byte, error) {
	switch {
	case o.admin:
		return api.Kubeconfig(ctx, cluster, o.ttl)
	case o.breakGlass:
		password, err := a.password(o.passwordFile, "Your password: ")
		if err != nil {
			return nil, err
		}
		return api.BreakGlass(ctx, cluster, password, o.ttl)
	default:
		return api.UserKubeconfig(ctx, cluster)
	}
}

// accessCommand holds what ends access to clusters.
func (a *clusterCommands) accessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "End access to a cluster",
		Args:  exact(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.revokeKubeconfigsCommand())
	return cmd
}

func (a *clusterCommands) revokeKubeconfigsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke-kubeconfigs CLUSTER",
		Short: "End every kubeconfig of --admin that was given out for a cluster",
		Long: "End every kubeconfig that directorctl kubeconfig --admin has given out for a cluster, at once. Later " +
			"ones are good. People who use\n" +
			"the cluster under their own names are not concerned: their grants and users end their access.",
		Example:           "  directorctl access revoke-kubeconfigs demo",
		Args:              exact("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			if err := api.RevokeKubeconfigs(cmd.Context(), args[0]); err != nil {
				return err
			}
			say(a.err, "revoked: the kubeconfigs of cluster %s\n", args[0])
			return nil
		}),
	}
}
