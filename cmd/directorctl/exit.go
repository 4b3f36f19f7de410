package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
)

// kindCodes is the one table from a kind of error to an exit code.
var kindCodes = map[director.Kind]int{
	director.KindInternal:        1,
	director.KindInvalid:         2,
	director.KindUnauthenticated: 3,
	director.KindForbidden:       4,
	director.KindNotFound:        5,
	director.KindConflict:        6,
	director.KindExhausted:       7,
	director.KindUnavailable:     8,
	director.KindStale:           codeStale,
}

// The exit codes that are not of a kind.
const (
	codeDiffers     = 9
	codePlanFailed  = 10
	codePlanParked  = 11
	codePlanStopped = 12
	codeStale       = 13
	codeTimeout     = 14
	codeInterrupted = 130
)

// exitTable is what help says of the codes, in order.
var exitTable = []struct {
	code int
	text string
}{
	{0, "all is well"},
	{kindCodes[director.KindInternal], "a defect, here or in the director"},
	{kindCodes[director.KindInvalid], "the input is wrong: the command line, a document, or what a document asks for"},
	{kindCodes[director.KindUnauthenticated], "not logged in, or the token has ended"},
	{kindCodes[director.KindForbidden], "not allowed"},
	{kindCodes[director.KindNotFound], "what was named does not exist"},
	{kindCodes[director.KindConflict], "in conflict with what is there, such as a plan that runs"},
	{kindCodes[director.KindExhausted], "a pool, a quota, a disk or a rate is used up"},
	{kindCodes[director.KindUnavailable], "the director, or a system that it needs, does not answer"},
	{codeDiffers, "diff --exit-code: there are differences"},
	{codePlanFailed, "the plan, the phase or the campaign that was waited for has failed"},
	{codePlanParked, "the plan, the phase or the campaign that was waited for needs an answer from a person"},
	{codePlanStopped, "the plan, the phase or the campaign that was waited for was cancelled, discarded or ended"},
	{codeStale, "what was to be changed has changed meanwhile"},
	{codeTimeout, "the time to wait ended first; the director continues"},
	{codeInterrupted, "interrupted; the director continues"},
}

// planError says that a plan did not come to a good end.
type planError struct {
	id, status, message, hint string
	code                      int
}

func (e *planError) Error() string {
	text := "plan " + e.id + " is " + e.status
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// taskError says that a task of an outer plan did not come to a good end, or not in time.
type taskError struct {
	text, hint string
	code       int
}

func (e *taskError) Error() string { return e.text }

// interruptedError says that the person stopped waiting.
type interruptedError struct{ hint string }

func (e *interruptedError) Error() string { return "interrupted" }

// interrupted tells a person who stopped waiting what continues, and how to follow it again.
func interrupted(format string, args ...any) error {
	return &interruptedError{hint: fmt.Sprintf(format, args...)}
}

// differsError says that diff found something, and prints nothing.
type differsError struct{}

func (differsError) Error() string { return "" }

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*planError](err); ok {
		return e.code
	}
	if e, ok := errors.AsType[*taskError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*interruptedError](err); ok {
		return codeInterrupted
	}
	if _, ok := errors.AsType[differsError](err); ok {
		return codeDiffers
	}
	if errors.Is(err, context.Canceled) {
		return codeInterrupted
	}
	return kindCodes[director.KindOf(err)]
}

// printError shows what is wrong, every field on its own line, and what to do next.
func printError(w io.Writer, err error) {
	if _, ok := errors.AsType[differsError](err); ok {
		return
	}
	msg, hint := err.Error(), director.HintOf(err)
	var fields []director.Field
	if e, ok := errors.AsType[*director.Error](err); ok {
		msg, fields = e.Msg, e.Fields
		if e.Kind == director.KindInternal && e.Err != nil {
			msg = e.Msg + ": " + e.Err.Error()
		}
	}
	if e, ok := errors.AsType[*planError](err); ok {
		hint = e.hint
	}
	if e, ok := errors.AsType[*taskError](err); ok {
		hint = e.hint
	}
	if e, ok := errors.AsType[*interruptedError](err); ok {
		hint = e.hint
	}
	say(w, "error: %s\n", plain(msg))
	for _, f := range fields {
		say(w, "  %s\n", plain(f.String()))
	}
	if hint != "" {
		say(w, "hint: %s\n", strings.ReplaceAll(plain(hint), "\n", "\n      "))
	}
}

func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Exit codes of directorctl:\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range exitTable {
		say(w, "%d\t  %s\n", row.code, row.text)
	}
	_ = w.Flush() // into memory
	return &cobra.Command{Use: "exit-codes", Short: "Exit codes and what they mean", Long: b.String()}
}

// usage is an error in the command line.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return director.Errorf(director.KindInvalid, "directorctl.args", format, args...).
		WithHint("%s --help", cmd.CommandPath())
}
