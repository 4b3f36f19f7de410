package ansible

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzEvents reads lines that a node can shape, because a module's answer is in them. Each is refused or becomes one
// line of a log that is within its bounds, is JSON, and does not hold the run's secret.
func FuzzEvents(f *testing.F) {
	const secret = "correct-horse-battery"
	f.Add([]byte(`{"n":1,"type":"host","host":"m-1","status":"failed","msg":"token correct-horse-battery","rc":1}`))
	f.Add(
		[]byte(
			`{"n":2,"type":"stats","stats":{"m-1":{"ok":1,"changed":-1}},"cut":["msg","stdout"],"stdout":"` +
				strings.Repeat(`\u0000`, 900) + `"}`,
		),
	)
	f.Add([]byte(`{"n":3,"type":"diff","diff":"+ correct-horse-battery\n","path":"/tree/../x","cut":["diff"]}`))
	f.Add([]byte(`{"type":7}`))
	f.Add([]byte("\xff\xfe{"))
	vars, err := json.Marshal(map[string]string{"password": secret})
	if err != nil {
		f.Fatal(err)
	}
	redact, err := NewRedactor(vars)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := decode(line)
		if err != nil {
			return
		}
		e.sanitize(redact, "/tree")
		for _, text := range []string{e.Msg, e.Stdout, e.Stderr, e.Diff, e.Command} {
			if len(text) > keepText {
				t.Errorf("a text of %d bytes is kept", len(text))
			}
			if strings.Contains(text, secret) {
				t.Errorf("the secret stays in %q", text)
			}
		}
		out, err := logLine(e)
		if err != nil {
			t.Fatal(err)
		}
		if len(out) > maxLogLine || bytes.Count(out, []byte("\n")) != 1 || !json.Valid(out) {
			t.Errorf("the log's line of %d bytes is too long, more than one or no JSON", len(out))
		}
		_ = e.String()
	})
}
