// Package kubelet reads what kubelets say of themselves. A node is not trusted: whatever it answers is bounded.
package kubelet

import (
	"bufio"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// clientTTL is the metric in which a kubelet tells for how long its client certificate is good.
const clientTTL = "kubelet_certificate_manager_client_ttl_seconds"

// farthest bounds what a kubelet may say: no certificate lives for a century, and a duration could not hold much more.
const farthest = 100 * 365 * 24 * time.Hour

// ClientLeft returns how long the kubelet's client certificate is still good, as its metrics tell; negative if it has
// ended. It returns false if they do not tell, or tell what cannot be true of a certificate.
func ClientLeft(text io.Reader) (time.Duration, bool, error) {
	const longest = 1 << 20 // of a line
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		value, found := strings.CutPrefix(lines.Text(), clientTTL+" ")
		if !found {
			continue
		}
		seconds, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || math.IsNaN(seconds) || math.Abs(seconds) > farthest.Seconds() {
			return 0, false, nil
		}
		return time.Duration(seconds * float64(time.Second)), true, nil
	}
	return 0, false, lines.Err()
}
