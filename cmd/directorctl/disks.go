package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *providerCommands) disksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "disks", Short: "List the disks that outlived their VMs, and delete one by its name",
		Long: "The data disks of nodes stay when their VMs go, unless a person says otherwise, and so do disks that " +
			"others had attached to them. A new node takes\n" +
			"one over with --adopt-disk of plan and scale.",
		Args: exact(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.disksListCommand(), a.disksDeleteCommand())
	return cmd
}

func (a *providerCommands) disksListCommand() *cobra.Command {
	form := formTable
	var f client.DiskFilter
	cmd := &cobra.Command{
		Use: "list [PROVIDER...]", Short: "List the disks that outlived their VMs",
		ValidArgsFunction: a.complete(0, providerNames),
		Long: "List the disks that outlived their VMs:\n\n" +
			"  kept     a node has left it behind, and another can take it over\n" +
			"  taken    a node has taken it over\n" +
			"  foreign  someone else attached it to a node; the director never deletes it\n" +
			"  orphan   it has the director's stamp, and the ledger has neither its machine nor the disk\n" +
			"  missing  the ledger keeps it, and the hypervisor does not have it\n" +
			"  going    its deletion has not come to its end",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			f.Providers = args
			v, err := api.Disks(cmd.Context(), f)
			if err != nil {
				return err
			}
			return a.show(form, v, func() {
				a.printDisks(v.Items)
				a.printUnseen(v.Providers)
			})
		}),
	}
	cmd.Flags().StringVar(&f.Cluster, "cluster", "", "only disks of nodes of this cluster")
	cmd.Flags().StringVar(&f.Plan, "plan", "", "only disks that this plan kept, as the ledger has them")
	_ = cmd.RegisterFlagCompletionFunc("cluster", a.complete(0, clusterNames))
	outputFlag(cmd, &form)
	return cmd
}

func (a *app) printDisks(list []wire.Disk) {
	table(a.out, "ID STATE CLUSTER POOL NODE SIZE AGE PROVIDER HOST NAME", func(row func(...string)) {
		for _, d := range list {
			old := ""
			if d.KeptAt != nil {
				old = age(time.Since(*d.KeptAt))
			}
			row(d.ID, d.State, d.Cluster, d.Pool, d.Node, memory(d.SizeBytes), old, d.Provider, d.Host, d.Name)
		}
	})
}

func (a *providerCommands) disksDeleteCommand() *cobra.Command {
	var options consent
	cmd := &cobra.Command{
		Use: "delete PROVIDER ID", Short: "Delete a kept disk with everything on it",
		Long: "Delete a disk that no node and no VM has, with everything on it. A disk that someone else attached, " +
			"or that the hypervisor does not have, is\n" +
			"only taken off the list.",
		Example: "  directorctl disks delete lab m532d21a7291a85a9.kaas-data", Args: exact("PROVIDER", "ID"),
		ValidArgsFunction: a.complete(0, providerNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			ok, err := a.agreed(
				cmd.Context(), options, "Destroy disk "+args[1]+" on "+args[0]+" with everything on it?",
			)
			if err != nil || !ok {
				return err
			}
			d, err := api.DeleteDisk(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if d.State == "foreign" {
				say(
					a.out, "Disk %s (%s) is off the list; it was not destroyed, since the director did not make it\n",
					d.ID, d.Name,
				)
				return nil
			}
			say(a.out, "Disk %s of %s on %s destroyed\n", d.ID, d.Node, args[0])
			return nil
		}),
	}
	options.flag(cmd, "destroy without asking")
	return cmd
}

// printKept lists the disks that the plan kept, if it took VMs away.
func (a *app) printKept(ctx context.Context, api *client.Client, p wire.Plan) {
	deletes := false
	for _, s := range p.Steps {
		deletes = deletes || s.Kind == "vm.delete" || s.Kind == "vm.remove"
	}
	if !deletes {
		return
	}
	v, err := api.Disks(ctx, client.DiskFilter{Plan: p.ID})
	if err != nil {
		say(a.err, "The disks that the plan kept could not be listed: %s\n", err)
		return
	}
	if len(v.Items) == 0 {
		return
	}
	say(a.out, "\nDisks that were kept:\n")
	a.printDisks(v.Items)
	say(
		a.out,
		"\na new node takes one over: directorctl plan CLUSTER --adopt-disk NODE=ID\nto destroy one: directorctl "+
			"disks delete PROVIDER ID\n",
	)
}

func adoptDiskFlag(cmd *cobra.Command, disks *[]string) {
	cmd.Flags().StringArrayVar(
		disks, "adopt-disk", nil,
		"kept disk that a new node takes over: NODE=ID, or NODE for the one that a node of its name left behind; "+
			"may be repeated",
	)
}

// adoptedDisks reads the flags. Of a node without a disk, the one kept disk of a node of that name is meant.
func adoptedDisks(
	ctx context.Context, cmd *cobra.Command, api *client.Client, flags []string,
) (map[string]string, error) {
	if len(flags) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	var kept *wire.Disks
	for _, f := range flags {
		node, id, named := strings.Cut(f, "=")
		if node == "" || named && id == "" || out[node] != "" {
			return nil, usage(cmd, "--adopt-disk %s: want NODE=ID or NODE, once for each node", f)
		}
		if !named {
			if kept == nil {
				v, err := api.Disks(ctx, client.DiskFilter{})
				if err != nil {
					return nil, err
				}
				kept = &v
			}
			var err error
			if id, err = diskOf(*kept, node); err != nil {
				return nil, err
			}
		}
		out[node] = id
	}
	return out, nil
}

func diskOf(kept wire.Disks, node string) (string, error) {
	var found []string
	for _, d := range kept.Items {
		if d.Node == node && d.State == "kept" {
			found = append(found, d.ID)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	const op = "directorctl.adopt_disk"
	if len(found) == 0 {
		return "", director.Errorf(director.KindNotFound, op, "no disk is kept of a node %s", node).
			WithHint("see: directorctl disks list")
	}
	return "", director.Errorf(
		director.KindConflict, op, "%d disks are kept of nodes with the name %s", len(found), node,
	).
		WithHint("name one of them: --adopt-disk %s=%s", node, strings.Join(found, " or "))
}

// printDiskAudit sums up the kept disks of an audit.
func (a *providerCommands) printDiskAudit(disks []wire.Disk) {
	n, bytes, oldest := 0, int64(0), time.Duration(0)
	for _, d := range disks {
		if d.State != "kept" {
			continue
		}
		n++
		bytes += d.SizeBytes
		if d.KeptAt != nil {
			oldest = max(oldest, time.Since(*d.KeptAt))
		}
	}
	if n > 0 {
		say(
			a.out, "%d disks are kept, %s, the oldest for %s: directorctl disks list\n", n, model.Size(bytes),
			age(oldest),
		)
	}
}
