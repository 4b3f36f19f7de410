package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ledger"
)

// Auditor compares the ledger with what the hypervisors have.
type Auditor interface {
	// Audit compares the named providers, or all. One that does not answer is an error in the report, and no other.
	Audit(ctx context.Context, providers ...string) (ledger.Report, error)
}

// DriftJob compares the ledger of VMs with what the hypervisors have, as directorctl vms audit does, and reports. It
// changes nothing.
func DriftJob(a Auditor) Job {
	about := "Compares the ledger of VMs with what the hypervisors have: VMs without a row, rows without a VM, VMs " +
		"that are off, moved, on another network or " +
		"of another size, and VMs of others with the names of nodes. It reports and changes nothing."
	return Job{Name: "drift", About: about, Repeatable: true, Prepare: func(*Params) Work {
		return func(ctx context.Context, _ director.ScheduleRun) (Result, error) {
			r, err := a.Audit(ctx)
			if err != nil {
				return Result{}, err
			}
			var errs []error
			for _, p := range r.Providers {
				if p.Err != nil {
					errs = append(errs, unreachable(p))
				}
			}
			return Result{Message: report(r)}, errors.Join(errs...)
		}
	}}
}

// maxDrift bounds the findings in a record.
const maxDrift = 100

func unreachable(p ledger.Compared) error {
	message, hint := explain(p.Err)
	return &director.Error{
		Kind: director.KindOf(p.Err), Op: "schedule.drift", Msg: "provider " + p.Name + " was not compared: " + message,
		Hint: hint, Err: p.Err,
	}
}

func report(r ledger.Report) string {
	vms, providers := 0, 0
	for _, p := range r.Providers {
		if p.Err == nil {
			vms, providers = vms+p.VMs, providers+1
		}
	}
	text := fmt.Sprintf("no drift: the ledger agrees with %s on %s", count(vms, "VM"), count(providers, "provider"))
	if n := len(r.Findings); n > 0 {
		text = fmt.Sprintf("%s over %s on %s:", count(n, "difference"), count(vms, "VM"), count(providers, "provider"))
		for _, f := range r.Findings[:min(n, maxDrift)] {
			text += "\n" + f.String()
		}
		if n > maxDrift {
			text += fmt.Sprintf("\nand %d more", n-maxDrift)
		}
		text += "\nwhat to do about each: directorctl vms audit"
	}
	if len(r.Busy) > 0 {
		text += fmt.Sprintf(
			"\nleft out, because a plan works on them: %s (%s)", count(len(r.Busy), "cluster"),
			strings.Join(r.Busy, ", "),
		)
	}
	return text
}
