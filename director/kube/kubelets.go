package kube

import (
	"bufio"
	"context"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// clientTTL is the metric in which a kubelet tells for how long its client certificate is good.
const clientTTL = "kubelet_certificate_manager_client_ttl_seconds"

// KubeletClientEnd returns when the client certificate ends with which the kubelet of the node comes to the API server. The kubelet itself is asked for it,
// through the API server. Errors: not_found if it does not say, unavailable if it does not answer.
func (c *Client) KubeletClientEnd(ctx context.Context, node string) (time.Time, error) {
	const op = "kube.kubelet_client_end"
	body, err := c.api.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("metrics").Stream(ctx)
	if err != nil {
		return time.Time{}, c.failed(op, err)
	}
	defer func() { _ = body.Close() }()
	left, ok, err := readTTL(body)
	if err != nil {
		return time.Time{}, c.failed(op, err)
	}
	if !ok {
		return time.Time{}, director.Errorf(director.KindNotFound, op, "the kubelet of %s does not tell how long its client certificate is good", node)
	}
	return time.Now().Add(left), nil
}

// readTTL finds the metric in the text, and false if it is not there or says that there is no certificate.
func readTTL(text io.Reader) (time.Duration, bool, error) {
	const longest = 1 << 20 // of a line
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		value, found := strings.CutPrefix(lines.Text(), clientTTL+" ")
		if !found {
			continue
		}
		seconds, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || math.IsInf(seconds, 0) || math.IsNaN(seconds) {
			return 0, false, nil
		}
		return time.Duration(seconds * float64(time.Second)), true, nil
	}
	return 0, false, lines.Err()
}
