package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/wire"
)

// A configuration learns the director's authorities only if it trusts the director by one of them, and keeps what else
// it trusts.
func TestTrustedWith(t *testing.T) {
	t.Parallel()
	server, err := pki.EnsureServer(t.TempDir(), []string{"director"}, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	former := server.CA()
	next, err := server.Next(pki.StageTrust)
	if err == nil {
		err = server.Follow(next)
	}
	if err != nil {
		t.Fatal(err)
	}
	both := server.CA()
	corp, err := pki.NewCA("corp")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ParseCert(former)
	if err != nil {
		t.Fatal(err)
	}
	pin := client.Fingerprint(server.Leaf())
	v := wire.DirectorAuthority{
		Trusted: both, Certificate: pin, Authorities: []wire.TrustedAuthority{{Fingerprint: client.Fingerprint(cert)}},
	}
	gone := v
	gone.Trusted = strings.TrimPrefix(both, former)
	for name, tt := range map[string]struct {
		c    config
		v    wire.DirectorAuthority
		want string
	}{
		"the machine's authorities": {config{}, v, ""},
		"another authority":         {config{CA: corp.Cert}, v, ""},
		"the former one":            {config{CA: former}, v, both},
		"and another":               {config{CA: corp.Cert + former}, v, both + corp.Cert},
		"the former one is gone":    {config{CA: both + corp.Cert}, gone, gone.Trusted + corp.Cert},
		"the authority is pinned":   {config{Fingerprint: client.Fingerprint(cert)}, v, both},
		"the certificate is pinned": {config{Fingerprint: pin}, v, both},
		"another is pinned":         {config{Fingerprint: "SHA256:00"}, v, ""},
	} {
		if got, err := trustedWith(tt.c, tt.v); err != nil || got != tt.want {
			t.Errorf("%s: it trusts\n%s\nwant\n%s\n%v", name, got, tt.want, err)
		}
	}
	broken := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	if _, err := trustedWith(config{CA: broken}, v); err == nil {
		t.Error("a certificate that cannot be read is taken")
	}
}
