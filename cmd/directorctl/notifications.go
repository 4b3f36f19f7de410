package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *receiverCommands) notificationsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "notifications", Short: "Show and test who is told what waits and what went wrong", Args: exact(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	keys := keyCommands{
		receiverCommands: a, names: notificationNames, arg: "NOTIFICATION", of: "a notification",
		keys: (*client.Client).NotificationKeys, secret: (*client.Client).NotificationSecret,
		rotate: (*client.Client).RotateNotificationKey,
	}
	cmd.AddCommand(
		a.notificationsListCommand(), a.notificationsTestCommand(), a.notificationsMessagesCommand(),
		keys.showCommand(), keys.rotateCommand(),
	)
	return cmd
}

func notificationNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindNotification)
}

func (a *receiverCommands) notificationsListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List who is told what", Args: exact(),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.Notifications, error) {
		return api.Notifications(ctx)
	}, func(v wire.Notifications) {
		table(a.out, "NAME STATE ABOUT TO", func(row func(...string)) {
			for _, n := range v.Items {
				state := "active"
				switch {
				case n.Gone:
					state = "gone"
				case n.QuietUntil != nil:
					state = "quiet until " + n.QuietUntil.UTC().Format(time.RFC3339)
				}
				row(n.Name, state, strings.Join(n.About, ","), strings.Join(n.To, ","))
			}
		})
	})
}

func (a *receiverCommands) notificationsTestCommand() *cobra.Command {
	return &cobra.Command{
		Use: "test NOTIFICATION", Short: "Send a test, once, also in a quiet time", Args: exact("NOTIFICATION"),
		ValidArgsFunction: a.complete(0, notificationNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			m, err := api.TestNotification(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if m.State != "sent" {
				return director.Errorf(
					director.KindUnavailable, "directorctl.notifications", "%s was not received by Notification/%s: %s",
					m.ID, m.Notification, m.Problem,
				).WithHint("check the document, its credentials, and what the server logs")
			}
			if m.Problem != "" {
				say(a.out, "Notification/%s was received in part: %s\n", m.Notification, m.Problem)
				return nil
			}
			say(a.out, "Notification/%s was received as %s\n", m.Notification, m.ID)
			return nil
		}),
	}
}

func (a *receiverCommands) notificationsMessagesCommand() *cobra.Command {
	name, limit := "", 50
	cmd := &cobra.Command{
		Use: "messages", Short: "List what was told and is due, the newest first", Args: exact(),
	}
	f := cmd.Flags()
	f.StringVar(&name, "notification", "", "only those of this notification")
	f.IntVar(&limit, "limit", 50, "how many at most")
	ask := func(ctx context.Context, api *client.Client, _ []string) (wire.NotificationMessages, error) {
		return api.NotificationMessages(ctx, name, limit)
	}
	return shown(a.app, cmd, ask, func(v wire.NotificationMessages) {
		table(a.out, "ID NOTIFICATION STATE TRIES AGE ITEMS TEXT", func(row func(...string)) {
			for _, m := range v.Items {
				about := "a test"
				if len(m.Items) > 0 {
					about = m.Items[0].Text
				}
				row(m.ID, m.Notification, m.State, strconv.Itoa(m.Attempts), age(time.Since(m.CreatedAt)),
					strconv.Itoa(len(m.Items)+m.More), firstOf(m.Problem, about))
			}
		})
	})
}
