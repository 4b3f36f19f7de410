package planning

import (
	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/step"
)

// namesakes tells which machines of the plan and of the cluster have their VMs, by name, and which names are taken by
// VMs of others. A VM that a node leaves behind on another host is told apart by its stamp: the one that the plan
// deletes, and one that was given up with its host.
func (s prechecks) namesakes(
	w planner.World, c plan.Content, facts step.Facts, vms []hypervisor.VM,
) (existing map[string]bool, problems []director.Field) {
	existing = map[string]bool{}
	byName := map[string][]hypervisor.VM{}
	for _, vm := range vms {
		byName[vm.Name] = append(byName[vm.Name], vm)
	}
	goes, given := map[string]bool{}, map[string]bool{}
	for _, m := range facts.Moves {
		for _, was := range facts.Nodes {
			goes[was.ID] = goes[was.ID] || was.Name == m.Name
		}
	}
	for _, m := range w.Machines {
		given[m.ID] = m.State == director.MachineLost && !m.Deleted.IsZero()
	}
	for _, m := range c.Machines {
		for _, vm := range byName[m.Name] {
			own := vm.Stamp.Director == s.Director
			switch {
			case own && vm.Stamp.Machine == m.ID:
				existing[m.Name] = true
			case own && goes[vm.Stamp.Machine]:
			case own && given[vm.Stamp.Machine] && vm.Host != m.Host:
			case own && given[vm.Stamp.Machine]:
				problems = append(problems, director.Field{
					Path: "host",
					Msg: "VM " + m.Name + " on host " + vm.Host +
						" was given up when that host was lost, and has the name",
					Hint: "delete it first: directorctl vms reclaim " + w.Provider.Metadata.Name + " " + string(vm.ID),
				})
			default:
				problems = append(problems, director.Field{
					Path: "metadata.name",
					Msg:  "a VM named " + m.Name + " that this cluster does not own is on host " + vm.Host,
					Hint: "choose another cluster name, or remove that VM; see: directorctl vms audit " +
						w.Provider.Metadata.Name,
				})
			}
		}
	}
	for _, m := range facts.Nodes { // those that the plan does not concern exist too
		for _, vm := range byName[m.Name] {
			if vm.Stamp == (director.Stamp{Director: s.Director, Machine: m.ID}) && !goes[m.ID] {
				existing[m.Name] = true
			}
		}
	}
	return existing, problems
}
