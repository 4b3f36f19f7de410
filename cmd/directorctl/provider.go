package main

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *providerCommands) providerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "provider", Short: "Test providers, look at what they have, and keep their credentials",
		Long: "Providers are documents: directorctl apply makes and changes them, get -o yaml exports them. Their " +
			"passwords are no part of them: a provider names\n" +
			"credentials, which are set here, kept sealed, and never shown again.",
		Args: exact(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	credentials := &cobra.Command{
		Use: "credentials", Short: "Set, list and delete the credentials of providers",
		Args: exact(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	credentials.AddCommand(a.credentialsSetCommand(), a.credentialsListCommand(), a.credentialsDeleteCommand())
	cmd.AddCommand(a.providerTestCommand(), a.discoverCommand(), a.testIdentityCommand(), credentials)
	return cmd
}

func (a *providerCommands) providerTestCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "test NAME", Short: "Connect to a provider and say what is wrong", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, providerNames),
		Long: "Connect to a provider with what its document says, and look at everything that the director needs " +
			"there. Nothing is changed. Exits with 8 if\n" +
			"something is wrong.",
		RunE: a.tests(&form, "provider %s is not as it has to be", (*client.Client).TestProvider),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *providerCommands) testIdentityCommand() *cobra.Command {
	var user string
	form := formTable
	cmd := &cobra.Command{
		Use: "test-identity NAME", Short: "Ask an LDAP or Active Directory and say what is wrong", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, func(ctx context.Context, c *client.Client, _ []string) []string {
			return documentNames(ctx, c, model.KindIdentityProvider)
		}),
		Long: "Ask the servers of an IdentityProvider and say for each stage how it went: resolve, connect, tls,\n" +
			"bind, search, groups. With --user, look a person up and say which role they would have. Nothing is\n" +
			"changed. Exits with 8 if something is wrong. This needs the role admin.",
		Example: "  directorctl provider test-identity corp --user ann",
		RunE: a.tests(&form, "IdentityProvider/%s does not work", func(
			api *client.Client, ctx context.Context, name string,
		) (wire.ProviderTest, error) {
			return api.TestIdentityProvider(ctx, name, user)
		}),
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "name of a person to look up")
	outputFlag(cmd, &form)
	return cmd
}

// tests returns what runs a command that tests the thing of its argument, and shows how each probe went. failed says
// with the name that something is wrong.
func (a *app) tests(
	form *string, failed string,
	test func(*client.Client, context.Context, string) (wire.ProviderTest, error),
) func(*cobra.Command, []string) error {
	return a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
		v, err := test(api, cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if err := a.show(*form, v, func() { printTest(a.out, v) }); err != nil || v.OK {
			return err
		}
		return director.Errorf(director.KindUnavailable, "directorctl.test", failed, args[0])
	})
}

func printTest(w io.Writer, v wire.ProviderTest) {
	table(w, "HOST WHAT RESULT FOUND", func(row func(...string)) {
		for _, p := range v.Probes {
			result, found := "ok", p.Found
			if !p.OK {
				result, found = "wrong", p.Problem
			}
			row(p.Host, p.What, result, strings.ReplaceAll(plain(found), "\n", " "))
		}
	})
	for _, p := range v.Probes {
		if p.Hint != "" {
			say(w, "\n%s: %s\n", strings.TrimSpace(p.Host+" "+p.What), plain(p.Hint))
		}
	}
}

func (a *providerCommands) credentialsSetCommand() *cobra.Command {
	var user, file string
	cmd := &cobra.Command{
		Use: "set NAME --user USER", Short: "Set or change credentials", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, credentialsNames),
		Long: "Set an account for providers, or change it. Providers that name it take the change up at their next " +
			"login; no provider and no cluster changes.\n\n" +
			"The password comes from a file, from the standard input, or from the terminal, and never from the " +
			"command line.",
		Example: "  directorctl provider credentials set vcenter --user kaas@vsphere.local --password-file - < " +
			"password",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if user == "" {
				return usage(cmd, "--user is missing")
			}
			return nil
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			password, err := a.password(file, "Password of "+user+": ")
			if err != nil {
				return err
			}
			c, err := api.SetCredentials(cmd.Context(), args[0], user, password)
			if err != nil {
				return err
			}
			done := "changed"
			if c.Revision == 1 {
				done = "set"
			}
			say(a.out, "Credentials %s of %s %s (revision %d)\n", c.Name, c.User, done, c.Revision)
			return nil
		}),
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "name of the account")
	cmd.Flags().StringVar(&file, "password-file", "", "file that holds the password; - is the standard input")
	return cmd
}

func (a *providerCommands) credentialsListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List credentials, without their passwords", Args: exact(),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.CredentialsList, error) {
		items, err := api.Credentials(ctx)
		return wire.CredentialsList{Items: items}, err
	}, func(items wire.CredentialsList) {
		table(a.out, "NAME USER REVISION CHANGED BY PROVIDERS", func(row func(...string)) {
			for _, c := range items.Items {
				row(
					c.Name, c.User, strconv.FormatInt(c.Revision, 10), minute(c.UpdatedAt), c.UpdatedBy,
					strings.Join(c.Providers, ","),
				)
			}
		})
	})
}

func (a *providerCommands) credentialsDeleteCommand() *cobra.Command {
	var options consent
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete credentials that no provider names", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, credentialsNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			ok, err := a.agreed(cmd.Context(), options, "Delete the credentials "+args[0]+"?")
			if err != nil || !ok {
				return err
			}
			if err := api.DeleteCredentials(cmd.Context(), args[0]); err != nil {
				return err
			}
			say(a.out, "Credentials %s deleted\n", args[0])
			return nil
		}),
	}
	options.flag(cmd, "delete without asking")
	return cmd
}

func credentialsNames(ctx context.Context, c *client.Client, _ []string) []string {
	items, _ := c.Credentials(ctx) // no completion is better than an error in the middle of a line
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = item.Name + "\t" + item.User
	}
	return names
}
