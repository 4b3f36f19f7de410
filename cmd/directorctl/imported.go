package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
)

// What the commands of images and of release bundles have in common: a file on the director, and a document that names
// it.

// stopped says of an interruption that nothing is lost.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return interrupted("run the same command again to continue")
	}
	return err
}

// endOf returns the error of a context that has ended, and err otherwise.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// nameImported stores the document that names what was imported, or changes the one that there is, with its labels.
// what is said of the import.
func (a *importCommands) nameImported(
	ctx context.Context, api *client.Client, what string, d model.Document, change func(*model.Document),
) error {
	tag := ""
	old, err := api.Document(ctx, d.Ref())
	switch {
	case err == nil:
		docs, err := model.Parse(old.Document, d.Ref().String())
		if err != nil {
			return err
		}
		d, tag = docs[0], old.ETag
		change(&d)
	case director.KindOf(err) != director.KindNotFound:
		return err
	}
	text, err := model.Encode(d)
	if err != nil {
		return err
	}
	applied, err := api.ApplyIf(ctx, text, d.Ref().String(), false, tag)
	if err != nil {
		say(a.err, "Imported %s, but no document names it:\n", what)
		return err
	}
	for _, c := range applied.Changes {
		say(a.out, "%s/%s %s: %s\n", c.Kind, c.Name, c.Action, what)
	}
	return nil
}

// imported is a file that was brought to the director, or the document of one.
type imported struct {
	ref  model.Ref // the document; its name is empty if none names the file
	what string    // file, bundle
	id   string    // checksum
	here bool      // the director has the file
	size int64
}

// deleteImported asks, and deletes the document and then the file. The file stays if something else needs it.
func (a *importCommands) deleteImported(
	cmd *cobra.Command, api *client.Client, options consent, it imported,
	deleteFile func(ctx context.Context, id string) error,
) error {
	short := it.id[:min(12, len(it.id))]
	question := "Delete the imported " + it.what + " " + short + "?"
	if it.ref.Name != "" {
		question = "Delete " + it.ref.String() + "?"
	}
	ok, err := a.agreed(cmd.Context(), options, question)
	if err != nil || !ok {
		return err
	}
	if it.ref.Name != "" {
		if err := a.deleteDocument(cmd, api, it.ref); err != nil {
			return err
		}
	}
	if !it.here {
		return nil
	}
	err = deleteFile(cmd.Context(), it.id)
	switch {
	case it.ref.Name != "" && director.KindOf(err) == director.KindConflict:
		say(a.out, "Its %s stays: something needs it.\n", it.what)
		return nil
	case err != nil:
		return err
	}
	say(a.out, "The %s %s is deleted: %s\n", it.what, short, amount(it.size))
	return nil
}

// pruneCommand lets a command show what nothing needs, ask, and delete it. prune deletes what was imported longer ago
// than older, or says in a dry run what it would delete; gone counts what was deleted, and says what was not.
func pruneCommand[T any](
	a *app, cmd *cobra.Command,
	prune func(ctx context.Context, api *client.Client, older time.Duration, dryRun bool) ([]T, error),
	show func(io.Writer, []T), gone func([]T) int,
) *cobra.Command {
	var options consent
	var dryRun bool
	var older time.Duration
	cmd.Args = exact()
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if older < 0 {
			return usage(cmd, "--older-than is negative")
		}
		return nil
	}
	cmd.RunE = a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
		items, err := prune(cmd.Context(), api, older, true)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			sayLine(a.out, "Nothing to delete.")
			return nil
		}
		show(a.out, items)
		if dryRun {
			return nil
		}
		ok, err := a.agreed(cmd.Context(), options, "Delete them?")
		if err != nil || !ok {
			return err
		}
		if items, err = prune(cmd.Context(), api, older, false); err != nil {
			return err
		}
		say(a.out, "%d deleted\n", gone(items))
		return nil
	})
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be deleted")
	cmd.Flags().DurationVar(&older, "older-than", 24*time.Hour, "keep what was imported later than this long ago")
	options.flag(cmd, "delete without asking")
	return cmd
}
