package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Inventory is what a drift check compares: the ledger on one side, and what the back ends have on the other.
type Inventory interface {
	// Providers lists the names of the providers.
	Providers(ctx context.Context) ([]string, error)
	// Machines lists the ledger's rows that are not tombstones.
	Machines(ctx context.Context) ([]director.Machine, error)
	// Busy lists the clusters that a plan holds: their machines are allowed to differ.
	Busy(ctx context.Context) (map[string]bool, error)
	// VMs lists the VMs with our stamp on a provider.
	VMs(ctx context.Context, provider string) ([]hypervisor.VM, error)
}

// DriftJob compares the ledger of VMs with what the back ends list, and reports. It changes nothing.
func DriftJob(in Inventory) Job {
	about := "Compares the ledger of VMs with what the hypervisors have: VMs that nobody knows, VMs that are gone, that are off, moved or of another size. " +
		"It reports and changes nothing."
	return Job{Name: "drift", About: about, Repeatable: true, Prepare: func(*Params) Work {
		return func(ctx context.Context, _ director.ScheduleRun) (Result, error) { return drift(ctx, in) }
	}}
}

// maxDrift bounds the findings in a record.
const maxDrift = 100

func drift(ctx context.Context, in Inventory) (Result, error) {
	// The VMs first: what was made before the list is in the ledger by the time that is read, so a VM in the making is no orphan.
	providers, err := in.Providers(ctx)
	if err != nil {
		return Result{}, err
	}
	vms := map[string][]hypervisor.VM{}
	var errs []error
	for _, p := range providers {
		list, err := in.VMs(ctx, p)
		if err != nil {
			errs = append(errs, unreachable(p, err))
			continue
		}
		vms[p] = list
	}
	machines, err := in.Machines(ctx)
	if err != nil {
		return Result{}, err
	}
	busy, err := in.Busy(ctx)
	if err != nil {
		return Result{}, err
	}
	seen := 0
	var findings []string
	for _, p := range providers {
		list, ok := vms[p]
		if !ok {
			continue
		}
		seen += len(list)
		findings = append(findings, compare(p, machines, list, busy)...)
	}
	return Result{Message: report(findings, seen, len(vms), len(busy))}, errors.Join(errs...)
}

func unreachable(provider string, err error) error {
	message, hint := explain(err)
	return &director.Error{
		Kind: director.KindOf(err), Op: "schedule.drift", Msg: "provider " + provider + " was not compared: " + message, Hint: hint, Err: err,
	}
}

func report(findings []string, vms, providers, busy int) string {
	text := fmt.Sprintf("no drift: the ledger agrees with %s on %s", count(vms, "VM"), count(providers, "provider"))
	if n := len(findings); n > 0 {
		shown := findings[:min(n, maxDrift)]
		text = fmt.Sprintf("%s over %s on %s:\n%s", count(n, "difference"), count(vms, "VM"), count(providers, "provider"), strings.Join(shown, "\n"))
		if n > maxDrift {
			text += fmt.Sprintf("\nand %d more", n-maxDrift)
		}
	}
	if busy > 0 {
		text += fmt.Sprintf("\nleft out, because a plan works on them: %s", count(busy, "cluster"))
	}
	return text
}

// compare returns a line for each difference on one provider, by name.
func compare(provider string, machines []director.Machine, vms []hypervisor.VM, busy map[string]bool) []string {
	rows := map[string]director.Machine{}
	for _, m := range machines {
		if m.Provider == provider {
			rows[m.ID] = m
		}
	}
	var out []string
	there := map[string]bool{}
	for _, vm := range vms {
		m, known := rows[vm.Stamp.Machine]
		switch {
		case !known:
			out = append(out, fmt.Sprintf("orphan: VM %s on %s/%s carries our stamp, and the ledger has no machine %s", vm.Name, provider, vm.Host, vm.Stamp.Machine))
		case there[m.ID]:
			out = append(out, fmt.Sprintf("twin: VM %s on %s/%s has the stamp of machine %s, which another VM has too", vm.Name, provider, vm.Host, m.Name))
		case !busy[m.Cluster]:
			out = append(out, differences(provider, m, vm)...)
		}
		there[vm.Stamp.Machine] = true
	}
	for _, m := range rows {
		if m.State == director.MachinePresent && !there[m.ID] && !busy[m.Cluster] {
			out = append(out, fmt.Sprintf("ghost: machine %s of cluster %s is in the ledger, and %s/%s does not have it", m.Name, m.Cluster, provider, m.Host))
		}
	}
	slices.Sort(out)
	return out
}

func differences(provider string, m director.Machine, vm hypervisor.VM) []string {
	var out []string
	say := func(format string, args ...any) {
		out = append(out, fmt.Sprintf("drift: machine %s of cluster %s on %s: ", m.Name, m.Cluster, provider)+fmt.Sprintf(format, args...))
	}
	if m.State == director.MachinePresent && vm.Power != hypervisor.PowerOn {
		say("it is powered %s", vm.Power)
	}
	if m.Host != "" && vm.Host != m.Host {
		say("it is on host %s and not on %s", vm.Host, m.Host)
	}
	if vm.CPUs != 0 && m.CPUs != 0 && vm.CPUs != m.CPUs {
		say("it has %d vCPUs and not %d", vm.CPUs, m.CPUs)
	}
	if vm.Memory != 0 && m.Memory != 0 && vm.Memory != m.Memory {
		say("it has %s of memory and not %s", mebibytes(vm.Memory), mebibytes(m.Memory))
	}
	return out
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
