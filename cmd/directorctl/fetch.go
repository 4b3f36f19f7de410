package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

// mirror is where the director fetches a release bundle from.
type mirror struct {
	caFile, user, passwordFile string
	cancel                     bool
}

func (m *mirror) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(
		&m.caFile, "mirror-ca", "", "file with the certificates in PEM form that the mirror may be from",
	)
	cmd.Flags().StringVar(&m.user, "mirror-user", "", "account at the mirror; its password is asked for")
	cmd.Flags().StringVar(
		&m.passwordFile, "mirror-password-file", "",
		"file that holds the password of that account; - is the standard input (default: ask)",
	)
	cmd.Flags().BoolVar(&m.cancel, "cancel", false, "end the fetch from URL and throw away what has arrived")
}

// isAddress tells whether a release bundle is named by an address, and not by a file.
func isAddress(name string) bool {
	return strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://")
}

// check refuses flags that say nothing of what is imported.
func (m *mirror) check(cmd *cobra.Command, args []string) error {
	switch {
	case !isAddress(args[0]) && *m != (mirror{}):
		return usage(cmd, "--mirror-ca, --mirror-user, --mirror-password-file and --cancel are for: release import URL")
	case m.passwordFile != "" && m.user == "":
		return usage(cmd, "--mirror-password-file is for --mirror-user")
	case m.cancel && len(args) > 1:
		return usage(cmd, "--cancel is for the URL alone")
	}
	return nil
}

// mirrorRequest reads what the director is to know of the mirror.
func (a *importCommands) mirrorRequest(address string, m mirror) (wire.ReleaseFetch, error) {
	q := wire.ReleaseFetch{URL: address, User: m.user}
	if m.caFile != "" {
		text, err := os.ReadFile(m.caFile)
		if err != nil {
			return q, director.Errorf(director.KindInvalid, opRelease, "%s cannot be read: %w", m.caFile, err)
		}
		q.CA = string(text)
	}
	if m.user != "" {
		password, err := a.secret(
			opRelease, "password", "--mirror-password-file", m.passwordFile, "Password of "+m.user+" at the mirror: ",
		)
		if err != nil {
			return q, err
		}
		q.Password = password.Reveal()
	}
	return q, nil
}

// fetchRelease lets the director fetch the archive, and returns the id of its upload.
func (a *importCommands) fetchRelease(
	ctx context.Context, api *client.Client, address string, m mirror, show *progress,
) (string, error) {
	q, err := a.mirrorRequest(address, m)
	if err != nil {
		return "", err
	}
	u, err := api.FetchRelease(ctx, q, func(j wire.ReleaseFetchJob) {
		if j.Stage == wire.JobFetching {
			show.at("The director fetches the release", j.Done, j.Total, true)
		}
	})
	if ctx.Err() != nil {
		return "", interrupted(
			"the director continues: run the same command again to follow it, or with --cancel to end it",
		)
	}
	return u.ID, err
}
