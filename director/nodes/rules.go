package nodes

import (
	"fmt"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// repairDay is the time that a budget of repairs is for.
const repairDay = 24 * time.Hour

// ailing is a member that is not well.
type ailing struct {
	node, problem string
	mend          plan.Operation // the mildest that may help
	since         time.Time      // found so at every look
}

// pastRepair is a plan that was made automatically within repairDay.
type pastRepair struct {
	plan   string
	node   string
	op     plan.Operation
	at     time.Time // of its start; of its making before that
	status plan.Status
}

// begun reports whether the plan was started at any time: only that uses the budget up.
func (p pastRepair) begun() bool {
	return p.status != plan.StatusPlanned && p.status != plan.StatusApproved
}

// ward is what is known of a cluster's nodes when a repair is decided on.
type ward struct {
	care    model.Repair
	now     time.Time
	members int
	ill     []ailing     // in the order in which they are mended
	past    []pastRepair // the newest first
}

// verdict is what is to be done about the nodes, or why nothing is.
type verdict struct {
	op   plan.Operation // empty for nothing
	node string
	why  string
	stop bool // nothing more is done by itself: a person has to look
}

// decide chooses at most one node and what mends it. It errs on the side of doing nothing: many nodes that are ill at
// once have one cause, which is none of theirs, and what a repair has not mended it will not mend the next time.
func (w ward) decide() verdict {
	if len(w.ill) == 0 {
		return verdict{why: "all nodes are well"}
	}
	if most := max(1, w.members*w.care.MaxUnhealthy/100); len(w.ill) > most {
		return verdict{stop: true, why: fmt.Sprintf("%d of %d nodes are ill at once, and more than %d look like an "+
			"outage of what they share: nothing is done before a person has looked",
			len(w.ill), w.members, most)}
	}
	if i := slices.IndexFunc(w.past, func(p pastRepair) bool { return !p.begun() }); i >= 0 {
		return verdict{
			stop: true,
			why: fmt.Sprintf(
				"plan %s is to mend %s and has to be approved and started", w.past[i].plan, w.past[i].node,
			),
		}
	}
	for _, p := range w.past {
		if unfinished(p.status) && !w.mildFailure(p) {
			return verdict{
				stop: true,
				why: fmt.Sprintf(
					"plan %s, which was to mend %s, is %s: nothing more is done before it is retried or discarded",
					p.plan, p.node, p.status,
				),
			}
		}
	}
	var waits verdict
	for _, a := range w.ill {
		v := w.treat(a)
		if v.op != "" {
			return v
		}
		if waits.why == "" || v.stop && !waits.stop {
			waits = v
		}
	}
	return waits
}

// unfinished reports whether a plan has stopped half way.
func unfinished(p plan.Status) bool {
	return p == plan.StatusFailed || p == plan.StatusCancelled || p == plan.StatusParked || p == plan.StatusPaused
}

// mildFailure reports whether p is a rejoin that failed on a node that is still ill: there is something stronger.
func (w ward) mildFailure(p pastRepair) bool {
	return p.op == plan.NodeRejoin && p.status == plan.StatusFailed &&
		slices.ContainsFunc(w.ill, func(a ailing) bool { return a.node == p.node })
}

// treat decides on one node. A VM is created again only after something milder did not help, where there is anything
// milder.
func (w ward) treat(a ailing) verdict {
	if due := a.since.Add(time.Duration(w.care.After)); w.now.Before(due) {
		return verdict{
			why: fmt.Sprintf(
				"%s is ill (%s); it is mended if that is so until %s", a.node, a.problem,
				due.UTC().Format(time.TimeOnly),
			),
		}
	}
	op := a.mend
	if i := slices.IndexFunc(w.past, func(p pastRepair) bool { return p.node == a.node }); i >= 0 {
		last := w.past[i]
		if last.op == plan.NodeReplace {
			return verdict{
				stop: true,
				why: fmt.Sprintf(
					"%s was recreated by plan %s and is ill again (%s): a person has to look", a.node, last.plan,
					a.problem,
				),
			}
		}
		op = plan.NodeReplace
	}
	if n := len(w.past); n >= w.care.MaxPerDay {
		free := w.past[w.care.MaxPerDay-1].at.Add(repairDay)
		return verdict{stop: true, why: fmt.Sprintf("%s is ill (%s), and the budget of %d repairs a day is used up "+
			"until %s", a.node, a.problem, w.care.MaxPerDay,
			free.UTC().Format(time.DateTime))}
	}
	return verdict{op: op, node: a.node, why: fmt.Sprintf("%s is ill: %s", a.node, a.problem)}
}
