package kubelet

import (
	"strings"
	"testing"
)

// FuzzClientLeft reads a kubelet's answer. A node that lies can at most hide its certificate's end, and not move it out
// of the calendar.
func FuzzClientLeft(f *testing.F) {
	f.Add(clientTTL + " 3.1e+07\n")
	f.Add("# TYPE x gauge\n" + clientTTL + " +Inf\n")
	f.Add(clientTTL + " 1e300\n")
	f.Add(clientTTL + " -1e300\n")
	f.Add(clientTTL + " \x00\n" + strings.Repeat("x", 70000))
	f.Fuzz(func(t *testing.T, text string) {
		left, ok, err := ClientLeft(strings.NewReader(text))
		if !ok || err != nil {
			return
		}
		if left > farthest || left < -farthest {
			t.Errorf("%s are left", left)
		}
	})
}
