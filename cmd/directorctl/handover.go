package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/whole"
)

func (a *userCommands) handOverCommand() *cobra.Command {
	var stateDir string
	var recipients []string
	cmd := &cobra.Command{
		Use: "hand-over FILE", Short: "Move the director to another machine: stop its work, and write its bundle",
		Args: exact("FILE"),
		Long: "Have the director begin no more work, wait for the steps that run, and write all that it is made of " +
			"into\nFILE, which only the recipients can open. The director stays as it is, also after a restart, " +
			"until\ndirectorctl admin take-over. This is run as root or as the director's own user, and needs no " +
			"login.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(recipients) == 0 {
				return usage(cmd, "name --recipient")
			}
			if _, err := os.Lstat(args[0]); !errors.Is(err, fs.ErrNotExist) {
				return director.Errorf(
					director.KindConflict, "directorctl.hand_over", "%s is there already", args[0],
				).WithHint("name another file")
			}
			err := whole.Fill(args[0], 0o600, func(f *os.File) error {
				return client.HandOver(cmd.Context(), stateDir, recipients, f)
			})
			if err != nil {
				return err
			}
			say(a.out, "The director works on nothing any more. Its bundle is %s.\nNext, on the other machine: "+
				"director restore -identity KEYFILE %[1]s, and start the director there.\nTo work here again instead: "+
				"directorctl admin take-over\n", args[0])
			return nil
		},
	}
	cmd.Flags().StringSliceVar(
		&recipients, "recipient", nil, "public key of age that can open the bundle; may be given again",
	)
	stateDirFlag(cmd, &stateDir)
	return cmd
}

func (a *userCommands) takeOverCommand() *cobra.Command {
	var stateDir string
	cmd := &cobra.Command{
		Use: "take-over", Short: "Have this director, and no other copy of it, work on its clusters", Args: exact(),
		Long: "Have this director take its clusters from other copies of it, and work if it was handed over. Do this " +
			"only\nwhen the other copy is stopped. This is run as root or as the director's own user, and needs no " +
			"login.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := client.TakeOver(cmd.Context(), stateDir); err != nil {
				return err
			}
			say(a.out, "This director works on its clusters.\n")
			return nil
		},
	}
	stateDirFlag(cmd, &stateDir)
	return cmd
}

func stateDirFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "state-dir", "/var/lib/director", "the director's state directory")
}
