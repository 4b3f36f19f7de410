package operations

import (
	"context"

	"github.com/director-kaas/kaas/director/disks"
	"github.com/director-kaas/kaas/director/ledger"
)

// auditDisks adds the disks that outlived their VMs to the report, with what is wrong with them. A provider whose VMs
// were not seen is not asked for disks either.
func (o *Operations) auditDisks(ctx context.Context, r *ledger.Report, busy map[string]bool) error {
	var names []string
	for _, p := range r.Providers {
		if p.Err == nil {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	v, err := disks.New(o.Store, o.Env.Backends, o.Director.ID, o.Now).List(ctx, disks.Filter{Providers: names})
	if err != nil {
		return err
	}
	for _, c := range v.Providers {
		for i := range r.Providers {
			if r.Providers[i].Name == c.Name {
				r.Providers[i].Err = c.Err
			}
		}
	}
	r.Disks = v.Items
	r.Findings = append(r.Findings, ledger.DiskFindings(v.Items, busy)...)
	return nil
}
