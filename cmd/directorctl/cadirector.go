package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *authorityCommands) caDirectorCommand() *cobra.Command {
	form, look := formTable, false
	cmd := &cobra.Command{
		Use: "director", Short: "Show and change the authority of the director itself", Args: exact(),
		Long: "Show the authority that signs the certificate of the director's API and registry, and how far its " +
			"change is.\n\nIt is changed in three stages: trust makes the next one, use has it sign, and drop ends " +
			"the former one.",
		Example: "  directorctl ca director trust\n  directorctl rotate pull-password demo --wait   # each cluster\n" +
			"  directorctl ca director --look\n  directorctl ca director use\n  directorctl ca director drop",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			v, err := api.DirectorAuthority(cmd.Context(), look)
			if err != nil {
				return err
			}
			return a.show(form, v, func() { a.printDirectorAuthority(v) })
		}),
	}
	cmd.Flags().BoolVar(&look, "look", false, "ask all nodes whether they trust the next authority")
	outputFlag(cmd, &form)
	cmd.AddCommand(
		a.caStageCommand(pki.StageTrust, "trust", "Make the next authority, for clients to trust both"),
		a.caStageCommand(pki.StageUse, "use", "Have the next authority sign the director's certificate"),
		a.caStageCommand(pki.StageNone, "drop", "End the former authority"),
	)
	return cmd
}

// caStageCommand brings the change to a stage. This configuration learns what the director says.
func (a *authorityCommands) caStageCommand(stage pki.Stage, verb, short string) *cobra.Command {
	form, force := formTable, false
	cmd := &cobra.Command{
		Use: verb, Short: short, Args: exact(),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			change := wire.DirectorAuthorityChange{Stage: string(stage), Force: force}
			v, err := api.ChangeDirectorAuthority(cmd.Context(), change)
			if err != nil {
				return err
			}
			if err := a.trustDirector(cmd.Context(), v); err != nil {
				return err
			}
			return a.show(form, v, func() { a.printDirectorAuthority(v) })
		}),
	}
	if stage != pki.StageTrust {
		cmd.Flags().BoolVar(&force, "force", false, "leave nodes behind that do not trust the next authority")
	}
	outputFlag(cmd, &form)
	return cmd
}

// caPinCommand is for everyone: who has a token may learn whom to trust, from the director that is trusted now.
func (a *authorityCommands) caPinCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pin", Short: "Trust the authorities that the director has now", Args: exact(),
		Long: "Ask the director, which this configuration trusts, for its authorities, and trust them from now on. " +
			"Everyone\ndoes so once while the director's authority changes. A director whose certificate the " +
			"machine trusts\nneeds it not.",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			v, err := api.DirectorAuthority(cmd.Context(), false)
			if err != nil {
				return err
			}
			if err := a.trustDirector(cmd.Context(), v); err != nil {
				return err
			}
			a.printDirectorAuthority(v)
			return nil
		}),
	}
}

// trustDirector has the configuration trust the director's authorities, if it trusts the director by one of them or by
// the certificate that they have signed. What it trusts in addition stays. Nothing is written that does not lead to the
// director.
func (a *authorityCommands) trustDirector(ctx context.Context, v wire.DirectorAuthority) error {
	path, c, err := a.settings()
	if err != nil {
		return err
	}
	if c.CA, err = trustedWith(c, v); err != nil || c.CA == "" {
		return err
	}
	c.Fingerprint = ""
	token, err := loadToken(c.tokenPath(path))
	if err != nil {
		return err
	}
	api, err := a.anonymous(c, token)
	if err == nil {
		_, err = api.DirectorAuthority(ctx, false)
	}
	if err != nil {
		return director.Errorf(
			director.KindUnavailable, "directorctl.pin", "the director cannot be reached by its authorities: %w", err,
		).WithHint("this configuration has not changed. Log in again with --ca-file, or with the new --fingerprint")
	}
	return saveConfig(path, c, token)
}

// trustedWith returns what the configuration is to trust; empty if it stays as it is.
func trustedWith(c config, v wire.DirectorAuthority) (string, error) {
	ours := c.Fingerprint == v.Certificate && c.Fingerprint != ""
	for _, one := range v.Authorities {
		ours = ours || one.Fingerprint == c.Fingerprint
	}
	var more strings.Builder
	for rest := []byte(c.CA); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return "", director.Errorf(
				director.KindInvalid, "directorctl.pin", "the configuration has a certificate that cannot be read: %w",
				err,
			).WithHint("log in again with --ca-file")
		}
		text := string(pem.EncodeToMemory(block))
		ours = ours || strings.Contains(v.Trusted, text)
		if name, _, _ := strings.Cut(cert.Subject.CommonName, " "); name != ownAuthorityName {
			more.WriteString(text)
		}
	}
	if !ours {
		return "", nil
	}
	return v.Trusted + more.String(), nil
}

// ownAuthorityName begins the names of all authorities that directors have made for themselves.
const ownAuthorityName = "director"

func (a *authorityCommands) printDirectorAuthority(v wire.DirectorAuthority) {
	table(a.out, "SUBJECT ENDS SIGNS FINGERPRINT", func(row func(...string)) {
		for _, one := range v.Authorities {
			signs := ""
			if one.Signs {
				signs = "yes"
			}
			row(plain(one.Subject), one.Ends.UTC().Format(time.RFC3339), signs, one.Fingerprint)
		}
	})
	for _, d := range v.Directors {
		if !d.Follows {
			say(a.out, "director %s has not taken this stage yet\n", plain(d.Name))
		}
	}
	for _, b := range v.Behind {
		say(a.out, "%s of cluster %s: %s\n", b.Node, b.Cluster, plain(b.Why))
	}
	next := map[string]string{
		"trust": "Next: directorctl rotate pull-password CLUSTER, for each cluster; directorctl ca pin, for each " +
			"person; then directorctl ca director use",
		"use": "Next: directorctl ca director drop, when everyone trusts the next one",
	}[v.Stage]
	if next = strings.TrimSpace(next); next != "" {
		say(a.out, "%s\n", next)
	}
}
