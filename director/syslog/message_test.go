package syslog

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/chain"
)

var at = time.Date(2026, 11, 24, 3, 4, 5, 6000, time.FixedZone("", 3600))

func TestMessage(t *testing.T) {
	t.Parallel()
	o := Origin{Host: "director 1", Version: `v1"]\`, Facility: LogAudit, Process: 7}
	for name, c := range map[string]struct {
		entry chain.Entry
		want  string
	}{
		"a change": {
			chain.Entry{
				ID: 9, Seq: 8, At: at, Actor: "ann", Action: "set credentials", Object: "Credentials/x",
				Outcome: chain.OK, Source: "10.0.0.1", Request: "r",
			},
			"<110>1 2026-11-24T02:04:05.000006Z director-1 director 7 set-credentials [meta sequenceId=\"8\"]" +
				"[origin software=\"director\" swVersion=\"v1\\\"\\]\\\\\"] \xEF\xBB\xBF" +
				`{"id":9,"seq":8,"at":"2026-11-24T03:04:05.000006+01:00","actor":"ann",` +
				`"action":"set credentials","object":"Credentials/x","outcome":"ok","source":"10.0.0.1","request":"r"}`,
		},
		"a refusal": {
			chain.Entry{Seq: 1 << 31, At: at, Action: "", Object: "a\nb\x00<>", Outcome: chain.Refused},
			"<108>1 2026-11-24T02:04:05.000006Z director-1 director 7 - [meta sequenceId=\"0\"]" +
				"[origin software=\"director\" swVersion=\"v1\\\"\\]\\\\\"] \xEF\xBB\xBF" +
				`{"id":0,"seq":2147483648,"at":"2026-11-24T03:04:05.000006+01:00","actor":"","action":"",` +
				`"object":"a\nb\u0000\u003c\u003e","outcome":"refused"}`,
		},
	} {
		if diff := cmp.Diff(c.want, string(o.Message(c.entry))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	long := o.Message(chain.Entry{At: at, Diff: strings.Repeat("é\n", 4000)})
	if len(long) > maxMessage || !strings.Contains(string(long), "left out: too long") {
		t.Errorf("a long message has %d bytes", len(long))
	}
	if got := string(frame([]byte("abc"))); got != "3 abc" {
		t.Error(got)
	}
	gap := string(o.Gap(3, 9, at))
	if !strings.Contains(gap, `"after_seq":3,"before_seq":9`) || !strings.Contains(gap, " gap [meta") {
		t.Error(gap)
	}
}

// header is the form of RFC 5424 for what we send.
var header = regexp.MustCompile("^<\\d{1,3}>1 \\S+ [!-~]{1,255} director \\d+ [!-~]{1,32} " +
	"\\[meta sequenceId=\"\\d{1,10}\"\\]\\[origin software=\"director\" " +
	"swVersion=\"(?:[^\"\\\\\\]]|\\\\[\"\\\\\\]])*\"\\] \xEF\xBB\xBF\\{[^\\n]*\\}$")

func FuzzMessage(f *testing.F) {
	f.Add("ann", "log in", "User/ann", "host", "v1", "diff\n+x")
	f.Add("\xff]\"", "\n<14>1 forged", "\u202e", "", "]", strings.Repeat("\x01", 9000))
	f.Fuzz(func(t *testing.T, actor, action, object, host, version, diff string) {
		e := chain.Entry{Actor: actor, Action: action, Object: object, Diff: diff, At: at, Seq: 5}.Bounded()
		m := Origin{Host: host, Version: version, Facility: LogAudit}.Message(e)
		if !header.Match(m) || !utf8.Valid(m) || len(m) > maxMessage {
			t.Errorf("%d bytes: %q", len(m), m)
		}
	})
}
