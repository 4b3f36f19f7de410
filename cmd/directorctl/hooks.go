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

func (a *receiverCommands) hooksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "hooks", Short: "Show, test and answer the hooks that plans tell and ask", Args: exact(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	keys := keyCommands{
		receiverCommands: a, names: hookNames, arg: "HOOK", of: "a hook", keys: (*client.Client).HookKeys,
		secret: (*client.Client).HookSecret, rotate: (*client.Client).RotateHookKey,
	}
	cmd.AddCommand(
		a.hooksListCommand(), a.hooksTestCommand(), keys.showCommand(), keys.rotateCommand(),
		a.hooksDeliveriesCommand(), a.hooksReplayCommand(), a.hooksAnswerCommand(),
	)
	return cmd
}

func hookNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindHook)
}

func (a *receiverCommands) hooksListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the hooks with their endpoints", Args: exact(),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.Hooks, error) {
		return api.Hooks(ctx)
	}, func(v wire.Hooks) {
		table(a.out, "NAME MODE STATE PHASES URL", func(row func(...string)) {
			for _, h := range v.Items {
				state := "active"
				if h.Gone {
					state = "gone"
				}
				row(h.Name, h.Mode, state, strings.Join(h.Phases, ","), h.URL)
			}
		})
	})
}

func (a *receiverCommands) hooksTestCommand() *cobra.Command {
	return &cobra.Command{
		Use: "test HOOK", Short: "Send a test event to a hook, once", Args: exact("HOOK"),
		ValidArgsFunction: a.complete(0, hookNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			d, err := api.TestHook(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if d.State != "delivered" {
				return director.Errorf(
					director.KindUnavailable, "directorctl.hooks", "Hook/%s did not receive %s: %s", d.Hook, d.ID,
					d.Problem,
				).WithHint("check url, allow and tls of the document, and what the endpoint logs")
			}
			say(a.out, "Hook/%s has received %s with status %d\n", d.Hook, d.ID, d.HTTPStatus)
			return nil
		}),
	}
}

func (a *receiverCommands) hooksDeliveriesCommand() *cobra.Command {
	hook, ofPlan, waiting, limit := "", "", false, 50
	cmd := &cobra.Command{
		Use: "deliveries", Short: "List what hooks were told and asked, the newest first", Args: exact(),
	}
	f := cmd.Flags()
	f.StringVar(&hook, "hook", "", "only those to this hook")
	f.StringVar(&ofPlan, "plan", "", "only those of this plan")
	f.BoolVar(&waiting, "waiting", false, "only those that a plan waits for")
	f.IntVar(&limit, "limit", 50, "how many at most")
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.HookDeliveries, error) {
		return api.HookDeliveries(ctx, hook, ofPlan, waiting, limit)
	}, func(v wire.HookDeliveries) {
		table(a.out, "ID HOOK PHASE ABOUT STATE TRIES AGE REASON", func(row func(...string)) {
			for _, d := range v.Items {
				row(d.ID, d.Hook, d.Phase, firstOf(d.Node, d.Cluster), firstOf(d.Decision, d.State),
					strconv.Itoa(d.Attempts), age(time.Since(d.CreatedAt)), firstOf(d.Problem, d.Reason))
			}
		})
	})
}

// firstOf returns the first text that is not empty, and - if all are.
func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return "-"
}

func (a *receiverCommands) hooksReplayCommand() *cobra.Command {
	return &cobra.Command{
		Use: "replay DELIVERY", Short: "Send an event again under its id", Args: exact("DELIVERY"),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			d, err := api.ReplayHookDelivery(cmd.Context(), args[0])
			if err == nil {
				say(a.out, "%s is sent to Hook/%s again; see: directorctl hooks deliveries --hook %s\n", d.ID, d.Hook,
					d.Hook)
			}
			return err
		}),
	}
}

func (a *receiverCommands) hooksAnswerCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "answer DELIVERY continue|refuse", Short: "Answer what a plan asks", Args: exact("DELIVERY", "DECISION"),
		Long:    "Answer what a plan asks, instead of its hook. The first answer counts.",
		Example: "  directorctl hooks answer 1125-184502-a1b2c3-17-5d41f0 continue --reason \"ticket 4711\"",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			if args[1] != "continue" && args[1] != "refuse" {
				return usage(cmd, "the decision is continue or refuse")
			}
			d, err := api.AnswerHookDelivery(cmd.Context(), args[0], wire.HookAnswer{Decision: args[1], Reason: reason})
			if err == nil {
				say(a.out, "%s is answered: %s; see: directorctl follow %s\n", d.ID, d.Decision, d.Plan)
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; shown with the plan")
	return cmd
}
