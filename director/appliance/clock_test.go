package appliance

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/director-kaas/kaas/director"
)

// Only the first start waits, and only if there is a server to wait for. What chrony itself does is in the part "clock"
// of images/director/test.sh.
func TestTheFirstStartWaitsForTheTime(t *testing.T) {
	programs := t.TempDir()
	asked := filepath.Join(programs, "asked")
	t.Setenv("PATH", programs+":/bin")
	for name, c := range map[string]struct {
		servers []string
		started bool
		answer  string
		waits   bool
		fails   bool
	}{
		"no server":        {answer: "0"},
		"started before":   {servers: []string{"192.0.2.123"}, started: true, answer: "0"},
		"the time is set":  {servers: []string{"192.0.2.123"}, answer: "0", waits: true},
		"no server has it": {servers: []string{"192.0.2.123"}, answer: "1", waits: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := Place{Data: t.TempDir(), User: -1}
			script := "#!/bin/sh\n: >" + asked + "\nexit " + c.answer + "\n"
			err := os.WriteFile(filepath.Join(programs, "chronyc"), []byte(script), 0o700)
			if err == nil && c.started {
				if err = os.MkdirAll(p.data("director/tls"), 0o700); err == nil {
					err = os.WriteFile(p.data("director/tls/ca.crt"), nil, 0o600)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			err = settleClock(t.Context(), p, Setup{NTP: c.servers})
			if (err != nil) != c.fails || err != nil && director.KindOf(err) != director.KindUnavailable {
				t.Errorf("error = %v, want one: %v", err, c.fails)
			}
			if err := os.Remove(asked); (err == nil) != c.waits {
				t.Errorf("chrony was asked: %v, want %v", err == nil, c.waits)
			}
		})
	}
}
