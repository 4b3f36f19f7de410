package wire

import (
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Optional returns the time in UTC, or nil for none.
func Optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Moment is the inverse of Optional.
func Moment(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// SummaryOf converts a plan and its state without the steps.
func SummaryOf(p plan.Plan, s plan.State) PlanSummary {
	done, total := plan.Count(&p, &s)
	return PlanSummary{
		ID: p.ID, Operation: string(p.Operation), Cluster: p.Cluster, Summary: p.Summary, Hash: p.Hash,
		CreatedAt: p.CreatedAt.UTC(), CreatedBy: p.CreatedBy,
		Status: string(s.Status), Message: s.Message, Hint: s.Hint,
		StartedAt: Optional(s.StartedAt), FinishedAt: Optional(s.FinishedAt),
		EstimateSeconds: Seconds(p.Estimate), StepsDone: done, StepsTotal: total,
	}
}

// PlanOf converts a plan and its state.
func PlanOf(p plan.Plan, s plan.State) Plan {
	out := Plan{
		PlanSummary: SummaryOf(p, s), Playbooks: p.Playbooks, LastEvent: s.Seq,
		Models: make([]ModelRef, len(p.Models)), Machines: make([]PlanMachine, len(p.Machines)),
		Warnings: append([]string{}, p.Warnings...), Approvals: append([]string{}, p.Approvals...),
		ApprovedBy: s.ApprovedBy, Steps: make([]Step, len(p.Steps)),
	}
	for _, w := range p.Windows {
		out.Windows = append(out.Windows, Window(w))
	}
	for i, m := range p.Models {
		out.Models[i] = ModelRef(m)
	}
	for i, m := range p.Machines {
		out.Machines[i] = PlanMachine(m)
	}
	for i, step := range p.Steps {
		out.Steps[i] = stepOf(step, plan.StateOf(&p, &s, i))
	}
	return out
}

func stepOf(step plan.Step, st plan.StepState) Step {
	out := Step{
		ID: step.ID, Kind: step.Kind, Title: step.Title, Node: step.Node,
		Needs: append([]string{}, step.Needs...), Undoes: step.Undoes, Params: step.Params,
		Effects: make([]Effect, len(step.Effects)),
		Window:  step.Window, Since: Optional(st.Since),
		Attempts: step.Attempts, TimeoutSeconds: Seconds(step.Timeout), EstimateSeconds: Seconds(step.Estimate),
		Status: string(st.Status), Attempt: st.Attempt, Failures: st.Failures,
		StartedAt: Optional(st.StartedAt), FinishedAt: Optional(st.FinishedAt), NotBefore: Optional(st.NotBefore),
		Message: st.Message, Hint: st.Hint, Safety: step.Safety,
	}
	for i, e := range step.Effects {
		out.Effects[i] = Effect(e)
	}
	return out
}

// WaitsOf converts waits.
func WaitsOf(waits []plan.Wait) []Wait {
	out := make([]Wait, len(waits))
	for i, w := range waits {
		out[i] = Wait{
			Step: w.Step, Reason: w.Reason, Owner: w.Owner, Since: Optional(w.Since), Deadline: Optional(w.Deadline),
		}
	}
	return out
}

// EventsOf converts events.
func EventsOf(events []plan.Event) []Event {
	out := make([]Event, len(events))
	for i, e := range events {
		out[i] = Event{
			Plan: e.Plan, Seq: e.Seq, At: e.At.UTC(), Kind: string(e.Kind), Step: e.Step, Attempt: e.Attempt,
			By: e.By, Message: e.Message, Hint: e.Hint, NotBefore: Optional(e.NotBefore),
		}
	}
	return out
}

// StreamOf converts a part of the stream.
func StreamOf(p director.StreamPage) Stream {
	out := Stream{Items: make([]StreamEvent, len(p.Events)), Last: p.Last}
	for i, e := range p.Events {
		out.Items[i] = StreamEvent{
			ID: e.ID, At: e.At.UTC(), Source: e.Source, Kind: e.Kind, Name: e.Name, Cluster: e.Cluster, What: e.What,
			By:   e.By,
			Step: e.Step, Attempt: e.Attempt, Seq: e.Seq, Message: e.Message, Hint: e.Hint,
		}
	}
	if p.Gap != nil {
		out.Gap = &StreamGap{After: p.Gap.After, Through: p.Gap.Through}
	}
	return out
}

// Apply moves a plan on by an event of its stream, with the same rules as the director's own fold. An event that was
// seen already changes nothing.
func (p *Plan) Apply(e Event) error {
	if e.Seq <= p.LastEvent {
		return nil
	}
	s, doc := p.state()
	if err := s.Apply(e.domain()); err != nil {
		return err
	}
	*p = rebuild(*p, doc, s)
	return nil
}

func (e Event) domain() plan.Event {
	return plan.Event{
		Plan: e.Plan, Seq: e.Seq, At: e.At, Kind: plan.EventKind(e.Kind), Step: e.Step, Attempt: e.Attempt,
		By: e.By, Message: e.Message, Hint: e.Hint, NotBefore: required(e.NotBefore),
	}
}

func required(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// state returns the state of the run and the steps that it belongs to.
func (p *Plan) state() (plan.State, []Step) {
	s := plan.State{
		Status: plan.Status(p.Status), StartedAt: required(p.StartedAt), FinishedAt: required(p.FinishedAt),
		Message: p.Message, Hint: p.Hint, Seq: p.LastEvent, ApprovedBy: p.ApprovedBy,
		Steps: make([]plan.StepState, len(p.Steps)),
	}
	for i, st := range p.Steps {
		s.Steps[i] = plan.StepState{
			ID: st.ID, Status: plan.StepStatus(st.Status), Attempt: st.Attempt, Failures: st.Failures,
			StartedAt: required(st.StartedAt), FinishedAt: required(st.FinishedAt), NotBefore: required(st.NotBefore),
			Since:   required(st.Since),
			Message: st.Message, Hint: st.Hint,
		}
	}
	return s, p.Steps
}

func rebuild(p Plan, steps []Step, s plan.State) Plan {
	p.Status, p.Message, p.Hint, p.LastEvent = string(s.Status), s.Message, s.Hint, s.Seq
	p.StartedAt, p.FinishedAt, p.ApprovedBy = Optional(s.StartedAt), Optional(s.FinishedAt), s.ApprovedBy
	p.Steps = make([]Step, len(steps))
	p.StepsDone, p.StepsTotal = 0, 0
	for i, st := range steps {
		x := s.Steps[i]
		st.Status, st.Attempt, st.Failures = string(x.Status), x.Attempt, x.Failures
		st.Since = Optional(x.Since)
		st.StartedAt, st.FinishedAt, st.NotBefore = Optional(x.StartedAt), Optional(x.FinishedAt), Optional(x.NotBefore)
		st.Message, st.Hint = x.Message, x.Hint
		p.Steps[i] = st
		if len(st.Undoes) == 0 || x.Status != plan.Pending { // as plan.Count
			p.StepsTotal++
		}
		if x.Status.Satisfied() {
			p.StepsDone++
		}
	}
	return p
}
