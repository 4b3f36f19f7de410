package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

// auditCommands read and verify the audit trail.
type auditCommands struct{ *app }

const opAudit = "directorctl.audit"

func (a *auditCommands) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Read and verify the audit trail", Args: exact(),
		Long: "Read who tried what, from where and with which outcome, and verify that the trail is as it was\n" +
			"written. This needs the role admin or auditor.",
	}
	cmd.AddCommand(a.listCommand(), a.verifyCommand(), a.exportCommand(), a.keyCommand())
	return cmd
}

// auditTime is a flag with a time: a day, a moment, or how long ago.
type auditTime struct {
	time.Time
	text string
}

func (t *auditTime) String() string { return t.text }
func (t *auditTime) Type() string   { return "time" }

// Set reads 2026-11-22, 2026-11-22T14:00:00Z, or 36h and 7d for so long ago.
func (t *auditTime) Set(text string) error {
	t.text = text
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(form, text); err == nil {
			t.Time = at
			return nil
		}
	}
	ago := text
	var days int
	if n, err := fmt.Sscanf(text, "%dd", &days); err == nil && n == 1 && text == fmt.Sprintf("%dd", days) {
		ago = fmt.Sprintf("%dh", 24*days)
	}
	d, err := time.ParseDuration(ago)
	if err != nil || d < 0 {
		return fmt.Errorf("a time is a day such as 2026-11-22, a moment such as 2026-11-22T14:00:00Z, or how long " +
			"ago, such as 36h or 7d")
	}
	t.Time = time.Now().Add(-d)
	return nil
}

func (a *auditCommands) listCommand() *cobra.Command {
	var f client.AuditFilter
	var from, until auditTime
	form := formTable
	cmd := &cobra.Command{
		Use: "list", Short: "List entries, the newest first", Args: exact(),
		Example: "  directorctl audit list --since 24h --outcome refused\n" +
			"  directorctl audit list --object Cluster/demo --actor ann",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if f.Limit < 0 {
				return usage(cmd, "--limit is a number from 1, or 0 for all")
			}
			f.From, f.Until = from.Time, until.Time
			return nil
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			items, err := api.AuditTrail(cmd.Context(), f)
			if err != nil {
				return err
			}
			return a.show(form, wire.AuditTrail{Items: items}, func() { printAudit(a.out, items) })
		}),
	}
	cmd.Flags().StringVar(&f.Actor, "actor", "", "only what this user or schedule tried")
	cmd.Flags().StringVar(&f.Action, "action", "", "only this action, such as login or apply")
	cmd.Flags().StringVar(&f.Object, "object", "", "only this object, such as Cluster/demo; Cluster/ is all clusters")
	cmd.Flags().StringVar(&f.Outcome, "outcome", "", "only attempts with this outcome: ok, refused or failed")
	cmd.Flags().Var(&from, "since", "only entries from then on: a day, a moment, or how long ago")
	cmd.Flags().Var(&until, "until", "only entries before then")
	cmd.Flags().IntVar(&f.Limit, "limit", 50, "at most so many; 0 for all")
	_ = cmd.RegisterFlagCompletionFunc(
		"outcome", cobra.FixedCompletions([]string{chain.OK, chain.Refused, chain.Failed},
			cobra.ShellCompDirectiveNoFileComp),
	)
	outputFlag(cmd, &form)
	return cmd
}

func printAudit(w io.Writer, items []wire.AuditEntry) {
	table(w, "TIME ACTOR ACTION OBJECT OUTCOME SOURCE", func(row func(...string)) {
		for _, e := range items {
			outcome := e.Outcome
			if e.Problem != "" {
				outcome += " (" + e.Problem + ")"
			}
			if e.Count > 1 {
				outcome += fmt.Sprintf(", %d times", e.Count)
			}
			row(e.At.Format(time.DateTime), orDash(e.Actor), e.Action, orDash(e.Object), outcome, orDash(e.Source))
		}
	})
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (a *auditCommands) keyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "key", Short: "Print the key that verifies exports and archives", Args: exact(),
		Long: "Print the key that verifies exports and archives of the audit trail without the director. It is no " +
			"secret.\nKeep it where the director's administrators cannot write.",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			key, err := api.AuditKey(cmd.Context())
			if err == nil {
				sayLine(a.out, key)
			}
			return err
		}),
	}
}

func (a *auditCommands) verifyCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "verify [FILE...]", Short: "Verify the audit trail, or exports and archives of it",
		Long: "Without FILE, the director verifies the trail in its database. With FILE, each one is verified\n" +
			"here, and no director is asked: name archives (.jsonl.gz) and exports (.jsonl) in the order of their\n" +
			"time, and the key that directorctl audit key printed, or a file that holds it. A gap between files is\n" +
			"found, too.",
		Example: "  directorctl audit verify\n" +
			"  directorctl audit verify --key audit.key audit-2026-10.jsonl.gz audit.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return a.verifyFiles(cmd, key, args)
			}
			if key != "" {
				return usage(cmd, "--key goes with files")
			}
			return a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
				v, err := api.VerifyAudit(cmd.Context())
				if err != nil {
					return err
				}
				return a.verified("the audit trail", v)
			})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "key of the audit trail, or a file that holds it")
	return cmd
}

// verifyFiles verifies the files one after the other, and that each continues the one before it.
func (a *auditCommands) verifyFiles(cmd *cobra.Command, text string, files []string) error {
	if text == "" {
		return usage(cmd, "--key is missing: directorctl audit key prints it")
	}
	if content, err := os.ReadFile(text); err == nil {
		text = string(content)
	}
	key, err := chain.ParseKey(text)
	if err != nil {
		return director.Errorf(director.KindInvalid, opAudit, "the key is wrong: %w", err).
			WithHint("print it with: directorctl audit key")
	}
	var last int64
	for _, file := range files {
		r, err := chain.VerifyLines(func() (io.ReadCloser, error) { return openLines(file) }, key)
		if err != nil {
			return director.Errorf(director.KindInvalid, opAudit, "%s cannot be verified: %w", file, err)
		}
		if err := a.verified(file, wire.AuditVerificationOf(r)); err != nil {
			return err
		}
		if last > 0 && r.Entries > 0 && r.First > last+1 {
			return director.Errorf(
				director.KindInvalid, opAudit, "entries %d to %d are missing before %s", last+1, r.First-1, file,
			).WithHint("name all files, in the order of their time")
		}
		last = max(last, r.Last)
	}
	return nil
}

// openLines opens a file, packed or not.
func openLines(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil || !strings.HasSuffix(path, ".gz") {
		return f, err
	}
	zip, err := gzip.NewReader(f)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{zip, f}, nil
}

// verified says what was found, and returns an error if anything is wrong.
func (a *auditCommands) verified(what string, v wire.AuditVerification) error {
	if !v.Good {
		return director.Errorf(director.KindInvalid, opAudit, "%s is not as it was written: %s", what, v.Why).
			WithHint("find out who can write to it, and compare it with an older export or archive")
	}
	if v.Entries == 0 {
		say(a.out, "%s is good: it has no entry of the chain", what)
	} else {
		say(a.out, "%s is good: entries %d to %d", what, v.First, v.Last)
	}
	switch {
	case v.Signed == 0 && v.Entries > 0:
		say(a.out, ", not signed yet")
	case v.Signed < v.Last:
		say(a.out, ", signed up to %d", v.Signed)
	}
	if v.Before > 0 {
		say(a.out, "; %d entries from before the chain are proven by nothing", v.Before)
	}
	say(a.out, "\n")
	return nil
}

func (a *auditCommands) exportCommand() *cobra.Command {
	var from, until auditTime
	cmd := &cobra.Command{
		Use: "export FILE", Short: "Save the audit trail, so that it can be verified elsewhere", Args: exact("FILE"),
		Long: "Save the entries as lines of JSON with a signed checkpoint at their end; - prints them. The file\n" +
			"begins at the last signed entry before --since. It names users and addresses: keep it confidential.",
		Example: "  directorctl audit export audit.jsonl --since 30d\n" +
			"  directorctl audit verify --key audit.key audit.jsonl",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			body, err := api.ExportAudit(cmd.Context(), from.Time, until.Time)
			if err != nil {
				return err
			}
			defer func() { _ = body.Close() }()
			if args[0] == "-" {
				_, err := io.Copy(a.out, body)
				return broken("the export", err)
			}
			if err := save(args[0], "the export", body); err != nil {
				return err
			}
			say(a.err, "written: %s\n", args[0])
			return nil
		}),
	}
	cmd.Flags().Var(&from, "since", "all entries from then on: a day, a moment, or how long ago")
	cmd.Flags().Var(&until, "until", "only entries before then")
	return cmd
}
