package vsphere

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// A host is trusted by a SHA-256 alone, whatever vCenter tells of it.
func TestHostPin(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	cert := s.Certificate()
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	want := soap.ThumbprintSHA256(cert)
	for name, tt := range map[string]struct {
		device types.HttpNfcLeaseDeviceUrl
		want   string
	}{
		"certificate": {types.HttpNfcLeaseDeviceUrl{SslCertificate: text}, want},
		"SHA-256":     {types.HttpNfcLeaseDeviceUrl{SslThumbprint: want}, want},
		"SHA-1":       {types.HttpNfcLeaseDeviceUrl{SslThumbprint: soap.ThumbprintSHA1(cert)}, ""},
		"nothing":     {types.HttpNfcLeaseDeviceUrl{}, ""},
		"no certificate": {types.HttpNfcLeaseDeviceUrl{
			SslCertificate: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
			SslThumbprint:  soap.ThumbprintSHA1(cert),
		}, ""},
	} {
		if got := hostPin(tt.device); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	cfg := Config{URL: "https://vc.example", Thumbprint: soap.ThumbprintSHA1(cert)}
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "thumbprint: ") {
		t.Errorf("a SHA-1 is taken: %v", err)
	}
}
