package director

import (
	"errors"
	"fmt"
	"strings"
)

// Kind classifies an Error for its callers: the API maps it to an HTTP status, the commands to an exit code. The set is
// closed; a new kind needs a row in both tables, and a test fails until it has them.
type Kind string

// The kinds, from "the caller can mend it" to "only we can".
const (
	KindInvalid         Kind = "invalid"         // the input is wrong; Fields names where
	KindUnauthenticated Kind = "unauthenticated" // who is asking is not known
	KindForbidden       Kind = "forbidden"       // who is asking may not
	KindNotFound        Kind = "not_found"       // what was named does not exist
	KindConflict        Kind = "conflict"        // it exists already, or someone else holds it
	KindStale           Kind = "stale"           // it has changed since the caller looked at it
	KindExhausted       Kind = "exhausted"       // a pool, a quota, a disk or a rate is used up
	KindUnavailable     Kind = "unavailable"     // another system does not answer; a later try may work
	KindInternal        Kind = "internal"        // a defect or a broken installation
)

// Kinds returns every kind in a fixed order. Tables that map kinds are tested against it.
func Kinds() []Kind {
	return []Kind{
		KindInvalid, KindUnauthenticated, KindForbidden, KindNotFound,
		KindConflict, KindStale, KindExhausted, KindUnavailable, KindInternal,
	}
}

// Error is the one error type that crosses rooms. Msg and Hint are shown to people, so they hold no secret and no
// stack; Err is the cause, logged and never rendered.
type Error struct {
	Kind   Kind
	Op     string  // room.verb, such as "libvirt.clone"
	Msg    string  // what is wrong, in a sentence without a final stop
	Hint   string  // what to do next; may be empty
	Fields []Field // for KindInvalid: every place that is wrong, not only the first
	Holder *Holder // for KindConflict: who is in the way, if it is a plan
	Err    error   // the cause; may be nil
}

// Field is one wrong place in an input.
type Field struct {
	Path     string // spec.workers[0].memory, or file:line:column: spec...
	Document string // that it is in, as Kind/name, if it is known apart from Path
	Msg      string // what is wrong there
	Hint     string // what would be right; may be empty
}

// String renders the place, what is wrong and what would be right, in one line.
func (f Field) String() string {
	var b strings.Builder
	if f.Path != "" {
		b.WriteString(f.Path)
		b.WriteString(": ")
	}
	b.WriteString(f.Msg)
	if f.Hint != "" {
		fmt.Fprintf(&b, " (%s)", f.Hint)
	}
	return b.String()
}

// Error renders Op, Msg, the fields and the cause for logs. People are shown Msg, Hint and Fields instead.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op)
		b.WriteString(": ")
	}
	b.WriteString(e.Msg)
	for _, f := range e.Fields {
		b.WriteString("; ")
		b.WriteString(f.String())
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the outermost Error in err's chain, and KindInternal when there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindInternal
}

// HintOf returns the first hint that is not empty in err's chain.
func HintOf(err error) string {
	for err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}

// FieldsOf returns every place that is wrong in the input, as the outermost Error in err's chain names them.
func FieldsOf(err error) []Field {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Fields
	}
	return nil
}

// MessageOf returns what people are shown of err: Msg of the outermost Error in its chain, or the whole text if there
// is none.
func MessageOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Msg
	}
	return err.Error()
}

// Errorf returns an Error of the kind with a formatted message. A %w verb's operand becomes its cause.
func Errorf(kind Kind, op, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Op: op, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint sets what to do next and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// Invalid returns nil for no fields, and otherwise one Error that names them all.
func Invalid(op, msg string, fields []Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &Error{Kind: KindInvalid, Op: op, Msg: msg, Fields: fields}
}
