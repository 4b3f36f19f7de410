package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *providerCommands) vmsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "vms", Short: "Compare the ledger of VMs with the hypervisors, and resolve differences",
		Long: "The director records every VM in its ledger before it creates it. These commands compare the ledger " +
			"with the hypervisors, and adopt or reclaim\nVMs that differ. They never touch a VM without the " +
			"director's stamp.",
		Args: exact(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.vmsListCommand(), a.vmsAuditCommand(), a.vmsAdoptCommand(), a.vmsReclaimCommand())
	return cmd
}

func providerNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindProvider)
}

func (a *providerCommands) vmsListCommand() *cobra.Command {
	var strangers bool
	cmd := &cobra.Command{
		Use: "list [PROVIDER...]", Short: "List VMs as the ledger and the hypervisors have them",
		ValidArgsFunction: a.complete(0, providerNames),
	}
	cmd.Flags().BoolVar(&strangers, "strangers", false, "also VMs that are not the director's")
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, args []string) (wire.VMs, error) {
		return api.VMs(ctx, strangers, args...)
	}, func(v wire.VMs) {
		table(a.out, "PROVIDER HOST NAME ID POWER CPUS MEMORY OWNER CLUSTER STATE", func(row func(...string)) {
			for _, m := range v.Items {
				row(
					m.Provider, m.Host, m.Name, m.ID, m.Power, counted(m.CPUs), memory(m.MemoryBytes), m.Owner,
					m.Cluster, m.State,
				)
			}
		})
		a.printUnseen(v.Providers)
	})
}

func counted(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func memory(n int64) string {
	if n == 0 {
		return ""
	}
	return model.Size(n).String()
}

// printUnseen names the providers that did not answer.
func (a *app) printUnseen(list []wire.Compared) {
	for _, p := range list {
		if p.Unseen == "" {
			continue
		}
		say(a.out, "\nProvider %s did not answer: %s\n", p.Name, plain(p.Unseen))
		if p.Hint != "" {
			say(a.out, "  hint: %s\n", plain(p.Hint))
		}
	}
}

func (a *providerCommands) vmsAuditCommand() *cobra.Command {
	form := formTable
	var exit bool
	cmd := &cobra.Command{
		Use: "audit [PROVIDER...]", Short: "Find VMs that the ledger and the hypervisors do not agree on",
		Long: "Compare the ledger with what the hypervisors have, and say what can be done about each difference. " +
			"Nothing is changed.\n\n" +
			"  twin      a VM with the stamp of a machine that another VM has too\n" +
			"  orphan    a VM with our stamp, and no row in the ledger\n" +
			"  ghost     a row, and no VM\n" +
			"  stranger  a VM that is not ours, with the name of one of our nodes\n" +
			"  drift     a VM of another size, on another host or network, or switched off\n" +
			"  orphan-disk  a data disk with our stamp that the ledger knows nothing of\n" +
			"  ghost-disk   a disk that the ledger keeps, and that is not there or not free",
		Example:           "  directorctl vms audit\n  directorctl vms audit lab --exit-code",
		ValidArgsFunction: a.complete(0, providerNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			v, err := api.Audit(cmd.Context(), args...)
			if err != nil {
				return err
			}
			if err := a.show(form, v, func() { a.printAudit(v) }); err != nil {
				return err
			}
			for _, p := range v.Providers {
				if p.Unseen != "" && exit {
					return director.Errorf(
						director.KindUnavailable, "directorctl.audit", "provider %s was not compared", p.Name,
					).
						WithHint("%s", p.Hint)
				}
			}
			if exit && len(v.Findings) > 0 {
				return differsError{}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(
		&exit, "exit-code", false, "exit with 9 if there are findings, and with 8 if a provider did not answer",
	)
	outputFlag(cmd, &form)
	return cmd
}

func (a *providerCommands) printAudit(v wire.Audit) {
	vms, seen := 0, 0
	for _, p := range v.Providers {
		if p.Unseen == "" {
			vms, seen = vms+p.VMs, seen+1
		}
	}
	if len(v.Findings) > 0 {
		table(a.out, "KIND PROVIDER HOST NAME ID CLUSTER", func(row func(...string)) {
			for _, f := range v.Findings {
				row(f.Kind, f.Provider, f.Host, f.Name, f.VM, f.Cluster)
			}
		})
		for _, f := range v.Findings {
			say(a.out, "\n%s: %s\n  next: %s\n", f.Kind, plain(f.Problem), plain(f.Next))
		}
		sayLine(a.out)
	}
	say(a.out, "%s with the director's stamp on %s, %s\n", director.Count(vms, "VM"), director.Count(seen, "provider"),
		director.Count(len(v.Findings), "finding"))
	a.printDiskAudit(v.Disks)
	for _, c := range v.Busy {
		say(a.out, "A plan works on cluster %s, or has left it half way: how its VMs differ was not looked at\n", c)
	}
	a.printUnseen(v.Providers)
}

func (a *providerCommands) vmsAdoptCommand() *cobra.Command {
	var addresses []string
	var options consent
	form := formTable
	cmd := &cobra.Command{
		Use: "adopt PROVIDER ID", Short: "Write an orphan into the ledger again",
		Long: "Write a VM with the director's stamp into the ledger, if the cluster that it was made for still " +
			"exists. Nothing happens to the VM; the next plan of\n" +
			"the cluster sees it, and keeps it, brings it in, or takes it away as one too many. A VM that is in the " +
			"ledger is written down where it is now.",
		Example: "  directorctl vms adopt lab 6c4b3e2a-7f0d-5a1e-9c55-0242ac120002\n" +
			"  directorctl vms adopt lab 6c4b3e2a-7f0d-5a1e-9c55-0242ac120002 --address 10.88.0.17 --address " +
			"storage=10.89.0.17", Args: exact(
			"PROVIDER", "ID",
		), ValidArgsFunction: a.complete(0, providerNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			said, err := saidAddresses(cmd, addresses)
			if err != nil {
				return err
			}
			ok, err := a.agreed(cmd.Context(), options, "Write VM "+args[1]+" on "+args[0]+" into the ledger?")
			if err != nil || !ok {
				return err
			}
			vm, err := api.AdoptVM(cmd.Context(), args[0], args[1], said)
			if err != nil {
				return err
			}
			return a.show(form, vm, func() {
				say(
					a.out, "VM %s is machine %s of Cluster/%s at %s\nnext: directorctl plan %s\n", vm.ID, vm.Name,
					vm.Cluster, vm.Address, vm.Cluster,
				)
			})
		}),
	}
	cmd.Flags().StringArrayVar(
		&addresses, "address", nil,
		"its address, or NETWORK=ADDRESS of a further adapter, if the director does not remember it; may be repeated",
	)
	options.flag(cmd, "do it without asking")
	outputFlag(cmd, &form)
	return cmd
}

// saidAddresses reads addresses as people write them: that of the node alone, others with their network.
func saidAddresses(cmd *cobra.Command, written []string) (wire.VMAdopt, error) {
	var said wire.VMAdopt
	for _, w := range written {
		network, address, further := strings.Cut(w, "=")
		switch {
		case !further && said.Address == "":
			said.Address = w
		case !further || network == "" || address == "":
			return said, usage(cmd, "--address %s: want ADDRESS once, and NETWORK=ADDRESS for each further adapter", w)
		default:
			if said.Addresses == nil {
				said.Addresses = map[string]string{}
			}
			said.Addresses[network] = address
		}
	}
	return said, nil
}

func (a *providerCommands) vmsReclaimCommand() *cobra.Command {
	var disks bool
	var options consent
	form := formTable
	cmd := &cobra.Command{
		Use: "reclaim PROVIDER ID", Short: "Delete an orphan",
		Long: "Delete a VM with the director's stamp that has no row in the ledger, and that no plan still means to " +
			"make. Anything else is refused. Its data disks\n" +
			"stay unless --data-disks is given.",
		Example: "  directorctl vms reclaim lab 6c4b3e2a-7f0d-5a1e-9c55-0242ac120002", Args: exact("PROVIDER", "ID"),
		ValidArgsFunction: a.complete(0, providerNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			what := "Delete VM " + args[1] + " on " + args[0] + " with its root disk"
			if disks {
				what += " and all its data disks"
			}
			ok, err := a.agreed(cmd.Context(), options, what+"?")
			if err != nil || !ok {
				return err
			}
			vm, err := api.ReclaimVM(cmd.Context(), args[0], args[1], disks)
			if err != nil {
				return err
			}
			return a.show(form, vm, func() { say(a.out, "VM %s (%s) on %s deleted\n", vm.ID, vm.Name, args[0]) })
		}),
	}
	cmd.Flags().BoolVar(&disks, "data-disks", false, "also delete its data disks")
	options.flag(cmd, "delete without asking")
	outputFlag(cmd, &form)
	return cmd
}
