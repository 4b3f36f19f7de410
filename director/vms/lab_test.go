package vms_test

import (
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/disks"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/vms"
)

// lab is the ledger of VMs of a director in a lab.
type lab struct {
	*servicetest.Lab
	*vms.Service
}

func openLab(t *testing.T, clusters, workers int) *lab {
	t.Helper()
	l := servicetest.Open(t, clusters, workers)
	return &lab{l, vms.New(vms.Config{
		Store: l.Store, Backends: l.Env.Backends, Clusters: l.Env, Director: l.Director.ID, Now: time.Now,
		Disks: disks.New(l.Store, l.Env.Backends, l.Director.ID, time.Now),
	})}
}

// found audits, and returns the kinds and names of what was found.
func (l *lab) found(t *testing.T) []string {
	t.Helper()
	r, err := l.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range r.Findings {
		out = append(out, string(f.Kind)+" "+f.Name)
	}
	return out
}
