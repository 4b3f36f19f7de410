package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *accountCommands) settingsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "settings", Short: "Show what the director's configuration says that you go by",
		Long: "Show the fields of the director's configuration that people go by: who approves plans that destroy " +
			"something, how long a\nplan can be started, how many shells on nodes may be open at once, and the " +
			"notice for everyone. They are changed in the\nconfiguration file on the director's machine, and count " +
			"from its next start.",
		Example: "  directorctl settings\n  directorctl settings -o json", Args: exact(),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.Settings, error) {
		return api.Settings(ctx)
	}, a.printSettings)
}

// printSettings names the fields as the configuration does.
func (a *app) printSettings(s wire.Settings) {
	table(a.out, "FIELD VALUE", func(row func(...string)) {
		row("approval", s.Approval)
		row("planLife", span(time.Duration(s.PlanLifeSeconds)*time.Second))
		row("nodeShells", strconv.Itoa(s.NodeShells))
	})
	if s.Notice != "" {
		say(a.out, "\nnotice:\n%s\n", plain(s.Notice))
	}
}
