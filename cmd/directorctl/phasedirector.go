package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
)

// phaseDirectorCommand upgrades the appliance of a director as a task of an outer plan.
func (a *planCommands) phaseDirectorCommand() *cobra.Command {
	o := phaseOptions{request: director.PhaseRequest{Phase: director.PhaseDirector}}
	var w waits
	cmd := &cobra.Command{
		Use: "director [FILE]", Short: "Upgrade the appliance of a director", Args: between(0, "FILE"),
		Long: "Send director-upgrade.tar to the director, and upgrade its appliance in place. Running steps of plans " +
			"end before, and\n" +
			"plans continue afterwards. The director continues the task by itself, through its restart. The task is " +
			"done when the new\n" +
			"version works, and fails with the reason if the former version came back.\n\n" +
			"With --upload, the archive was sent before. The same command again sends nothing twice.",
		Example: "  directorctl phase director director-upgrade.tar --task-id up7-director --wait",
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (o.request.Upload == "") {
				return usage(cmd, "name exactly one of FILE and --upload")
			}
			if err := o.check(cmd, args); err != nil {
				return err
			}
			return w.check(cmd)
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			o.request.DrainTimeout, o.request.Within = w.drain, w.within
			if len(args) > 0 {
				var err error
				if o.request.Upload, err = a.sendForTask(cmd.Context(), api, o.id, args[0]); err != nil {
					return err
				}
			}
			return a.phase(cmd.Context(), api, o.id, o.request, o.wait, o.timeout)
		}),
	}
	o.flags(cmd)
	w.flags(cmd)
	return cmd
}

// sendForTask returns the checksum of the archive, and sends it if the task has not begun.
func (a *planCommands) sendForTask(ctx context.Context, api *client.Client, id, path string) (string, error) {
	appliances := applianceCommands{&providerCommands{a.app}}
	f, c, sum, err := appliances.openUpgrade(ctx, path)
	if err != nil {
		return "", err
	}
	defer c.Close()
	t, err := api.Phase(ctx, id)
	switch {
	case err == nil && t.State != string(director.PhaseWaiting):
		return sum, nil
	case err != nil && director.KindOf(err) != director.KindNotFound:
		return "", err
	}
	return sum, appliances.sendUpgrade(ctx, api, f, sum)
}
