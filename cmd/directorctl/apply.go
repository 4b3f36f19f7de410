package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func filesFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringSliceVarP(
		files, "filename", "f", nil, "file or directory of documents; - is the standard input; may be repeated",
	)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

// withSources is connected for a command that sends documents, which it reads first.
func (a *modelCommands) withSources(
	files *[]string, run func(cmd *cobra.Command, api *client.Client, src *sources) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		src, err := a.readSources(cmd.Context(), cmd, *files)
		if err != nil {
			return err
		}
		return a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			return run(cmd, api, src)
		})(cmd, args)
	}
}

func (a *modelCommands) applyCommand() *cobra.Command {
	var files []string
	var dryRun bool
	var options makeOptions
	var generation int64
	form := formTable
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Store documents, and bring clusters to them",
		Long: "Store documents, all or none. They say what should be; nothing is made before a plan is started.\n\n" +
			"With --start, a plan is made for every cluster among the documents that is not as it should be, shown, " +
			"and started after a\n" +
			"confirmation. With --wait, it is followed to its end.",
		Example: "  directorctl apply -f demo/ --dry-run\n  directorctl apply -f demo/ --start --wait --yes",
		Args:    exact(),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if options.start && dryRun {
				return usage(cmd, "--start and --dry-run exclude each other")
			}
			return options.check(cmd, form)
		},
		RunE: a.withSources(&files, func(cmd *cobra.Command, api *client.Client, src *sources) error {
			tag, err := versionTag(cmd.Context(), api, src.text.Bytes(), generation)
			if err != nil {
				return src.translate(err)
			}
			applied, err := api.ApplyIf(cmd.Context(), src.text.Bytes(), streamName, dryRun, tag)
			if err != nil {
				return src.translate(err)
			}
			if form != formTable {
				return a.encode(form, applied)
			}
			a.printChanges(applied)
			if !options.start {
				a.printNext(applied)
				return nil
			}
			return a.startClusters(cmd, api, applied, options.startOptions)
		}),
	}
	filesFlag(cmd, &files)
	cmd.Flags().Int64Var(
		&generation, "if-generation", 0,
		"only if the one document is still at this generation, as get -o json shows it",
	)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be stored")
	options.flags(cmd)
	outputFlag(cmd, &form)
	return cmd
}

// versionTag is the tag of the single document in text if it is at the generation, and stale otherwise. A change after
// this look is found by the director, which compares the tag when it stores.
func versionTag(ctx context.Context, api *client.Client, text []byte, generation int64) (string, error) {
	if generation == 0 {
		return "", nil
	}
	docs, err := model.Parse(text, streamName)
	if err != nil {
		return "", err
	}
	if len(docs) != 1 {
		return "", director.Errorf(
			director.KindInvalid, "directorctl.apply", "--if-generation is for one document, and these are %d",
			len(docs),
		).
			WithHint("apply it by itself")
	}
	d, err := api.Document(ctx, docs[0].Ref())
	if err != nil {
		return "", err
	}
	if d.Generation != generation {
		return "", director.Errorf(
			director.KindStale, "directorctl.apply", "%s is at generation %d, by %s", docs[0].Ref(), d.Generation,
			d.UpdatedBy,
		).
			WithHint("look at what has changed: directorctl diff -f FILE")
	}
	return d.ETag, nil
}

func (a *app) printChanges(applied wire.Applied) {
	for _, c := range applied.Changes {
		note := ""
		if applied.DryRun && c.Action != "unchanged" {
			note = " (dry run)"
		}
		say(a.out, "%s/%s %s%s\n", c.Kind, c.Name, c.Action, note)
	}
}

func (a *modelCommands) printNext(applied wire.Applied) {
	if applied.DryRun {
		return
	}
	for _, c := range applied.Changes {
		if c.Kind == string(model.KindCluster) {
			say(a.out, "next: directorctl plan %s\n", c.Name)
		}
	}
}

// startClusters starts what each applied cluster needs, and then follows the plans one after the other.
func (a *modelCommands) startClusters(
	cmd *cobra.Command, api *client.Client, applied wire.Applied, options startOptions,
) error {
	var started []wire.Plan
	for _, c := range applied.Changes {
		if c.Kind != string(model.KindCluster) {
			continue
		}
		p, err := api.MakePlan(cmd.Context(), c.Name, plan.Request{})
		if err != nil {
			return err
		}
		if len(p.Steps) == 0 {
			a.nothingToDo(c.Name)
			continue
		}
		sayLine(a.out)
		printPlan(a.out, p)
		ok, err := a.startPlan(cmd.Context(), api, p, options.consent)
		if err != nil {
			return err
		}
		if ok {
			started = append(started, p)
		}
	}
	for _, p := range started {
		if err := a.followIf(cmd.Context(), options, api, p); err != nil {
			return err
		}
	}
	return nil
}

func (a *modelCommands) diffCommand() *cobra.Command {
	var files []string
	var exit bool
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Show how documents differ from the stored ones",
		Args:  exact(),
		RunE: a.withSources(&files, func(cmd *cobra.Command, api *client.Client, src *sources) error {
			applied, err := api.Apply(cmd.Context(), src.text.Bytes(), streamName, true)
			if err != nil {
				return src.translate(err)
			}
			differs := false
			for _, c := range applied.Changes {
				switch {
				case c.Action == "unchanged":
					continue
				case c.Diff != "":
					say(a.out, "%s/%s\n%s", c.Kind, c.Name, c.Diff)
					if !strings.HasSuffix(c.Diff, "\n") {
						sayLine(a.out)
					}
				default:
					say(a.out, "%s/%s is new\n", c.Kind, c.Name)
				}
				differs = true
			}
			if differs && exit {
				return differsError{}
			}
			return nil
		}),
	}
	filesFlag(cmd, &files)
	cmd.Flags().BoolVar(&exit, "exit-code", false, "exit with 9 if there are differences")
	return cmd
}
