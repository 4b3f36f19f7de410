package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *modelCommands) getCommand() *cobra.Command {
	form := formTable
	var kind model.Kind
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show documents",
		Long: "Show the documents of a kind (provider, image, release, network, cluster, schedule), or one of " +
			"them.\n\n" +
			"-o yaml prints a text that can be applied again, -o json adds the generation and the history.",
		Example:           "  directorctl get clusters\n  directorctl get cluster demo -o yaml",
		Args:              between(1, "KIND", "NAME"),
		ValidArgsFunction: a.completeKind(0),
		PreRunE: func(cmd *cobra.Command, args []string) (err error) {
			if args[0] == "plan" || args[0] == "plans" {
				return usage(cmd, "plans are shown by: directorctl plans")
			}
			kind, err = kindNamed(cmd, args[0])
			return err
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			ref := model.Ref{Kind: kind}
			if len(args) == 2 {
				ref.Name = args[1]
			}
			return a.get(cmd, api, ref, form)
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *modelCommands) get(cmd *cobra.Command, api *client.Client, ref model.Ref, form string) error {
	ctx := cmd.Context()
	if form == formYAML {
		text, err := api.DocumentYAML(ctx, ref)
		if err == nil {
			_, err = a.out.Write(text)
		}
		return err
	}
	if ref.Kind == model.KindCluster && form == formTable {
		var list []wire.Cluster
		var err error
		if ref.Name == "" {
			list, err = api.Clusters(ctx, client.ClusterColumns...)
		} else {
			var one wire.Cluster
			one, err = api.Cluster(ctx, ref.Name)
			list = []wire.Cluster{one}
		}
		if err == nil {
			printClusters(a.out, list)
		}
		return err
	}
	var docs []wire.Document
	if ref.Name == "" {
		var err error
		if docs, err = api.Documents(ctx, ref.Kind); err != nil {
			return err
		}
	} else {
		d, err := api.Document(ctx, ref)
		if err != nil {
			return err
		}
		docs = []wire.Document{d}
	}
	switch {
	case form == formTable:
		printDocuments(a.out, ref.Kind, docs, time.Now())
		return nil
	case ref.Name != "":
		return a.encode(form, docs[0])
	}
	return a.encode(form, wire.Documents{Items: docs})
}

func table(w io.Writer, header string, rows func(row func(cells ...string))) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	line := func(cells ...string) {
		for i, c := range cells {
			if c == "" {
				cells[i] = "-"
			}
		}
		sayLine(tw, strings.Join(cells, "\t"))
	}
	line(strings.Fields(header)...)
	rows(line)
	_ = tw.Flush() // as say
}

// facts prints names with their texts, without those that have none.
func facts(w io.Writer, list func(line func(name, text string))) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	list(func(name, text string) {
		if text != "" {
			say(tw, "%s:\t%s\n", name, text)
		}
	})
	_ = tw.Flush() // as say
}

func printClusters(w io.Writer, list []wire.Cluster) {
	table(w, "NAME STATUS RELEASE ENDPOINT MACHINES PLAN", func(row func(...string)) {
		for _, c := range list {
			doing := c.Plan
			if doing != "" && c.PlanStatus != "" {
				doing += " (" + c.PlanStatus + ")"
			}
			row(c.Name, c.Status, c.Release, c.Endpoint, strconv.Itoa(c.Nodes), doing)
		}
	})
}

func printDocuments(w io.Writer, kind model.Kind, docs []wire.Document, now time.Time) {
	header := "NAME"
	for _, c := range model.Columns(kind) {
		header += " " + c[0]
	}
	table(w, header+" GENERATION AGE", func(row func(...string)) {
		for _, d := range docs {
			var doc struct {
				Spec map[string]any `json:"spec"`
			}
			_ = json.Unmarshal(d.Document, &doc) // a strange document still has a name
			cells := []string{d.Name}
			for _, c := range model.Columns(kind) {
				cells = append(cells, dig(doc.Spec, c[1]))
			}
			row(append(cells, strconv.FormatInt(d.Generation, 10), age(now.Sub(d.CreatedAt)))...)
		}
	})
}

// dig returns what lies at a dotted place; of a list of named things or groups, the names.
func dig(v any, path string) string {
	for key := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	switch v := v.(type) {
	case nil:
		return ""
	case []any:
		var names []string
		for _, item := range v {
			if text, ok := item.(string); ok {
				names = append(names, text)
				continue
			}
			names = append(names, cmp.Or(dig(item, "name"), dig(item, "group")))
		}
		return strings.Join(names, ",")
	}
	return fmt.Sprint(v)
}

// age renders a span in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

func (a *modelCommands) describeCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use:     "describe cluster NAME | plan ID",
		Short:   "Show everything about a cluster or a plan",
		Args:    exact("cluster or plan", "NAME or ID"),
		Example: "  directorctl describe cluster demo",
		ValidArgsFunction: func(
			cmd *cobra.Command, args []string, toComplete string,
		) ([]string, cobra.ShellCompDirective) {
			switch {
			case len(args) == 0:
				return []string{"cluster", "plan"}, cobra.ShellCompDirectiveNoFileComp
			case args[0] == "plan":
				return a.complete(1, planIDs)(cmd, args, toComplete)
			}
			return a.complete(1, clusterNames)(cmd, args, toComplete)
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			switch strings.TrimSuffix(strings.ToLower(args[0]), "s") {
			case "cluster":
				return a.describeCluster(cmd, api, args[1], form)
			case "plan":
				return a.showPlan(cmd, api, args[1], form)
			}
			return usage(cmd, "%q cannot be described: cluster or plan", args[0])
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *modelCommands) describeCluster(cmd *cobra.Command, api *client.Client, name, form string) error {
	c, err := api.Cluster(cmd.Context(), name)
	if err != nil {
		return err
	}
	if form != formTable {
		return a.encode(form, c)
	}
	plans, err := api.Plans(cmd.Context(), client.PlanFilter{Cluster: name, Limit: 5})
	if err != nil {
		return err
	}
	facts(a.out, func(line func(name, text string)) {
		line("Cluster", c.Name)
		line("Status", c.Status)
		line("Release", c.Release)
		if c.Newer != nil {
			line("Newer", c.Newer.Version+", with Release/"+c.Newer.Release)
		}
		line("Endpoint", c.Endpoint)
		line("Generation", strconv.FormatInt(c.Generation, 10))
		if c.Plan != "" {
			line("Held by", "plan "+c.Plan+" ("+c.PlanStatus+")")
		}
	})
	if len(c.Machines) > 0 {
		sayLine(a.out, "\nMachines")
		table(a.out, "NAME ROLE POOL ADDRESS HOST CPUS MEMORY STATE", func(row func(...string)) {
			for _, m := range c.Machines {
				cpus, memory := "", ""
				if m.CPUs > 0 {
					cpus = strconv.Itoa(m.CPUs)
				}
				if m.MemoryBytes > 0 {
					memory = model.Size(m.MemoryBytes).String()
				}
				row(m.Name, m.Role, m.Pool, m.Address, m.Host, cpus, memory, m.State)
			}
		})
		printInterfaces(a.out, c.Machines)
	}
	if len(plans) > 0 {
		sayLine(a.out, "\nPlans")
		printPlans(a.out, plans, time.Now())
	}
	return nil
}

// printInterfaces shows the further adapters of machines that have more than one.
func printInterfaces(w io.Writer, machines []wire.Machine) {
	if !slices.ContainsFunc(machines, func(m wire.Machine) bool { return len(m.Interfaces) > 0 }) {
		return
	}
	sayLine(w, "\nFurther adapters")
	table(w, "NAME FOR NETWORK ADDRESS MAC", func(row func(...string)) {
		for _, m := range machines {
			for _, i := range m.Interfaces {
				row(m.Name, i.Role, i.Network, i.Address, i.MAC)
			}
		}
	})
}
