package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *accountCommands) loginCommand() *cobra.Command {
	var user, passwordFile, tokenFile, caFile, fingerprint string
	var browser, device bool
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Log in and remember the director",
		Long: "Get a token for a user and a password, and keep it with the director's address and what is " +
			"trusted.\n\n" +
			"With --browser, log in at the director's console in a browser on this machine, with a password or at an " +
			"identity provider. With --device, do so in\n" +
			"a browser on any machine: open the address that is printed, and type the code.\n\n" +
			"A director with a certificate of its own is trusted by --ca-file or by --fingerprint. Without either, " +
			"on a terminal, its fingerprint is\n" +
			"shown and asked about; compare it with the one that the director printed at its start.",
		Example: "  directorctl login --server https://director:8443 --ca-file tls.crt\n" +
			"  directorctl login --browser\n" +
			"  directorctl login --password-file - < password\n" +
			"  directorctl login --token-file token     # of directorctl users create-token",
		Args: exact(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, c, err := a.settings()
			if err != nil {
				return err
			}
			if c, err = a.trust(cmd.Context(), c, caFile, fingerprint); err != nil {
				return err
			}
			if browser || device {
				return a.loginInBrowser(cmd.Context(), path, c, device)
			}
			if tokenFile != "" {
				return a.loginWithToken(cmd.Context(), path, c, tokenFile)
			}
			return a.loginWithPassword(cmd.Context(), path, c, cmp.Or(user, c.User, "admin"), passwordFile)
		},
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "name of the user (default the last one, or admin)")
	cmd.Flags().StringVar(&passwordFile, "password-file", "", "file that holds the password; - is the standard input")
	cmd.Flags().StringVar(
		&tokenFile, "token-file", "", "file that holds an API token; - is the standard input. No password is asked for",
	)
	cmd.Flags().BoolVar(&browser, "browser", false, "log in with a browser on this machine")
	cmd.Flags().BoolVar(&device, "device", false, "log in with a browser on any machine, and a code")
	cmd.MarkFlagsMutuallyExclusive("token-file", "password-file", "browser", "device")
	for _, flag := range []string{"token-file", "browser", "device"} {
		cmd.MarkFlagsMutuallyExclusive(flag, "user")
	}
	cmd.Flags().StringVar(&caFile, "ca-file", "", "PEM certificates that are trusted for this director")
	cmd.Flags().StringVar(&fingerprint, "fingerprint", "", "SHA-256 fingerprint of the director's certificate")
	return cmd
}

// loginWithPassword asks for the password and keeps the token of the session.
func (a *accountCommands) loginWithPassword(ctx context.Context, path string, c config, user, file string) error {
	anonymous, err := a.anonymous(c, "")
	if err != nil {
		return err
	}
	defer anonymous.Close()
	password, err := a.password(file, "Password of "+user+": ")
	if err != nil {
		return err
	}
	s, err := anonymous.Login(ctx, user, password)
	if err != nil {
		return err
	}
	c.User = s.User
	if err := saveConfig(path, c, director.Secret(s.Token)); err != nil {
		return err
	}
	say(a.out, "Logged in to %s as %s (%s) until %s.\n", c.Server, s.User, s.Role, minute(s.ExpiresAt))
	if s.MustChangePassword {
		sayLine(a.out, "This is a one-time password. Change it now: directorctl password")
	}
	return nil
}

// loginWithToken keeps an API token once the director has said whose it is.
func (a *accountCommands) loginWithToken(ctx context.Context, path string, c config, file string) error {
	token, err := a.secret("directorctl.token", "token", "--token-file", file, "Token: ")
	if err != nil {
		return err
	}
	api, err := a.anonymous(c, token)
	if err != nil {
		return err
	}
	defer api.Close()
	me, err := api.Me(ctx)
	if err != nil {
		return err
	}
	c.User = me.User
	if err := saveConfig(path, c, token); err != nil {
		return err
	}
	say(a.out, "Logged in to %s as %s (%s, scope %s) until %s.\n", c.Server, me.User, me.Role, me.Scope,
		minute(me.ExpiresAt))
	return nil
}

// trust settles how the director is known: by the flags, by an earlier login, by the system, or by asking.
func (a *accountCommands) trust(ctx context.Context, c config, caFile, fingerprint string) (config, error) {
	switch {
	case c.Server == "":
		return c, noDirector()
	case caFile != "" && fingerprint != "":
		return c, director.Errorf(
			director.KindInvalid, "directorctl.trust", "--ca-file and --fingerprint exclude each other",
		)
	case caFile != "":
		text, err := os.ReadFile(caFile)
		if err != nil {
			return c, fileError("directorctl.trust", err)
		}
		if block, _ := pem.Decode(text); block == nil {
			return c, director.Errorf(director.KindInvalid, "directorctl.trust", "%s holds no certificate", caFile).
				WithHint("it must be PEM: -----BEGIN CERTIFICATE-----")
		}
		c.CA, c.Fingerprint = string(text), ""
		return c, nil
	case fingerprint != "":
		pin, err := client.ParseFingerprint(fingerprint)
		c.CA, c.Fingerprint = "", pin
		return c, err
	case c.CA != "" || c.Fingerprint != "":
		return c, nil
	}
	certs, err := client.Probe(ctx, c.Server)
	if err != nil || client.Trusted(c.Server, certs) {
		return c, err
	}
	pin := client.Fingerprint(certs[0])
	if !a.inIsTerminal() {
		return c, director.Errorf(director.KindUnavailable, "directorctl.trust",
			"the certificate of %s is not trusted; its fingerprint is %s", c.Server, pin).
			WithHint("compare it with the one that the director printed, then log in with --fingerprint or --ca-file")
	}
	say(a.err, "The director at %s shows a certificate that is not known here.\n", c.Server)
	say(a.err, "  for:         %s\n  fingerprint: %s\n", names(certs[0]), pin)
	ok, err := a.confirm(ctx, "Is this the fingerprint that the director printed at its start?")
	if err != nil {
		return c, err
	}
	if !ok {
		return c, director.Errorf(director.KindInvalid, "directorctl.trust", "the certificate was not accepted")
	}
	c.CA, c.Fingerprint = "", pin
	return c, nil
}

// minute is a time as people here read a clock.
func minute(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }

func names(cert *x509.Certificate) string {
	list := append([]string{}, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		list = append(list, ip.String())
	}
	if len(list) == 0 {
		return cert.Subject.String()
	}
	return strings.Join(list, ", ")
}

// password reads a password from a file, from the standard input, or from the terminal without showing it.
func (a *app) password(file, prompt string) (director.Secret, error) {
	return a.secret("directorctl.password", "password", "--password-file", file, prompt)
}

func (a *app) secret(op, what, flag, file, prompt string) (director.Secret, error) {
	var raw []byte
	var err error
	switch {
	case file != "" && file != "-":
		raw, err = os.ReadFile(file)
	case file == "-" || !a.inIsTerminal():
		raw, err = io.ReadAll(io.LimitReader(a.in, 4096))
	default:
		say(a.err, "%s", prompt)
		raw, err = term.ReadPassword(int(a.in.Fd()))
		sayLine(a.err)
	}
	if err != nil {
		return "", fileError(op, err)
	}
	p := strings.TrimRight(string(raw), "\r\n")
	if p == "" {
		return "", director.Errorf(director.KindInvalid, op, "the %s is empty", what).
			WithHint("give it with %s, on the standard input, or on a terminal", flag)
	}
	return director.Secret(p), nil
}

func (a *accountCommands) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "End the session and forget it",
		Long:  "End the session and forget its token. An API token is forgotten here, and stays valid.",
		Args:  exact(),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			path, c, err := a.settings()
			if err != nil {
				return err
			}
			me, err := api.Me(cmd.Context())
			if err == nil && me.Kind != string(director.TokenAPI) { // an API token may be in use elsewhere
				err = api.Logout(cmd.Context())
			}
			if err != nil && director.KindOf(err) != director.KindUnauthenticated {
				return err
			}
			c.forgetKubeTokens()
			if err := os.Remove(c.tokenPath(path)); err != nil {
				return fileError("directorctl.logout", err)
			}
			say(a.out, "Logged out of %s.\n", c.Server)
			return nil
		}),
	}
}

func (a *accountCommands) passwordCommand() *cobra.Command {
	var currentFile, newFile string
	cmd := &cobra.Command{
		Use:   "password",
		Short: "Change your password",
		Long:  "Change your password. All other tokens of the user become invalid; this one stays valid.",
		Args:  exact(),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if !a.inIsTerminal() && (currentFile == "" || newFile == "") {
				return usage(cmd, "there is no terminal to ask on; give --password-file and --new-password-file")
			}
			return nil
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			current, err := a.password(currentFile, "Current password: ")
			if err != nil {
				return err
			}
			next, err := a.password(newFile, "New password: ")
			if err != nil {
				return err
			}
			if newFile == "" {
				again, err := a.password("", "New password again: ")
				if err != nil {
					return err
				}
				if again != next {
					return director.Errorf(director.KindInvalid, "directorctl.password", "the two new passwords differ")
				}
			}
			if err := api.ChangePassword(cmd.Context(), current, next); err != nil {
				return err
			}
			sayLine(a.out, "The password is changed.")
			return nil
		}),
	}
	cmd.Flags().StringVar(
		&currentFile, "password-file", "", "file that holds the current password; - is the standard input",
	)
	cmd.Flags().StringVar(&newFile, "new-password-file", "", "file that holds the new password")
	return cmd
}

// whereOf says where a grant counts.
func whereOf(g wire.Granted) string {
	switch {
	case g.Project != "":
		return "in project " + g.Project
	case g.Cluster != "":
		return "on cluster " + g.Cluster
	}
	return "on the whole director"
}

func (a *accountCommands) whoamiCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Say who is logged in where",
		Args:  exact(),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			_, c, err := a.settings()
			if err != nil {
				return err
			}
			me, err := api.Me(cmd.Context())
			if err != nil {
				return err
			}
			return a.show(form, me, func() {
				say(a.out, "%s (%s) at %s until %s\n", me.User, me.Role, c.Server, minute(me.ExpiresAt))
				for _, g := range me.Grants {
					say(a.out, "%s %s\n", g.Role, whereOf(g))
				}
			})
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}
