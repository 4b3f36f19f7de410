package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *planCommands) eventsCommand() *cobra.Command {
	var follow bool
	var f client.StreamFilter
	form := formTable
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Read what happens on the director",
		Long: "Show who did what, and how plans and steps progress, in one order for all directors that share the " +
			"database. With -f, follow until an\n" +
			"interrupt; then the output json is one object a line.",
		Example: "  directorctl events -f\n  directorctl events --cluster demo --tail 0 -o json",
		Args:    exact(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.Tail < 0 || f.Tail > mostTail:
				return usage(cmd, "--tail is a number from 1 to %d, or 0 for all", mostTail)
			case follow && form == formYAML:
				return usage(cmd, "-f goes with table and json")
			}
			for i, k := range f.Kinds {
				if strings.EqualFold(strings.TrimSuffix(strings.ToLower(k), "s"), "plan") {
					f.Kinds[i] = "Plan"
					continue
				}
				kind, err := kindNamed(cmd, k)
				if err != nil {
					return err
				}
				f.Kinds[i] = string(kind)
			}
			api, err := a.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			if follow {
				return a.watchEvents(cmd, api, f, form)
			}
			return a.listEvents(cmd, api, f, form)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow until an interrupt")
	cmd.Flags().StringVar(&f.Cluster, "cluster", "", "only what is about this cluster and its plans")
	cmd.Flags().StringSliceVar(
		&f.Kinds, "kind", nil, "only what is about this kind of thing, such as plan; may be repeated",
	)
	cmd.Flags().IntVar(&f.Tail, "tail", 50, "begin so many events before the end; 0 for all that are kept")
	kinds := []string{"plan"}
	for _, k := range model.Kinds() {
		kinds = append(kinds, strings.ToLower(string(k)))
	}
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("cluster", a.complete(0, clusterNames))
	outputFlag(cmd, &form)
	return cmd
}

// mostTail is how far back the director begins when it is asked for the end.
const mostTail = 1000

// listEvents prints what is there now.
func (a *planCommands) listEvents(cmd *cobra.Command, api *client.Client, f client.StreamFilter, form string) error {
	all := wire.Stream{Items: []wire.StreamEvent{}}
	for {
		page, err := api.Stream(cmd.Context(), f)
		if err != nil {
			return err
		}
		if form == formTable {
			for _, e := range page.Items {
				sayLine(a.out, eventLine(e))
			}
		} else {
			all.Items, all.Last = append(all.Items, page.Items...), page.Last
		}
		if len(page.Items) == 0 || f.Tail > 0 {
			break
		}
		f.After = page.Last
	}
	if form == formTable {
		return nil
	}
	return a.encode(form, all)
}

// watchEvents prints what happens until an interrupt.
func (a *planCommands) watchEvents(cmd *cobra.Command, api *client.Client, f client.StreamFilter, form string) error {
	err := api.Watch(cmd.Context(), f, func(e wire.StreamEvent) error {
		if form == formTable {
			_, err := fmt.Fprintln(a.out, eventLine(e))
			return err
		}
		return wire.MarshalWrite(a.out, e)
	}, func(g wire.StreamGap) {
		say(a.err, "events %d to %d are not kept any more\n", g.After+1, g.Through)
	}, func(err error) {
		if err == nil {
			sayLine(a.err, "connected again")
			return
		}
		say(a.err, "the connection is lost, trying again: %v\n", err)
	})
	if cmd.Context().Err() != nil {
		return &interruptedError{}
	}
	return err
}

// eventLine is an event for people.
func eventLine(e wire.StreamEvent) string {
	var b strings.Builder
	b.WriteString(e.At.Local().Format(time.DateTime) + "  " + e.Kind + "/" + e.Name)
	if e.Kind == "Plan" && e.Cluster != "" {
		b.WriteString(" (" + e.Cluster + ")")
	}
	if e.Step != "" {
		b.WriteString(" " + e.Step)
	}
	b.WriteString("  " + strings.ReplaceAll(e.What, "_", " "))
	if e.Attempt > 1 {
		fmt.Fprintf(&b, " (attempt %d)", e.Attempt)
	}
	if e.Source == director.SourceAudit && e.By != "" {
		b.WriteString(" by " + e.By)
	}
	if e.Message != "" {
		b.WriteString(": " + strings.ReplaceAll(strings.TrimSpace(plain(e.Message)), "\n", "\n    "))
	}
	return b.String()
}
