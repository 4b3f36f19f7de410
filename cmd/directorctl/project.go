package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *modelCommands) projectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "project", Short: "Show how much of its quota the images of a project use",
		Args: exact(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.projectImagesCommand())
	return cmd
}

func projectNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindProject)
}

func (a *modelCommands) projectImagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "images PROJECT", Short: "Show how much the images of a project have, and may have",
		Long: "Show how much the images have that people have pushed for a project into the director's registry,\n" +
			"and how much they may have (spec.quota.images of the project). What several images share counts once.",
		Example: "  directorctl project images web",
		Args:    exact("PROJECT"), ValidArgsFunction: a.complete(0, projectNames),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, args []string) (wire.ProjectImages, error) {
		return api.ProjectImages(ctx, args[0])
	}, func(v wire.ProjectImages) {
		if v.QuotaBytes == 0 {
			say(a.out, "the images of %s have %s, without a limit\n", v.Project, amount(v.UsedBytes))
			return
		}
		say(a.out, "the images of %s have %s of %s\n", v.Project, amount(v.UsedBytes), amount(v.QuotaBytes))
	})
}
