package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *authorityCommands) caCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ca", Short: "Show and test the authorities that issue those of clusters, and have them signed",
		Args: exact(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.caListCommand(), a.caTestCommand(), a.caRequestCommand(), a.caImportCommand(),
		a.caDirectorCommand(), a.caPinCommand())
	return cmd
}

func authorityNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindCertificateAuthority)
}

func (a *authorityCommands) caListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the authorities that issue those of clusters", Args: exact(),
		Long: "List the authorities that issue those of clusters, with what the director knows of them. No server is " +
			"asked.",
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.Authorities, error) {
		list, err := api.Authorities(ctx)
		return wire.Authorities{Items: list}, err
	}, func(list wire.Authorities) {
		table(a.out, "NAME TYPE SUBJECT ENDS REQUEST PROBLEM", func(row func(...string)) {
			for _, c := range list.Items {
				row(c.Name, c.Type, plain(c.Subject), authorityEnd(c), waiting(c), plain(c.Problem))
			}
		})
	})
}

func authorityEnd(c wire.Authority) string {
	if c.Ends == nil {
		return ""
	}
	return c.Ends.UTC().Format(time.RFC3339)
}

func waiting(c wire.Authority) string {
	if c.Waiting {
		return "waiting"
	}
	return ""
}

func (a *authorityCommands) caTestCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "test NAME", Short: "Test an authority, and have one signed on trial", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, authorityNames),
		Long: "Look at everything that the director needs of an authority, and have one signed on trial, whose key\n" +
			"is forgotten. A server of step-ca issues one certificate. Exits with 8 if something is wrong.",
		RunE: a.tests(&form, "CertificateAuthority/%s does not work", (*client.Client).TestAuthority),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *authorityCommands) caRequestCommand() *cobra.Command {
	fresh := false
	cmd := &cobra.Command{
		Use: "csr NAME", Short: "Print the request for the certificate of an authority", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, authorityNames),
		Long: "Print the request for the certificate of an authority of the type csr, in PEM form. The key is made\n" +
			"at the first call, and stays in the director.\n\n" +
			"With --new another key is made for a certificate that follows the one in use. That one signs until the\n" +
			"new certificate is imported.",
		Example: "  directorctl ca csr corp > corp.csr",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			text, err := api.AuthorityRequest(cmd.Context(), args[0], fresh)
			if err == nil {
				say(a.out, "%s", text)
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&fresh, "new", false, "make another key, if the present one has its certificate")
	return cmd
}

// mostCertificate is how long a certificate with those that signed it may be.
const mostCertificate = 64 << 10

func (a *authorityCommands) caImportCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "import NAME FILE", Short: "Import the certificate of an authority", Args: exact("NAME", "FILE"),
		ValidArgsFunction: a.complete(0, authorityNames),
		Long: "Import the certificate that was issued for the request of an authority, in PEM form. The " +
			"certificates\n" +
			"of those that signed it may follow. It is checked, and an authority is signed on trial. FILE - is the\n" +
			"standard input.",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			text, err := a.certificateFile(args[1])
			if err != nil {
				return err
			}
			v, err := api.ImportAuthority(cmd.Context(), args[0], text)
			if err != nil {
				return err
			}
			return a.show(form, v, func() {
				say(
					a.out, "CertificateAuthority/%s signs with %s, until %s\n", v.Name, plain(v.Subject),
					authorityEnd(v),
				)
			})
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *authorityCommands) certificateFile(name string) (string, error) {
	in := a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", fileError("directorctl.ca_import", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, mostCertificate+1))
	if err == nil && len(text) > mostCertificate {
		err = director.Errorf(
			director.KindInvalid, "directorctl.ca_import", "%s is larger than any certificate", name,
		).WithHint("give the certificate, and those that signed it, in PEM form")
	}
	return string(text), err
}
