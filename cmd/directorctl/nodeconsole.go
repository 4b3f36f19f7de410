package main

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
)

// nodeConsoleCommand prints what a VM has printed as plain text: a node does not move the cursor of who reads it.
func (a *clusterCommands) nodeConsoleCommand() *cobra.Command {
	const usual = 64 << 10
	most := usual
	cmd := &cobra.Command{
		Use: "console CLUSTER NODE", Short: "Print the end of what the VM of a node has printed on its serial console",
		Args:              exact("CLUSTER", "NODE"),
		ValidArgsFunction: a.complete(0, clusterNames),
		Example:           "  directorctl node console demo demo-worker-1",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			v, err := api.ConsoleOf(cmd.Context(), args[0], args[1], most)
			if err == nil && v.Text == "" {
				say(a.out, "The VM has printed nothing yet.\n")
			}
			for line := range strings.Lines(v.Text) {
				say(a.out, "%s\n", plainLine(line))
			}
			return err
		}),
	}
	cmd.Flags().IntVar(&most, "bytes", usual, "print at most so much of its end, up to 262144")
	return cmd
}

// sequences are what colours and moves the cursor of a terminal.
var sequences = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])`)

// plainLine is the line without sequences and other control characters; of what was overwritten, what came last.
func plainLine(line string) string {
	line = strings.TrimRight(sequences.ReplaceAllString(line, ""), "\r\n")
	line = line[strings.LastIndexByte(line, '\r')+1:]
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, line)
}
