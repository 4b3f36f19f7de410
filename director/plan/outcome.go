package plan

import (
	"errors"
	"time"
)

// What a step's error tells the engine. A plain error means: try again with backoff, within the step's attempts.

type instruction struct {
	err   error
	kind  EventKind
	after time.Duration
	text  string
	last  bool
	most  time.Duration
}

func (i *instruction) Error() string {
	if i.err == nil {
		return i.text
	}
	return i.err.Error()
}
func (i *instruction) Unwrap() error { return i.err }

// Abort returns an error that fails the step now: trying again cannot help.
func Abort(err error) error { return &instruction{err: err, kind: Aborted} }

// Park returns an error that keeps everything and waits for a person, who is shown the question.
func Park(err error, question string) error {
	return &instruction{err: err, kind: NeedsHuman, text: question}
}

// ParkLast returns an error that is tried again like a plain one, and waits for a person when the attempts are used up:
// what was out of reach is not broken, and may come back.
func ParkLast(err error, question string) error {
	return &instruction{err: err, kind: Retry, text: question, last: true}
}

// DefaultPatience is how long a step may be not ready, over all its tries in a row, before it waits for a person.
const DefaultPatience = 24 * time.Hour

// After returns an error that says: not ready yet, ask again in d. It costs no attempt. why is shown as the reason of
// the wait. After DefaultPatience a person is asked.
func After(d time.Duration, why string) error { return AfterWithin(DefaultPatience, d, why) }

// AfterWithin is After with another limit for the whole wait, for what may take longer without being wrong.
func AfterWithin(most, d time.Duration, why string) error {
	return &instruction{kind: NotReady, after: d, text: why, most: most}
}

// Interrupt returns an error that says: something outside of the step ended it half way. The step runs again and loses
// no attempt. Too many in a row wait for a person.
func Interrupt(err error) error { return &instruction{err: err, kind: Interrupted} }

// Outcome is what an error instructs.
type Outcome struct {
	Kind  EventKind     // Succeeded, Retry, NotReady, Interrupted, Aborted or NeedsHuman
	After time.Duration // for NotReady
	Most  time.Duration // for NotReady: how long the step may be not ready in all
	Text  string        // the reason or the question; empty if there is none but the error
	Last  EventKind     // for Retry: what it becomes when the attempts are used up, Aborted or NeedsHuman
}

// OutcomeOf returns what err instructs; nil means Succeeded and an error without an instruction means Retry.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Outcome{Kind: Succeeded}
	}
	if i, ok := errors.AsType[*instruction](err); ok {
		o := Outcome{Kind: i.kind, After: i.after, Most: i.most, Text: i.text, Last: Aborted}
		if i.last {
			o.Last = NeedsHuman
		}
		return o
	}
	return Outcome{Kind: Retry, Last: Aborted}
}
