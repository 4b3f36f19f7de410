package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *planCommands) directorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "director", Short: "List other directors, and make, upgrade and delete their VMs", Args: exact(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.directorListCommand(), a.directorCertificateCommand(),
		a.directorPlanCommand("create", "Plan the VM of a director, and start the plan",
			"Freeze the plan that makes the VM of a director from its document, show it, and start it after a "+
				"confirmation.", plan.DirectorCreate),
		a.directorPlanCommand("upgrade", "Plan the VM of a director by its document as it is now, and start the plan",
			"Freeze the plan that makes the VM of a director again, of the image and as large as its document says "+
				"now, in front of the same data disk.\nShow it, and start it after a confirmation. Should the "+
				"director not become ready, its former VM is made again with the data of before.",
			plan.DirectorUpgrade),
		a.directorPlanCommand("delete", "Plan the deletion of a director's VM, and start the plan",
			"Freeze the plan that deletes the VM of a director with its document, show it, and start it after a "+
				"confirmation. The data disk is\nkept and listed, unless --delete-data is given: then the plan "+
				"names it.",
			plan.DirectorDelete),
	)
	return cmd
}

func directorNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindDirector)
}

func (a *planCommands) directorListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the other directors whose VMs this one makes", Args: exact(),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.DirectorVMs, error) {
		list, err := api.Directors(ctx)
		return wire.DirectorVMs{Items: list}, err
	}, func(list wire.DirectorVMs) {
		table(a.out, "NAME STATUS PROVIDER HOST ADDRESS PLAN AGE", func(row func(...string)) {
			for _, d := range list.Items {
				doing := d.Plan
				if doing != "" {
					doing += " (" + d.PlanStatus + ")"
				}
				status := d.Status
				if d.Outdated {
					status += ", outdated"
				}
				row(d.Name, status, d.Provider, d.Host, d.Address, doing, age(time.Since(d.CreatedAt)))
			}
		})
	})
}

func (a *planCommands) directorCertificateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "certificate NAME", Short: "Write the certificate that a director's VM was given, in PEM",
		Args: exact("NAME"), ValidArgsFunction: a.complete(0, directorNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			list, err := api.Directors(cmd.Context())
			if err != nil {
				return err
			}
			for _, d := range list {
				if d.Name == args[0] && d.Certificate != "" {
					say(a.out, "%s", d.Certificate)
					return nil
				}
			}
			return director.Errorf(
				director.KindNotFound, "directorctl.director", "director %s has no VM that was given a certificate",
				args[0],
			).WithHint("directorctl director list")
		}),
	}
}

func (a *planCommands) directorPlanCommand(verb, short, long string, operation plan.Operation) *cobra.Command {
	var r wire.DirectorPlanRequest
	var options startOptions
	cmd := &cobra.Command{
		Use: verb + " NAME", Short: short, Long: long, Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, directorNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			r.Operation = string(operation)
			p, err := api.MakeDirectorPlan(cmd.Context(), args[0], r)
			if err != nil {
				return err
			}
			printPlan(a.out, p)
			if len(p.Steps) == 0 {
				return nil
			}
			return a.startAndFollow(cmd.Context(), api, p, options)
		}),
	}
	if operation == plan.DirectorDelete {
		deleteDataFlag(cmd, &r.DeleteData)
	}
	if operation == plan.DirectorUpgrade {
		cmd.Flags().BoolVar(&r.Unready, "unready", false, "do not ask the director before whether it is ready")
	}
	options.flags(cmd)
	return cmd
}
