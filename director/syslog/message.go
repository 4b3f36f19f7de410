// Package syslog sends the audit trail to a log server: RFC 5424 messages over TLS (RFC 5425).
package syslog

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director/chain"
)

// Facility is where messages come from, as RFC 5424 numbers it.
type Facility int

// LogAudit is the usual facility.
const LogAudit Facility = 13

// The severities of messages.
const (
	severityWarning = 4
	severityInfo    = 6
)

// maxMessage is what every receiver should take (RFC 5424, section 6.1).
const maxMessage = 8192

// Origin is who sends.
type Origin struct {
	Host     string // name of this machine
	Version  string // of the director
	Facility Facility
	Process  int
}

// Message renders an entry. Its text is the JSON of the entry, as exports have it. A difference that makes it too long
// for receivers is left out, and the text says so.
func (o Origin) Message(e chain.Entry) []byte {
	severity := severityInfo
	if e.Outcome == chain.Refused || e.Outcome == chain.Failed {
		severity = severityWarning
	}
	m := o.render(severity, e.At, e.Action, e.Seq, e)
	if len(m) > maxMessage && e.Diff != "" {
		e.Diff = "left out: too long for a message; see directorctl audit list"
		m = o.render(severity, e.At, e.Action, e.Seq, e)
	}
	return m
}

// Gap renders that the entries between two numbers of the chain were archived before they were sent.
func (o Origin) Gap(after, before int64, at time.Time) []byte {
	return o.render(severityWarning, at, "gap", before, map[string]any{
		"action": "gap", "after_seq": after, "before_seq": before,
		"problem": "entries were archived before they were sent; the archives of the director have them",
	})
}

func (o Origin) render(severity int, at time.Time, action string, seq int64, body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		text = []byte(`{"problem":"the entry cannot be written"}`) // texts and numbers alone: never
	}
	return fmt.Appendf(nil, "<%d>1 %s %s director %d %s [meta sequenceId=\"%d\"][origin software=\"director\" "+
		"swVersion=\"%s\"] \xEF\xBB\xBF%s",
		int(o.Facility)*8+severity, at.UTC().Format("2006-01-02T15:04:05.000000Z"), word(o.Host, 255), o.Process,
		word(action, 32), seq%(1<<31), param(o.Version), text)
}

// word is a text as a field of the header: printable ASCII without spaces, or "-" for nothing.
func word(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r < '!' || r > '~':
			return -1
		}
		return r
	}, s)
	if s == "" {
		return "-"
	}
	return s[:min(len(s), most)]
}

// param is a text as the value of a parameter (RFC 5424, section 6.3.3), of at most 32 characters.
func param(s string) string {
	s = word(s, 32)
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, `]`, `\]`).Replace(s)
}

// frame is a message as TLS carries it (RFC 5425, section 4.3).
func frame(m []byte) []byte { return append([]byte(strconv.Itoa(len(m))+" "), m...) }
