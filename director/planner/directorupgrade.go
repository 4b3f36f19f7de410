package planner

import (
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// windowDirectors is the window of the one machine of a director, so that it can go back.
const windowDirectors = "directors"

// UpgradeDirector returns the plan that makes the VM of a director again by its document, in front of the same data
// disk, and that makes the former one again with the data of before should the director not become ready. The image of
// the former VM is on the provider: its row has kept it from being deleted there.
//
// A VM that a plan has taken away, and that none has made again, is made without asking the director before. A plan
// without steps means that the VM is as its document says. Errors: conflict if there is no such VM.
func UpgradeDirector(w World, r plan.Request) (plan.Content, error) {
	name, machines := w.Cluster.Metadata.Name, w.alive()
	if w.Installed == nil || w.Installed.Director == nil || len(machines) != 1 {
		return plan.Content{}, conflict(opDirector, "director "+name+" has no VM that became ready",
			"make it first: directorctl director create "+name)
	}
	d := w.draft(plan.DirectorUpgrade)
	d.Request = plan.Request{Operation: plan.DirectorUpgrade, Unready: r.Unready}
	was, there := w.Installed.Director, machines[0].State == director.MachinePresent
	if there && !r.Unready && w.Cluster.Director.SameVM(was) {
		d.Summary = fmt.Sprintf("The VM of director %s is as its document says; nothing is to be done.", name)
		return *d.Content, nil
	}
	before := w
	former := w.Cluster
	former.Director = was
	before.Cluster, before.Image = OfDirector(former)
	m, old := w.remade(machines[0]), before.remade(machines[0])

	d.sayUpgrade(m, there)
	needs := []string{d.imageEnsure()}
	if there && !r.Unready {
		needs = []string{d.directorCheck(old, needs)}
	}
	in := group{window: windowDirectors}
	d.Windows = []plan.Window{{ID: in.window, Size: 1, Goal: "upgraded"}}
	gone := d.removeVM(m, needs, in)
	saved := d.copied(step.CopyMake, m, gone, in)
	made := d.ensure(m, encode(w.params().vmParams(m)), []string{saved}, in)
	ready := d.directorReady(m, made, in)

	back := in
	back.undoes = []string{made, ready}
	last := d.copied(step.CopyRestore, m, d.removeVM(m, nil, back), back)
	back.undoes = []string{gone, saved, made, ready}
	again := d.in(before)
	last = again.ensure(old, encode(before.params().vmParams(old)), []string{last}, back)
	last = again.directorReady(old, last, back)
	d.copied(step.CopyDelete, m, last, back)

	d.copied(step.CopyDelete, m, d.directorRecord(m, ready, in), in)
	return d.ofVM(m), nil
}

// remade returns the machine of the row as the director's document wants it.
func (w World) remade(row director.Machine) sized {
	row.Image, row.CPUs, row.Memory = w.image(), w.Cluster.Director.CPUs, int64(w.Cluster.Director.Memory)
	return w.sized(row)
}

// sayUpgrade writes what a person agrees to, and what they should know.
func (d *draft) sayUpgrade(m sized, there bool) {
	was, is := d.w.Installed.Director, d.w.Cluster.Director
	d.Summary = fmt.Sprintf(
		"Upgrade director %s to image %.12s, %d vCPU and %s (now %.12s, %d vCPU and %s).",
		m.Name, is.Image.SHA256, is.CPUs, is.Memory, was.Image.SHA256, was.CPUs, was.Memory,
	)
	d.Approvals = append(d.Approvals,
		fmt.Sprintf("it stops director %s: nothing manages its clusters until its new VM is ready", m.Name),
		fmt.Sprintf("should the new VM not become ready, the one of image %.12s is made again with the data of before"+
			": what the new one has written is lost then", was.Image.SHA256),
	)
	if !there {
		d.warn("an earlier plan has taken the VM away, so the director is not asked before whether it is ready")
	} else if d.Request.Unready {
		d.Approvals = append(d.Approvals, fmt.Sprintf(
			"director %s is not asked before whether it is ready; if it is not, the VM of before may not become ready "+
				"either", m.Name,
		))
	}
	d.warn(fmt.Sprintf("the VM of before would be made of image %.12s: if the director was upgraded in place since, "+
		"that image may be too old for its data", was.Image.SHA256))
	if d.w.Gone != "" {
		d.warn("plan " + d.w.Gone + " began the same upgrade, and did not bring it to its end: " +
			"directorctl plans show " + d.w.Gone)
	}
	for _, k := range d.w.Disks {
		if k.CopyOf == director.DiskID(m.ID, director.DataDiskSerial) {
			d.warn(fmt.Sprintf("plan %s has left the copy %s of the data disk; delete it if its data is not wanted: "+
				"directorctl disks delete %s %s", k.Plan, k.ID, k.Provider, k.ID))
		}
	}
}

// directorCheck looks whether the director on the VM of m is ready.
func (d *builder) directorCheck(m sized, needs []string) string {
	s := group{}.step(step.DirectorCheck, m.Name, "Look whether director "+m.Name+" is ready")
	s.Needs, s.Params = needs, encode(d.w.params().directorParams(m))
	s.Attempts, s.Timeout, s.Estimate = 2, 2*time.Minute, 20*time.Second
	return d.add(s)
}

// copied adds a step of the kind that makes, restores or deletes the plan's copy of m's data disk.
func (d *builder) copied(kind string, m sized, need string, in group) string {
	title, effect := "Copy the data disk of ", plan.Effect{
		Verb: "create", Object: "volume", Name: m.Name + " copy", Detail: "of the data disk; deleted at the end",
	}
	switch kind {
	case step.CopyRestore:
		title, effect = "Restore from its copy the data disk of ", plan.Effect{
			Verb: "change", Object: "volume", Name: m.Name + " data", Detail: "as it was before the upgrade",
		}
	case step.CopyDelete:
		title, effect = "Delete the copy of the data disk of ", plan.Effect{
			Verb: "delete", Object: "volume", Name: m.Name + " copy",
		}
	}
	s := in.step(kind, m.Name, title+m.Name)
	s.Needs, s.Effects = []string{need}, []plan.Effect{effect}
	s.Params = encode(step.CopyParams{Machine: plan.SpecOf(m.Machine), Size: m.DataDisk})
	s.Attempts, s.Timeout, s.Estimate = 3, 4*time.Hour, time.Minute
	return d.add(s)
}
