package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *clusterCommands) certsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "List, verify and rotate certificates",
		Args:  exact(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.certsListCommand(), a.certsKeysCommand(), a.certsVerifyCommand(), a.certsRotateCommand())
	return cmd
}

func (a *clusterCommands) certsListCommand() *cobra.Command {
	form := formTable
	var f client.CertificateFilter
	var within string
	cmd := &cobra.Command{
		Use: "list [CLUSTER]", Short: "List certificates with their ends, the first end first",
		Long: "List the certificates of a cluster, or of all clusters and the director, as they were seen last. The " +
			"director looks every ten minutes.\n" +
			"STALE are those that were looked for since then and did not show themselves.",
		Example: "  directorctl certs list demo --ending-within 30d\n  directorctl certs list --director",
		Args:    between(0, "CLUSTER"), ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			if len(args) > 0 {
				f.Cluster = args[0]
			}
			if within != "" {
				d, err := parseSpan(within)
				if err != nil {
					return usage(cmd, "--ending-within %s: want a time such as 30d or 12h", within)
				}
				f.EndsBefore = time.Now().Add(d)
			}
			list, err := api.Certificates(cmd.Context(), f)
			if err != nil {
				return err
			}
			return a.show(form, wire.SeenCertificates{Items: list}, func() { a.printCertificates(list) })
		}),
	}
	cmd.Flags().StringVar(&within, "ending-within", "", "only those that end within this time, such as 30d")
	cmd.Flags().StringVar(&f.Node, "node", "", "only those of this node")
	cmd.Flags().StringVar(&f.Name, "name", "", "only those of this name, such as apiserver")
	cmd.Flags().StringVar(&f.Source, "source", "", "only those that were seen so: tls, file, api or database")
	cmd.Flags().BoolVar(&f.Director, "director", false, "only the director's own")
	outputFlag(cmd, &form)
	return cmd
}

func (a *clusterCommands) printCertificates(list []wire.SeenCertificate) {
	table(a.out, "CLUSTER NODE NAME ENDS LEFT SOURCE PLACE STATE", func(row func(...string)) {
		for _, c := range list {
			state := ""
			if c.Stale {
				state = "STALE since " + c.SeenAt.Format(time.RFC3339)
			} else if c.Problem != "" {
				state = c.Problem
			}
			cluster := c.Cluster
			if cluster == "" {
				cluster = "-"
			}
			row(cluster, c.Node, c.Name, c.EndsAt.Format(time.RFC3339), left(c.EndsAt), c.Source, c.Place, state)
		}
	})
}

// left is how long it is until then, for tables.
func left(end time.Time) string {
	d := time.Until(end)
	if d <= 0 {
		return "ended"
	}
	return age(d)
}

func (a *clusterCommands) certsKeysCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "keys [CLUSTER]", Short: "List the keys that are no certificates, with their ages",
		Long: "List the keys of a cluster, or of all clusters and the director, that are no certificates: those of " +
			"service account tokens,\nthose that encrypt Secrets, SSH authorities, and what the director signs " +
			"tokens and requests with. Keys themselves are never shown.",
		Example: "  directorctl certs keys demo",
		Args:    between(0, "CLUSTER"), ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			cluster := ""
			if len(args) > 0 {
				cluster = args[0]
			}
			list, err := api.Keys(cmd.Context(), cluster)
			if err != nil {
				return err
			}
			return a.show(form, list, func() { a.printKeys(list.Items) })
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *clusterCommands) printKeys(list []wire.Key) {
	table(a.out, "CLUSTER OWNER PURPOSE NAME ID STATE AGE ENDS", func(row func(...string)) {
		for _, k := range list {
			made, ends := "-", "-"
			if !k.MadeAt.IsZero() {
				made = age(time.Since(k.MadeAt))
			}
			if !k.EndsAt.IsZero() {
				ends = k.EndsAt.Format(time.RFC3339)
			}
			row(cmp.Or(k.Cluster, "-"), cmp.Or(k.Owner, "-"), k.Purpose, k.Name, cmp.Or(k.ID, "-"), k.State, made, ends)
		}
	})
}

func (a *clusterCommands) certsVerifyCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "verify [CLUSTER]", Short: "Look at certificates now, and say what is wrong with them",
		Long: "Have the director look at the certificates of a cluster, or of all clusters and its own: over TLS, in " +
			"the files of nodes, and in the cluster.\n" +
			"It works without an API server, changes nothing, and ends with 1 if something needs a person.",
		Example: "  directorctl certs verify demo",
		Args:    between(0, "CLUSTER"), ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			cluster := ""
			if len(args) > 0 {
				cluster = args[0]
			}
			v, err := api.VerifyCertificates(cmd.Context(), cluster)
			if err != nil {
				return err
			}
			if err := a.show(form, v, func() { a.printCertificateFindings(v) }); err != nil || len(v.Findings) == 0 {
				return err
			}
			return director.Errorf(director.KindConflict, "directorctl.certs", "%s", findingsText(len(v.Findings)))
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func findingsText(n int) string {
	if n == 1 {
		return "1 certificate needs a look"
	}
	return fmt.Sprintf("%d certificates need a look", n)
}

func (a *clusterCommands) printCertificateFindings(v wire.CertificateVerification) {
	if len(v.Findings) == 0 {
		say(a.out, "all is well with %s\n", director.Count(v.Looked, "certificate"))
		return
	}
	table(a.out, "CLUSTER NODE NAME WHAT NEXT", func(row func(...string)) {
		for _, f := range v.Findings {
			row(f.Cluster, f.Node, f.Name, f.What, f.Next)
		}
	})
}

// parseSpan reads a time as Go writes it, or a number of days such as 30d.
func parseSpan(text string) (time.Duration, error) {
	days, ok := strings.CutSuffix(text, "d")
	if !ok {
		d, err := time.ParseDuration(text)
		if err == nil && d < 0 {
			err = strconv.ErrRange
		}
		return d, err
	}
	n, err := strconv.ParseUint(days, 10, 15)
	return time.Duration(n) * 24 * time.Hour, err //nolint:gosec // at most 32767
}

func (a *clusterCommands) certsRotateCommand() *cobra.Command {
	var options requestOptions
	var all, cold bool
	var within string
	cmd := &cobra.Command{
		Use: "rotate CLUSTER", Short: "Renew the certificates of the nodes of a cluster",
		Long: "Renew what ends soon on the nodes of a cluster: the certificates of the control plane, etcd and the " +
			"kubelets, and the kubeconfigs on masters.\n" +
			"Masters go one by one behind gates, and then workers in the window of the cluster. No pod is moved. A " +
			"rotation that stopped half way is\n" +
			"resumed by asking again: what was renewed is left alone.\n\n" +
			"With --cold, for a cluster whose certificates have ended: everything goes over SSH, all masters are " +
			"renewed together, and then etcd,\n" +
			"the API servers and the kubelets come back. The clocks of the nodes are compared first. Authorities " +
			"that have " +
			"ended are replaced, too.",
		Example: "  directorctl certs rotate demo --wait\n" +
			"  directorctl certs rotate demo --all --wait\n" +
			"  directorctl certs rotate demo --cold --yes --wait",
		Args: exact("CLUSTER"), ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			c := plan.Certificates{Cold: cold}
			now := time.Now().UTC().Truncate(time.Second)
			span, err := parseSpan(within)
			switch {
			case err != nil:
				return usage(cmd, "--ending-within %s: want a time such as 30d or 12h", within)
			case all && cmd.Flags().Changed("ending-within"):
				return usage(cmd, "--all and --ending-within exclude each other")
			case all:
				c.MadeBefore = now
			default:
				c.EndBefore = now.Add(span)
			}
			return a.request(
				cmd.Context(), api, args[0], plan.Request{Operation: plan.ClusterRotateCerts, Certificates: c}, options,
			)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "renew all certificates, whenever they end")
	cmd.Flags().StringVar(&within, "ending-within", "30d", "renew those that end within this time")
	cmd.Flags().BoolVar(&cold, "cold", false, "the certificates have ended, and the API does not answer")
	options.flags(cmd)
	return cmd
}
