package steps

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// describe tells the guest what the document says of VMs of its kind.
func describe(g *cloudinit.Guest, p step.VMParams) {
	m := p.VM
	g.AuthorizedKeys = append(g.AuthorizedKeys, m.SSHKeys...)
	for _, a := range m.HostAliases {
		g.HostAliases = append(g.HostAliases, cloudinit.HostAlias{Address: a.Address, Names: a.Names})
	}
	if len(m.NTP) > 0 {
		g.NTP = m.NTP
	}
	for _, r := range m.Repositories {
		g.Repositories = append(g.Repositories, cloudinit.Repository(r))
	}
	g.Packages = m.Packages
	for _, s := range m.Scripts {
		g.Scripts = append(g.Scripts, cloudinit.Script{
			Name: s.Name, Content: s.Content, Timeout: time.Duration(s.Timeout),
		})
	}
	for _, s := range m.Shares {
		share := cloudinit.Share{Path: s.Path, Server: s.Server, Export: s.Export, Options: s.Options}
		if !s.Common {
			share.Sub = path.Join(p.Machine.Cluster, p.Machine.Name, s.Path)
		}
		g.Shares = append(g.Shares, share)
	}
	if m.Health != nil {
		g.Health = m.Health.Command
	}
}

// healthLimit is how long one health check may take: the director's commands on nodes are short.
const healthLimit = 20 * time.Second

// firstBoot holds a node that has booted to its document: its first-boot scripts have succeeded, and it is well. A VM
// made by others was given no scripts; whether it is well is asked of it too. A step that is tried again runs the
// scripts again that have failed.
func (e vmSteps) firstBoot(ctx context.Context, r plan.Run, p step.VMParams, key string, adopted bool) error {
	if !adopted && len(p.VM.Scripts)+len(p.VM.Shares) > 0 {
		if err := e.scripts(ctx, r, p, key); err != nil {
			return err
		}
	}
	if p.VM.Health == nil {
		return nil
	}
	return e.healthy(ctx, r, p, key)
}

// scripts waits until the first-boot scripts have ended, and tells which of them have failed.
func (e vmSteps) scripts(ctx context.Context, r plan.Run, p step.VMParams, key string) error {
	m := p.Machine
	again := r.Attempt > 1
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		report, err := e.Nodes.FirstBoot(ctx, m.Row(), key, again)
		switch {
		case err != nil && director.KindOf(err) == director.KindConflict:
			return err
		case err == nil && !report.Busy:
			return scriptsResult(ctx, r, p, report)
		case err == nil:
			again = false
			r.Note(ctx, "first-boot scripts run: "+running(report))
		}
		select {
		case <-ctx.Done():
			return director.Errorf(
				director.KindUnavailable, "vm.boot", "the first-boot scripts of %s have not ended: %w", m.Name,
				errors.Join(err, ctx.Err()),
			).
				WithHint("check in %s on the node what they wait for", cloudinit.FirstBootDir)
		case <-tick.C:
		}
	}
}

func running(report cloudinit.Report) string {
	for _, s := range report.Scripts {
		if s.Ran && !s.Ended {
			return s.Name
		}
	}
	return "between two of them"
}

// scriptsResult is nil if all scripts have succeeded, and says otherwise of each how it ended.
func scriptsResult(ctx context.Context, r plan.Run, p step.VMParams, report cloudinit.Report) error {
	var failed, logs []string
	for _, s := range report.Scripts {
		if !s.Failed() {
			continue
		}
		text := fmt.Sprintf("script %s on %s %s", s.Name, p.Machine.Name, s)
		if slices.ContainsFunc(p.VM.Scripts, func(d model.Script) bool { return d.Name == s.Name && d.IgnoreFailure }) {
			r.Note(ctx, text+", which its document ignores")
			continue
		}
		if s.Tail != "" {
			text += "; its last lines:\n" + printable([]byte(s.Tail))
		}
		failed, logs = append(failed, text), append(logs, s.Log)
	}
	if len(failed) == 0 {
		return nil
	}
	return director.Errorf(director.KindConflict, "vm.boot", "%s", strings.Join(failed, "\n")).
		WithHint("the whole output is in %s on the node. Mend what it misses and retry the step, which runs again "+
			"what has failed; or correct the script in the document of the cluster and recreate the node",
			strings.Join(logs, ", "))
}

// healthy tries the node's health check until it passes, or its time is over.
func (e vmSteps) healthy(ctx context.Context, r plan.Run, p step.VMParams, key string) error {
	h := p.VM.Health
	script := fmt.Sprintf(
		"timeout %d sh -c '%s'", int(healthLimit.Seconds()), strings.ReplaceAll(h.Command, "'", `'\''`),
	)
	limit := time.NewTimer(time.Duration(h.Timeout))
	defer limit.Stop()
	tick := time.NewTicker(max(time.Duration(h.Interval), time.Millisecond))
	defer tick.Stop()
	for {
		err := e.Nodes.Script(ctx, p.Machine.Row(), key, script)
		if err == nil || errors.Is(err, errHostKey) {
			return err
		}
		r.Note(ctx, "is not well yet")
		select {
		case <-tick.C:
		case <-limit.C:
			return director.Errorf(
				director.KindConflict, "vm.boot", "%s is not well %s after its boot: %s", p.Machine.Name, h.Timeout,
				said(err),
			).
				WithHint(
					"run %s on the node; mend it and retry the step, or correct health in the document of the cluster",
					cloudinit.HealthFile,
				)
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

func said(err error) string {
	if e, ok := errors.AsType[*director.Error](err); ok {
		return e.Msg
	}
	return err.Error()
}
