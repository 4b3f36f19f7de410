package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *modelCommands) previewCommand() *cobra.Command {
	var files []string
	form := formTable
	cmd := &cobra.Command{
		Use: "preview -f FILE", Short: "Say what documents would change, and which plans would be made",
		Long: "Show every problem of documents with its place, how they differ from what is stored, and for each " +
			"cluster among them the plan that would\nbe made, with what the hosts have left afterwards. Nothing is " +
			"stored. Exits with 2 if there are problems.",
		Example: "  directorctl preview -f demo/", Args: exact(),
		RunE: a.withSources(&files, func(cmd *cobra.Command, api *client.Client, src *sources) error {
			v, err := api.Preview(cmd.Context(), src.text.Bytes())
			if err != nil {
				return err
			}
			if err := a.show(form, v, func() { a.printPreview(v, src) }); err != nil || v.OK {
				return err
			}
			n := len(v.Problems)
			for _, p := range v.Plans {
				n += len(p.Problems)
			}
			return director.Errorf(
				director.KindInvalid, "directorctl.preview", "the documents have %s", director.Count(n, "problem"),
			)
		}),
	}
	filesFlag(cmd, &files)
	outputFlag(cmd, &form)
	return cmd
}

func (a *modelCommands) printPreview(v wire.Preview, src *sources) {
	a.printLocated(v.Problems, src)
	for _, c := range v.Changes {
		say(a.out, "%s/%s %s\n", c.Kind, c.Name, c.Action)
		if c.Diff != "" {
			say(a.out, "%s\n", plain(c.Diff))
		}
	}
	for _, p := range v.Plans {
		switch {
		case p.Operation == "":
			say(a.out, "\nCluster/%s: no plan can be made\n", p.Cluster)
		case p.Steps == 0:
			say(a.out, "\nCluster/%s: nothing to do\n", p.Cluster)
		default:
			say(a.out, "\nCluster/%s: %s: %s\n%s, about %s\n", p.Cluster, p.Operation, plain(p.Summary),
				director.Count(p.Steps, "step"),
				(time.Duration(p.EstimateSeconds) * time.Second).String())
		}
		for _, w := range p.Warnings {
			say(a.out, "warning: %s\n", plain(w))
		}
		for _, w := range p.Approvals {
			say(a.out, "needs approval: %s\n", plain(w))
		}
		for _, e := range p.Effects {
			say(a.out, "  %s %s %s %s\n", e.Verb, e.Object, plain(e.Name), plain(e.Detail))
		}
		if len(p.HostsAfter) > 0 {
			table(a.out, "HOST CPUS-AFTER MEMORY-AFTER DISK-AFTER", func(row func(...string)) {
				for _, h := range p.HostsAfter {
					cpus := ""
					if h.CPUsLeft != nil {
						cpus = strconv.Itoa(*h.CPUsLeft)
					}
					row(h.Host, cpus, memory(h.MemoryLeftBytes), memory(h.DiskLeftBytes))
				}
			})
		}
		a.printLocated(p.Problems, src)
	}
}

// printLocated shows problems with their places in the files.
func (a *modelCommands) printLocated(list []wire.PreviewProblem, src *sources) {
	for _, p := range list {
		at := ""
		if p.Line > 0 {
			name, line := src.place(p.Line)
			at = name + ":" + strconv.Itoa(line) + ":" + strconv.Itoa(p.Column) + ": "
		}
		say(a.out, "problem: %s%s %s\n", at, plain(p.Field), plain(p.Message))
		if p.Hint != "" {
			say(a.out, "  %s\n", plain(p.Hint))
		}
	}
}
