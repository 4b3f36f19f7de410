package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

// userCommands manage who may use the director.
type userCommands struct{ *app }

func (a *userCommands) usersCommand() *cobra.Command {
	form := formTable
	list := a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
		items, err := api.Users(cmd.Context(), "")
		if err != nil {
			return err
		}
		return a.show(form, wire.Users{Items: items}, func() { printUsers(a.out, items, time.Now()) })
	})
	cmd := &cobra.Command{
		Use: "users", Short: "Manage who may use the director", RunE: list, Args: exact(),
		Long: "List the users of the director. The subcommands create, disable and delete users, give them roles\n" +
			"and new passwords, and end their sessions. All changes need the role admin.",
	}
	outputFlag(cmd, &form)
	listCmd := &cobra.Command{Use: "list", Short: "List the users", RunE: list, Args: exact()}
	outputFlag(listCmd, &form)
	cmd.AddCommand(
		listCmd, a.createUserCommand(), a.resetUserCommand(), a.roleCommand(),
		a.changeUserCommand("disable", "Refuse a user and end all sessions", (*client.Client).DisableUser),
		a.changeUserCommand("enable", "Let a user log in again", (*client.Client).EnableUser),
		a.deleteUserCommand(), a.userSessionsCommand(), a.endUserSessionCommand(),
		a.tokensCommand(), a.createTokenCommand(), a.revokeTokenCommand(),
	)
	return cmd
}

func userNames(ctx context.Context, c *client.Client, _ []string) []string {
	items, _ := c.Users(ctx, "") // no completion is better than an error in the middle of a line
	names := make([]string, len(items))
	for i, u := range items {
		names[i] = u.Name + "\t" + u.Role
	}
	return names
}

func printUsers(w io.Writer, items []wire.User, now time.Time) {
	table(w, "NAME ROLE STATUS PROVIDER LOGIN AGE", func(row func(...string)) {
		for _, u := range items {
			login := ""
			if u.LoginAt != nil {
				login = age(now.Sub(*u.LoginAt))
			}
			row(u.Name, u.Role, userStatus(u), orDash(u.Provider), login, age(now.Sub(u.CreatedAt)))
		}
	})
}

func userStatus(u wire.User) string {
	switch {
	case u.DisabledAt != nil:
		return "disabled"
	case u.MustChangePassword:
		return "one-time password"
	case u.Service:
		return "service account"
	}
	return "enabled"
}

// printOneTime shows the password on the standard output, so that it can be kept by a script.
func (a *app) printOneTime(form string, o wire.OneTimePassword) error {
	return a.show(form, o, func() {
		if o.ExpiresAt == nil {
			say(a.out, "Service account %s (%s) is created.\n", o.User.Name, o.User.Role)
			say(a.err, "next: directorctl users create-token NAME --user %s\n", o.User.Name)
			return
		}
		say(a.err, "One-time password of %s (%s), good until %s; it is not shown again:\n",
			o.User.Name, o.User.Role, minute(*o.ExpiresAt))
		sayLine(a.out, o.Password)
	})
}

func (a *userCommands) createUserCommand() *cobra.Command {
	var service bool
	var role string
	form := formTable
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a user", Args: exact("NAME"),
		Long: "Create a user. A one-time password is shown once; the user must change it at the first login.\n" +
			"A service account is for a program: it has no password, and API tokens alone.",
		Example: "  directorctl users create ann\n" +
			"  directorctl users create planner --service --role operator",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			o, err := api.CreateUser(cmd.Context(), wire.NewUser{Name: args[0], Role: role, Service: service})
			if err != nil {
				return err
			}
			return a.printOneTime(form, o)
		}),
	}
	cmd.Flags().StringVar(
		&role, "role", "user", "what the user may do on the whole director: admin, operator, user, auditor or none",
	)
	cmd.Flags().BoolVar(&service, "service", false, "create a service account for a program")
	outputFlag(cmd, &form)
	return cmd
}

func (a *userCommands) resetUserCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "reset-password NAME", Short: "Give a user a new one-time password", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, userNames),
		Long: "Give a user a new one-time password, which is shown once. All sessions of the user end. Change your\n" +
			"own password with: directorctl password",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			o, err := api.ResetUser(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printOneTime(form, o)
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *userCommands) roleCommand() *cobra.Command {
	return &cobra.Command{
		Use: "role NAME ROLE", Short: "Give a user another role", Args: exact("NAME", "ROLE"),
		ValidArgsFunction: a.complete(0, userNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			u, err := api.SetUserRole(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			say(a.out, "User %s has the role %s.\n", u.Name, u.Role)
			return nil
		}),
	}
}

func (a *userCommands) changeUserCommand(
	verb, short string, change func(*client.Client, context.Context, string) (wire.User, error),
) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Args: exact("NAME"), ValidArgsFunction: a.complete(0, userNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			u, err := change(api, cmd.Context(), args[0])
			if err != nil {
				return err
			}
			say(a.out, "User %s is %sd.\n", u.Name, verb)
			return nil
		}),
	}
}

func (a *userCommands) deleteUserCommand() *cobra.Command {
	var ok consent
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a user and end all sessions", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, userNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			yes, err := a.agreed(cmd.Context(), ok, "Delete user "+args[0]+"?")
			if err != nil || !yes {
				return err
			}
			if err := api.DeleteUser(cmd.Context(), args[0]); err != nil {
				return err
			}
			say(a.out, "User %s is deleted.\n", args[0])
			return nil
		}),
	}
	ok.flag(cmd, "delete without asking")
	return cmd
}

func (a *userCommands) userSessionsCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "sessions [NAME]", Short: "List the sessions of a user, or your own", Args: between(0, "NAME"),
		ValidArgsFunction: a.complete(0, userNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			user := ""
			if len(args) > 0 {
				user = args[0]
			}
			items, err := api.Sessions(cmd.Context(), user)
			if err != nil {
				return err
			}
			return a.show(form, wire.LoginSessions{Items: items}, func() { printSessions(a.out, items, time.Now()) })
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func printSessions(w io.Writer, items []wire.LoginSession, now time.Time) {
	table(w, "ID KIND ADDRESS LOGIN USED UNTIL", func(row func(...string)) {
		for _, s := range items {
			used := ""
			if s.UsedAt != nil {
				used = age(now.Sub(*s.UsedAt))
			}
			id := s.ID
			if s.Current {
				id += " (this one)"
			}
			row(id, s.Kind, s.Address, age(now.Sub(s.CreatedAt)), used, minute(s.ExpiresAt))
		}
	})
}

func (a *userCommands) endUserSessionCommand() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use: "end-session ID", Short: "End a session of a user, or your own", Args: exact("ID"),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			if err := api.EndSession(cmd.Context(), user, args[0]); err != nil {
				return err
			}
			say(a.out, "Session %s has ended.\n", args[0])
			return nil
		}),
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "whose session it is (default your own)")
	return cmd
}

func (a *userCommands) adminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "admin", Short: "Get in as root on the director's machine when no admin can log in", Args: exact(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	stateDir, form := "", formTable
	reset := &cobra.Command{
		Use: "reset-password NAME", Short: "Enable a user and give it a new one-time password", Args: exact("NAME"),
		Long: "Enable a user and give it a new one-time password, which is shown once. This speaks to the director\n" +
			"through a socket in its state directory, as root or as the director's own user, and needs no login.\n" +
			"The audit trail and the director's log record it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := client.Rescue(cmd.Context(), stateDir, args[0])
			if err != nil {
				return err
			}
			return a.printOneTime(form, o)
		},
	}
	stateDirFlag(reset, &stateDir)
	outputFlag(reset, &form)
	cmd.AddCommand(reset, a.handOverCommand(), a.takeOverCommand())
	return cmd
}
