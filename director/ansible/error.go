package ansible

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Class says how a run ended that did not succeed.
type Class string

// The classes. Where several apply, the one named first here wins, except that a failed task outweighs an unreachable
// host.
const (
	ClassCancelled Class = "cancelled" // the caller's context was cancelled
	ClassTimeout   Class = "timeout"   // Play.Timeout or the caller's deadline passed
	// something that is neither the play nor its hosts ended it: a signal, or a silence of the director.
	ClassInterrupted Class = "interrupted"
	ClassUnreachable Class = "unreachable" // every host that stopped did so because it could not be reached
	ClassFailed      Class = "failed"      // a task failed on a host, or the director's machine failed the run
	ClassBroken      Class = "broken"      // Ansible did not get to run the play: bad input, playbook or installation
)

// PlayError is the cause in every error of Play. The text for people is in the director.Error around it; this is for
// deciding what to do.
type PlayError struct {
	Class    Class
	Groups   []Group  // for ClassFailed and ClassUnreachable, and what had failed before a cancel or a timeout
	Waiting  []string // for ClassTimeout and ClassCancelled: hosts that had not answered
	Output   []string // for ClassBroken and ClassInterrupted: the last lines of ansible-playbook's standard error
	ExitCode int
	// Err is the context's error for ClassCancelled and ClassTimeout, and for ClassBroken an error of the system:
	// ENOSPC where the director's disk was full. Otherwise it is nil.
	Err error
}

// Error describes the class. It holds nothing of what the run printed.
func (e *PlayError) Error() string {
	s := fmt.Sprintf("run %s (exit code %d)", e.Class, e.ExitCode)
	if c := e.Cause(); c != nil {
		s += ", known cause " + c.ID
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (e *PlayError) Unwrap() error { return e.Err }

// Cause returns the cause to act on: of the known causes of all groups the one that is hardest to remove, or nil.
func (e *PlayError) Cause() *Cause {
	weight := map[Remedy]int{Time: 1, Transient: 2, Person: 3, NotByTrying: 4}
	var hardest *Cause
	for _, g := range e.Groups {
		if g.Cause != nil && (hardest == nil || weight[g.Cause.Class] > weight[hardest.Class]) {
			hardest = g.Cause
		}
	}
	return hardest
}

// Permanent reports whether trying the same play again cannot help: it never started, or it failed for a known cause
// that does not pass by itself and cannot be removed from outside. Return plan.Abort for such an error.
func Permanent(err error) bool {
	e, ok := errors.AsType[*PlayError](err)
	if !ok {
		return false
	}
	if e.Class == ClassBroken {
		return true
	}
	c := e.Cause()
	return stopped(e.Class) && c != nil && c.Class == NotByTrying
}

// Question returns what to ask a person if something must be repaired before the same play can succeed, and false
// otherwise. Return plan.Park for such an error.
func Question(err error) (string, bool) {
	e, ok := errors.AsType[*PlayError](err)
	if !ok || !stopped(e.Class) {
		return "", false
	}
	c := e.Cause()
	if c == nil || c.Class != Person {
		return "", false
	}
	var hosts []string
	for _, g := range e.Groups {
		if g.Cause != nil && g.Cause.ID == c.ID {
			hosts = append(hosts, g.Hosts...)
		}
	}
	sort.Strings(hosts)
	return fmt.Sprintf("On %s: %s. Then: %s.", list(slices.Compact(hosts)), c.Explain, c.Hint), true
}

// Later returns what a play waits for if it only came too early, and false otherwise. Return plan.AfterWithin for such
// an error.
func Later(err error) (string, bool) {
	e, ok := errors.AsType[*PlayError](err)
	if !ok || e.Class != ClassFailed {
		return "", false
	}
	for _, g := range e.Groups { // all hosts that failed came too early
		if g.Cause == nil || g.Cause.Class != Time {
			return "", false
		}
	}
	c := e.Cause()
	if c == nil {
		return "", false
	}
	return c.Explain, true
}

func stopped(c Class) bool { return c == ClassFailed || c == ClassUnreachable }

const (
	hintUnreachable = "see whether the machine runs and the director reaches its address; then retry the step"
	hintFailed      = "read the run's log for the whole output, remove the cause, then retry the step"
	hintBroken      = "this is not about the machines: correct the playbooks, the inventory or the installation of " +
		"Ansible"
	hintCancelled   = "retry the step to continue; the playbooks may run again at any time"
	hintInterrupted = "the step runs again; if it repeats, see whether the director's machine ran out of memory (dmesg)"
	hintTimeout     = "look at the machines that did not answer; if they are only slow, allow the step more time"
)

// verdict is what the end of a process is judged by.
type verdict struct {
	ctx     context.Context //nolint:containedctx // its cause is part of the verdict
	timeout time.Duration
	limit   []string
	exit    int
	signal  string   // what ended the process, if a signal did
	output  []string // the last lines of standard error
	full    bool     // the director's own disk had no room for the run
	causes  []Cause
}

const opPlay = "ansible.play"

// judge returns nil for a run that succeeded, and otherwise a director.Error around a PlayError.
func judge(v verdict, f *fold, r *Result) error {
	e := &PlayError{Groups: group(r.Failures, v.causes), ExitCode: v.exit}
	if err := v.ctx.Err(); err != nil && (v.exit != 0 || !f.ended) {
		return interrupted(v, f, e, err)
	}
	if why := v.ended(); why != "" {
		// What failed by then may have failed because its helpers were ended first.
		e.lost(ClassInterrupted, v)
		return &director.Error{Kind: director.KindUnavailable, Op: opPlay, Msg: why, Hint: hintInterrupted, Err: e}
	}
	failed := slices.ContainsFunc(r.Failures, func(x Failure) bool { return !x.Unreachable })
	// Also where the events of the failures themselves were lost.
	unreachable := len(r.Failures) > 0
	for _, s := range r.Stats {
		failed = failed || s.Failed > 0
		unreachable = unreachable || s.Unreachable > 0
	}
	switch {
	case failed:
		e.Class = ClassFailed
		return &director.Error{
			Kind: director.KindInternal, Op: opPlay, Msg: describe(e.Groups, r.Stats, hint(e, hintFailed)),
			Hint: hint(e, hintFailed), Err: e,
		}
	case unreachable:
		e.Class = ClassUnreachable
		return &director.Error{
			Kind: director.KindUnavailable, Op: opPlay, Msg: describe(e.Groups, r.Stats, hint(e, hintUnreachable)),
			Hint: hint(e, hintUnreachable), Err: e,
		}
	case v.exit != 0 && f.playing:
		e.lost(ClassBroken, v)
		return brokenError(e, "the playbook stopped before its end: "+complaint(v.output, v.exit))
	case v.exit != 0:
		e.lost(ClassBroken, v)
		return brokenError(e, "the playbook could not be started: "+complaint(v.output, v.exit))
	case !f.ended && f.playing:
		// It succeeded: 0 is the one exit code that is not ambiguous. The last events are missing.
		r.Lost++
	case !f.ended:
		e.Class, e.Output = ClassBroken, v.output
		return brokenError(
			e, "ansible-playbook told nothing about its run: the callback plugin director_events did not work",
		)
	}
	return nil
}

// What ansible-playbook prints when it did not end by itself and was not ended by a signal either.
var (
	// the callback plugin's words.
	leashTorn  = regexp.MustCompile(`^The director (is gone|was silent for .*): the run ends itself\.$`)
	workerDead = "A worker was found in a dead state" // most often for want of memory
)

// ended says what ended the process from outside, or "": a signal that is not ours, or the end of one of its workers.
func (v verdict) ended() string {
	if v.signal != "" {
		return "ansible-playbook was ended by the signal " + v.signal
	}
	if v.exit == 0 {
		return ""
	}
	for _, line := range v.output {
		if leashTorn.MatchString(line) {
			return "ansible-playbook ended itself: " + line
		}
		if strings.Contains(line, workerDead) {
			return "a worker of ansible-playbook was ended"
		}
	}
	return ""
}

// lost makes e the error of a run that Ansible could not finish. Where the director's disk is full, its cause says so:
// plans wait for space then.
func (e *PlayError) lost(class Class, v verdict) {
	e.Class, e.Output = class, v.output
	if v.full {
		e.Err = syscall.ENOSPC
	}
}

// outOfRoom tells whether what ansible-playbook printed, or what befell the run's log, says that the director's disk is
// full.
func outOfRoom(log error, output []string) bool {
	return errors.Is(log, syscall.ENOSPC) || slices.ContainsFunc(output, func(line string) bool {
		return strings.Contains(strings.ToLower(line), "no space left on device")
	})
}

func interrupted(v verdict, f *fold, e *PlayError, err error) error {
	e.Err = err
	e.Waiting = f.pending(v.limit)
	where := ""
	if f.task != "" {
		where = fmt.Sprintf(" in task '%s'", f.task)
	}
	if len(e.Waiting) > 0 {
		where += ", waiting for " + list(e.Waiting)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Class = ClassTimeout
		after := ""
		if v.timeout > 0 {
			after = " after " + v.timeout.String()
		}
		return &director.Error{
			Kind: director.KindUnavailable, Op: opPlay, Msg: "the run was ended" + after + where,
			Hint: hint(e, hintTimeout), Err: e,
		}
	}
	e.Class = ClassCancelled
	return &director.Error{
		Kind: director.KindUnavailable, Op: opPlay, Msg: "the run was cancelled" + where, Hint: hintCancelled, Err: e,
	}
}

func brokenError(e *PlayError, msg string) error {
	return &director.Error{Kind: director.KindInternal, Op: opPlay, Msg: msg, Hint: hintBroken, Err: e}
}

// invalid returns the error for a play that is refused before anything is done.
func invalid(format string, args ...any) error {
	return &director.Error{
		Kind: director.KindInvalid, Op: opPlay, Msg: fmt.Sprintf(format, args...),
		Err: &PlayError{Class: ClassBroken, ExitCode: -1},
	}
}

// setUp returns the error for a run whose directory or process could not be made.
func setUp(class Class, err error, format string, args ...any) *director.Error {
	return &director.Error{
		Kind: director.KindInternal, Op: opPlay, Msg: fmt.Sprintf(format, args...),
		Err: &PlayError{Class: class, ExitCode: -1, Err: err},
	}
}

func hint(e *PlayError, otherwise string) string {
	if c := e.Cause(); c != nil && c.Hint != "" {
		return c.Hint
	}
	return otherwise
}

// describe renders the first groups for people: a line each, and below it the command, the lines of output that matter
// and what to do if that is not what the whole run's hint says.
func describe(groups []Group, stats map[string]HostStats, overall string) string {
	if len(groups) == 0 {
		var hosts []string
		for h, s := range stats {
			if s.Failed+s.Unreachable > 0 {
				hosts = append(hosts, h)
			}
		}
		return fmt.Sprintf("%s: a task failed, and the event that says which is missing", list(hosts))
	}
	const most = 3
	var lines []string
	for _, g := range groups[:min(len(groups), most)] {
		lines = append(lines, g.String())
		lines = append(lines, g.details()...)
		if g.Cause != nil && g.Cause.Hint != "" && g.Cause.Hint != overall {
			lines = append(lines, "  next: "+g.Cause.Hint)
		}
	}
	if more := len(groups) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d other failures; the run's log has them", more))
	}
	return strings.Join(lines, "\n")
}

// empty are messages of modules that only say that there is more in the output.
var empty = regexp.MustCompile(
	`(?i)^(non-zero return code|MODULE FAILURE\b.*|All items completed|One or more items failed|)$`,
)

// connecting is what ansible-core puts before the words of ssh.
var connecting = regexp.MustCompile(`^(Failed to connect to the host via ssh: ` +
	`|Data could not be sent to remote host "[^"]*"\. Make sure this host can be reached over ssh: )`)

// brief is what a failure says, in at most a few hundred bytes.
func brief(f Failure) string {
	const most = 400
	msg := strings.TrimSpace(connecting.ReplaceAllString(f.Msg, ""))
	first, _, _ := strings.Cut(msg, "\n")
	if empty.MatchString(strings.TrimSpace(first)) {
		// The reason is usually in the last lines that sound like one.
		var all, reasons []string
		for line := range strings.SplitSeq(strings.TrimSpace(f.Tail), "\n") {
			line = strings.Join(strings.Fields(line), " ")
			if line == "" || boilerplate.MatchString(line) {
				continue
			}
			all = append(all, line)
			if telling.MatchString(line) {
				reasons = append(reasons, line)
			}
		}
		if len(reasons) == 0 {
			reasons = all
		}
		if tail := strings.Join(reasons[max(len(reasons)-3, 0):], " "); tail != "" {
			return clip(tail, most)
		}
	}
	if msg == "" {
		return "it gave no reason"
	}
	return clip(strings.Join(strings.Fields(msg), " "), most)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return shorten(s, n-3, false) + "..."
}

// complaint picks what ansible-playbook says is wrong from its standard error.
func complaint(output []string, exit int) string {
	const most = 600
	for i, line := range output {
		msg, ok := strings.CutPrefix(line, "ERROR")
		if !ok {
			continue
		}
		msg = strings.TrimLeft(msg, "!: ")
		// What is wrong with a file and where is said some lines below, before it is quoted.
		for j, more := range output[i+1:] {
			switch {
			case strings.HasPrefix(more, "The offending line"):
				return clip(msg, most)
			case strings.HasPrefix(more, "Syntax Error"):
				msg = more
				if next := i + 1 + j + 1; next < len(output) {
					msg = strings.TrimRight(more, ".") + ": " + strings.TrimSpace(output[next])
				}
			case strings.HasPrefix(more, "The error appears to be in "):
				msg += ". " + strings.TrimSuffix(more, ", but may")
			}
		}
		return clip(msg, most)
	}
	for _, line := range slices.Backward(output) {
		if strings.TrimSpace(line) != "" {
			return clip(strings.TrimSpace(line), most)
		}
	}
	return fmt.Sprintf("it printed no reason and exited with %d", exit)
}
