package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *userCommands) tokensCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "tokens [NAME]", Short: "List the API tokens of a user, or your own", Args: between(0, "NAME"),
		ValidArgsFunction: a.complete(0, userNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			user := ""
			if len(args) > 0 {
				user = args[0]
			}
			items, err := api.APITokens(cmd.Context(), user)
			if err != nil {
				return err
			}
			return a.show(form, wire.APITokens{Items: items}, func() { printTokens(a.out, items, time.Now()) })
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func printTokens(w io.Writer, items []wire.APIToken, now time.Time) {
	table(w, "ID NAME SCOPE AGE USED UNTIL", func(row func(...string)) {
		for _, t := range items {
			used := "never"
			if t.UsedAt != nil {
				used = age(now.Sub(*t.UsedAt))
			}
			row(t.ID, t.Name, t.Scope, age(now.Sub(t.CreatedAt)), used, minute(t.ExpiresAt))
		}
	})
}

func (a *userCommands) createTokenCommand() *cobra.Command {
	var n wire.NewToken
	var user, passwordFile string
	form := formTable
	cmd := &cobra.Command{
		Use: "create-token NAME", Short: "Create an API token for a program", Args: exact("NAME"),
		Long: "Create an API token, which is shown once. Without --user it is one of your own, and your password is\n" +
			"asked for. With --user it is one of a service account. The program logs in with:\n" +
			"directorctl login --token-file FILE, or sends the token as a bearer token.",
		Example: "  directorctl users create-token backup --scope read --days 30 > token\n" +
			"  directorctl users create-token outer --user planner --scope phases > token",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			n.Name = args[0]
			if user == "" {
				password, err := a.password(passwordFile, "Your password: ")
				if err != nil {
					return err
				}
				n.Password = password.Reveal()
			}
			t, err := api.CreateAPIToken(cmd.Context(), user, n)
			if err != nil {
				return err
			}
			return a.show(form, t, func() {
				say(a.err, "Token %s (scope %s), good until %s; it is not shown again:\n",
					t.Record.Name, t.Record.Scope, minute(t.Record.ExpiresAt))
				sayLine(a.out, t.Token)
			})
		}),
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "service account that gets the token (default yourself)")
	cmd.Flags().StringVar(&n.Scope, "scope", string(director.ScopeAll),
		"what the token is for: all that the user may do, read, or phases")
	cmd.Flags().IntVar(&n.Days, "days", 90, "how many days the token is good for, at most 366")
	cmd.Flags().StringVar(&passwordFile, "password-file", "", "file that holds your password; - is the standard input")
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions(
		[]string{string(director.ScopeAll), string(director.ScopeRead), string(director.ScopePhases)},
		cobra.ShellCompDirectiveNoFileComp,
	))
	outputFlag(cmd, &form)
	return cmd
}

func (a *userCommands) revokeTokenCommand() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use: "revoke-token ID", Short: "Revoke an API token of a user, or your own", Args: exact("ID"),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			if err := api.RevokeAPIToken(cmd.Context(), user, args[0]); err != nil {
				return err
			}
			say(a.out, "Token %s is revoked.\n", args[0])
			return nil
		}),
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "whose token it is (default your own)")
	return cmd
}
