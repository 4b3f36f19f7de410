package main

import (
	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *modelCommands) deleteCommand() *cobra.Command {
	var data bool
	var options startOptions
	var kind model.Kind
	cmd := &cobra.Command{
		Use:   "delete KIND NAME",
		Short: "Delete a document; for a cluster, the cluster too",
		Long: "Delete a document that nothing uses.\n\n" +
			"For a cluster, the plan of its deletion is shown and started after a confirmation; its document goes " +
			"with it at the end. The data disks of its\n" +
			"nodes are kept and listed, unless --delete-data is given: then the plan names each of them.",
		Args:              exact("KIND", "NAME"),
		ValidArgsFunction: a.completeKind(0),
		PreRunE: func(cmd *cobra.Command, args []string) (err error) {
			kind, err = kindNamed(cmd, args[0])
			return err
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			ref := model.Ref{Kind: kind, Name: args[1]}
			if kind == model.KindCluster {
				return a.deleteCluster(
					cmd, api, ref, plan.Request{Operation: plan.ClusterDelete, DeleteData: data}, options,
				)
			}
			if data {
				return usage(cmd, "--delete-data is for clusters")
			}
			ok, err := a.agreed(cmd.Context(), options.consent, "Delete "+ref.String()+"?")
			if err != nil || !ok {
				return err
			}
			return a.deleteDocument(cmd, api, ref)
		}),
	}
	cmd.Flags().BoolVar(&options.wait, "wait", false, "follow the plan to its end")
	options.flag(cmd, "delete without asking")
	deleteDataFlag(cmd, &data)
	return cmd
}

func deleteDataFlag(cmd *cobra.Command, data *bool) {
	cmd.Flags().BoolVar(
		data, "delete-data", false, "also destroy the data disks of the VMs that go; the plan names each of them",
	)
}

func (a *app) deleteDocument(cmd *cobra.Command, api *client.Client, ref model.Ref) error {
	if err := api.DeleteDocument(cmd.Context(), ref); err != nil {
		return err
	}
	say(a.out, "%s deleted\n", ref)
	return nil
}

func (a *modelCommands) deleteCluster(
	cmd *cobra.Command, api *client.Client, ref model.Ref, r plan.Request, options startOptions,
) error {
	c, err := api.Cluster(cmd.Context(), ref.Name)
	if err != nil {
		return err
	}
	// What was never made needs no plan, which a missing release or image would stand in the way of.
	nothing := c.Status == "absent" && len(c.Machines) == 0 && c.Plan == ""
	var p wire.Plan
	if !nothing {
		if p, err = api.MakePlan(cmd.Context(), ref.Name, r); err != nil {
			return err
		}
		nothing = len(p.Steps) == 0
	}
	if nothing {
		ok, err := a.agreed(cmd.Context(), options.consent, ref.String()+" has no machines. Delete its document?")
		if err != nil || !ok {
			return err
		}
		return a.deleteDocument(cmd, api, ref)
	}
	printPlan(a.out, p)
	ok, err := a.startPlan(cmd.Context(), api, p, options.consent)
	if err != nil || !ok {
		return err
	}
	if err := a.followIf(cmd.Context(), options, api, p); err != nil || !options.wait {
		return err
	}
	say(a.out, "%s deleted\n", ref)
	return nil
}
