package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *modelCommands) checkCommand() *cobra.Command {
	form := formTable
	var operation string
	cmd := &cobra.Command{
		Use: "check CLUSTER", Short: "Say everything that a plan would be refused for", Args: exact("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		Long: "Look at everything that a plan of the cluster would be refused for: documents, image and release, " +
			"names, addresses, quotas, capacity, and the provider\n" +
			"itself. All problems are shown at once, each with its field and what to do. Nothing is stored. Exits " +
			"with 2 if there are problems.",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			v, err := api.Check(cmd.Context(), args[0], plan.Request{Operation: plan.Operation(operation)})
			if err != nil {
				return err
			}
			if err := a.show(form, v, func() { a.printChecked(v) }); err != nil || v.OK {
				return err
			}
			return director.Errorf(
				director.KindInvalid, "directorctl.check", "a plan for cluster %s cannot be made: %s", args[0],
				director.Count(len(v.Problems), "problem"),
			)
		}),
	}
	cmd.Flags().StringVar(
		&operation, "operation", "", "for this operation, such as cluster.upgrade (default: what the cluster needs)",
	)
	outputFlag(cmd, &form)
	return cmd
}

func (a *modelCommands) printChecked(v wire.Checked) {
	for _, w := range v.Warnings {
		say(a.out, "warning: %s\n", plain(w))
	}
	for _, l := range v.Addresses {
		arp := ""
		if !slices.Contains(l.Ways, "arp") {
			arp = "; not by arp: the director is not on that network"
		}
		say(
			a.out, "addresses: %d of Network/%s looked at by %s%s\n", l.Addresses, plain(l.Network),
			strings.Join(l.Ways, ", "), arp,
		)
	}
	switch {
	case len(v.Problems) > 0:
		a.printProblems(v.Problems)
	case v.Steps == 0:
		say(a.out, "Cluster/%s is as it should be: nothing to do\n", v.Cluster)
	default:
		say(a.out, "No problems. %s\nnext: directorctl plan %s\n", v.Summary, v.Cluster)
	}
}

// printProblems shows problems as a table; what to do follows, because it is longer than a cell.
func (a *modelCommands) printProblems(list []wire.ProblemField) {
	table(a.out, "# DOCUMENT FIELD PROBLEM", func(row func(...string)) {
		for i, p := range list {
			field := strings.TrimPrefix(p.Field, p.Document+": ")
			row(strconv.Itoa(i+1), p.Document, plain(field), strings.ReplaceAll(plain(p.Message), "\n", " "))
		}
	})
	said := false
	for i, p := range list {
		if p.Hint == "" {
			continue
		}
		if !said {
			sayLine(a.out, "\nWhat to do")
			said = true
		}
		say(a.out, "  %d. %s\n", i+1, plain(p.Hint))
	}
}

func (a *modelCommands) capacityCommand() *cobra.Command {
	form := formTable
	size := model.VMSize{CPUs: 2, Memory: 4 * model.GiB, Disk: 30 * model.GiB}
	var cluster string
	cmd := &cobra.Command{
		Use: "capacity [PROVIDER...]", Short: "Tell what hosts have left, and how many VMs of a size still fit",
		Long: "Tell what the hosts of the providers have left, under the providers' policies of overcommitment, and " +
			"how many VMs of a size still fit there and into the\n" +
			"quota. With --cluster, the sizes are those of its pools, and its own quota and the addresses of its " +
			"network count too.",
		Example:           "  directorctl capacity lab --cpus 4 --memory 16GiB\n  directorctl capacity --cluster demo",
		ValidArgsFunction: a.complete(0, providerNames),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			for _, f := range []string{"cpus", "memory", "disk"} {
				if cluster != "" && (cmd.Flags().Changed(f) || len(args) > 0) {
					return usage(cmd, "--cluster has sizes and a provider of its own")
				}
			}
			if size.CPUs < 1 || size.Memory <= 0 || size.Disk <= 0 {
				return usage(cmd, "a VM of nothing fits everywhere")
			}
			return nil
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			var items []wire.Capacity
			var err error
			if cluster != "" {
				items, err = api.ClusterCapacity(cmd.Context(), cluster)
			} else {
				items, err = api.Capacity(cmd.Context(), size, args...)
			}
			if err != nil {
				return err
			}
			return a.show(form, wire.Capacities{Items: items}, func() {
				for i, c := range items {
					if i > 0 {
						sayLine(a.out)
					}
					a.printCapacity(c)
				}
			})
		}),
	}
	cmd.Flags().IntVar(&size.CPUs, "cpus", size.CPUs, "vCPUs of a VM")
	cmd.Flags().TextVar(&size.Memory, "memory", size.Memory, "memory of a VM")
	cmd.Flags().TextVar(&size.Disk, "disk", size.Disk, "disk of a VM")
	cmd.Flags().StringVar(&cluster, "cluster", "", "the sizes of this cluster's pools")
	outputFlag(cmd, &form)
	return cmd
}

func (a *modelCommands) printCapacity(c wire.Capacity) {
	say(a.out, "Provider %s\n", c.Provider)
	if c.Unseen != "" {
		a.printUnseen([]wire.Compared{{Name: c.Provider, Unseen: c.Unseen, Hint: c.Hint}})
		return
	}
	table(a.out, "HOST CPUS PROMISED LEFT MEMORY PROMISED LEFT DISK LEFT", func(row func(...string)) {
		for _, h := range c.Hosts {
			left := "no bound"
			if h.CPUsLeft != nil {
				left = strconv.Itoa(*h.CPUsLeft)
			}
			row(h.Host, strconv.Itoa(
				h.CPUs,
			), strconv.Itoa(h.CPUsPromised), left, gib(h.MemoryBytes), gib(h.MemoryPromisedBytes),
				gib(h.MemoryLeftBytes),
				gib(h.DiskBytes), gib(h.DiskLeftBytes))
		}
	})
	if c.Quota != (wire.Amounts{}) {
		say(a.out, "quota: %s machines, %s vCPUs, %s of memory\n", of(
			c.Used.Machines, c.Quota.Machines,
		), of(c.Used.CPUs, c.Quota.CPUs),
			ofBytes(c.Used.MemoryBytes, c.Quota.MemoryBytes))
	}
	for _, f := range c.Fits {
		what, fit := director.Count(f.Count, "VM"), "fit"
		if f.Pool != "" {
			what = director.Count(f.Count, "more node") + " of pool " + f.Pool
		}
		if f.Count == 1 {
			fit = "fits"
		}
		say(
			a.out, "%s of %s, %s of memory and %s of disk %s, by %s\n", what, director.Count(f.CPUs, "vCPU"),
			gib(f.MemoryBytes), gib(f.DiskBytes), fit, f.By,
		)
	}
}

func gib(n int64) string { return fmt.Sprintf("%.1fGiB", float64(n)/(1<<30)) }

func of(used, most int) string {
	if most == 0 {
		return strconv.Itoa(used)
	}
	return fmt.Sprintf("%d of %d", used, most)
}

func ofBytes(used, most int64) string {
	if most == 0 {
		return gib(used)
	}
	return gib(used) + " of " + gib(most)
}
