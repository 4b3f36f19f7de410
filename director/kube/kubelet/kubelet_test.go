package kubelet

import (
	"strings"
	"testing"
	"time"
)

// A kubelet without a certificate of its own says +Inf.
func TestClientLeft(t *testing.T) {
	t.Parallel()
	const help = "# HELP kubelet_certificate_manager_client_ttl_seconds [ALPHA] Gauge of the TTL\n# TYPE " +
		"kubelet_certificate_manager_client_ttl_seconds gauge\n"
	for name, tt := range map[string]struct {
		text string
		want time.Duration
		ok   bool
	}{
		"days": {
			"go_info 1\n" + help + "kubelet_certificate_manager_client_ttl_seconds 8.64e+06\nother 2\n",
			100 * 24 * time.Hour, true,
		},
		"ended":   {help + "kubelet_certificate_manager_client_ttl_seconds -60\n", -time.Minute, true},
		"none":    {help + "kubelet_certificate_manager_client_ttl_seconds +Inf\n", 0, false},
		"not yet": {"go_info 1\n", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok, err := ClientLeft(strings.NewReader(tt.text))
			if got != tt.want || ok != tt.ok || err != nil {
				t.Errorf("got %s, %t, %v", got, ok, err)
			}
		})
	}
}
