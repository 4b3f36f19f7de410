package cloudinit

import (
	"strings"
	"testing"
)

// FuzzParseReport reads what a node says of its first boot. A node can say anything: it must not be able to point at a
// log elsewhere.
func FuzzParseReport(f *testing.F) {
	f.Add("busy\n")
	f.Add("01-setup 0 300\n02-disk 124 60 dGFpbA==\n03-last none 60\n04-now running 60")
	f.Add("../../etc/shadow 1 60")
	f.Add("01-a 99999999999999999999 1")
	f.Add("01-a 1 9223372036854775807")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseReport(text)
		if err != nil {
			return
		}
		for _, s := range r.Scripts {
			if file, ok := strings.CutPrefix(s.Log, FirstBootDir+"/"); !ok || strings.Contains(file, "/") {
				t.Errorf("the log of %q is outside of %s: %s", s.Name, FirstBootDir, s.Log)
			}
			if s.Limit < 0 {
				t.Errorf("%q has a limit of %s", s.Name, s.Limit)
			}
			if s.Ended && !s.Ran {
				t.Errorf("%q ended and never ran", s.Name)
			}
			_ = s.String()
		}
	})
}
