package schedule

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Job is work that schedules name.
type Job struct {
	Name  string // as documents write it
	About string // one sentence for people
	// Repeatable says that a run whose director died half way may be made again. A job that is not is left to the next
	// slot.
	Repeatable bool
	// Prepare reads the parameters of a document and returns the work with them. It reports every parameter that is
	// wrong, and does nothing else: documents are checked with it before they are stored.
	Prepare func(p *Params) Work
}

// Work does what one run is for. It returns soon after ctx is done; then the run counts as interrupted whatever it
// returns.
type Work func(ctx context.Context, run director.ScheduleRun) (Result, error)

// Result is what a run leaves in its record.
type Result struct {
	Message string // what was done, for people
	Plan    string // id of the plan that it made; empty if none
}

// Params reads the parameters of a job. Each is read once; an unread parameter is an error.
type Params struct {
	values map[string]any
	known  []string
	fields []director.Field
}

// NewParams returns the parameters of a document.
func NewParams(values map[string]any) *Params { return &Params{values: values} }

func (p *Params) fail(key, hint, format string, args ...any) {
	p.fields = append(p.fields, director.Field{
		Path: "spec.job.params." + key, Msg: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (p *Params) take(key string) (any, bool) {
	p.known = append(p.known, key)
	v, ok := p.values[key]
	return v, ok
}

// Span returns a parameter such as 720h, or d, or otherwise if it is not given. Below least is a mistake.
func (p *Params) Span(key string, otherwise, least time.Duration) time.Duration {
	v, ok := p.take(key)
	if !ok {
		return otherwise
	}
	text, _ := v.(string)
	d, err := ParseSpan(text)
	switch {
	case err != nil:
		p.fail(key, "such as 30d or 12h", "%v is not a time span", v)
	case d < least:
		p.fail(key, "at least "+least.String(), "%s is too short", text)
	}
	return d
}

// ParseSpan reads a time span as Go writes it, or a number of days such as 30d.
func ParseSpan(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		if _, err := fmt.Sscanf(days+"\n", "%d\n", &n); err != nil || n < 0 || n > 36500 {
			return 0, fmt.Errorf("%q is not a number of days", text)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return time.ParseDuration(text)
}

// Number returns a whole number from least to most, or otherwise if it is not given.
func (p *Params) Number(key string, otherwise, least, most int) int {
	v, ok := p.take(key)
	if !ok {
		return otherwise
	}
	n := math.NaN()
	switch v := v.(type) { // documents come from YAML, and back from the database as JSON
	case int:
		n = float64(v)
	case int64:
		n = float64(v)
	case float64:
		n = v
	}
	if n != math.Trunc(n) || n < float64(least) || n > float64(most) {
		p.fail(key, fmt.Sprintf("a whole number from %d to %d", least, most), "%v is not allowed", v)
		return otherwise
	}
	return int(n)
}

// Flag returns true or false, and false if it is not given.
func (p *Params) Flag(key string) bool {
	v, ok := p.take(key)
	flag, isFlag := v.(bool)
	if ok && !isFlag {
		p.fail(key, "true or false", "%v is not allowed", v)
	}
	return flag
}

// Text returns a parameter that must be given and not be empty.
func (p *Params) Text(key string) string {
	v, _ := p.take(key)
	text, ok := v.(string)
	if !ok || text == "" {
		p.fail(key, "", "is missing, or not a text")
	}
	return text
}

// problems returns every mistake, once all parameters were asked for.
func (p *Params) problems() []director.Field {
	for key := range p.values {
		if !slices.Contains(p.known, key) {
			hint := "this job has no parameters"
			if len(p.known) > 0 {
				hint = "known: " + strings.Join(p.known, ", ")
			}
			p.fail(key, hint, "is not a parameter of the job")
		}
	}
	slices.SortFunc(p.fields, func(a, b director.Field) int { return strings.Compare(a.Path, b.Path) })
	return p.fields
}
