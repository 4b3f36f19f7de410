package pki_test

import (
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
)

// A certificate opens what its principals name until its end, and nothing for another authority.
func TestSSHUser(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a, err := pki.NewSSHAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Issue(
		pki.SSHUser{ID: "director d1 p1/s1", Principals: []string{"cluster-c1"}, Until: now.Add(time.Hour)}, now,
	)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := c.Signer()
	if err != nil {
		t.Fatal(err)
	}
	cert := signer.PublicKey().(*ssh.Certificate)
	if cert.KeyId != "director d1 p1/s1" || cert.Serial == 0 || len(cert.Extensions) != 0 ||
		len(cert.CriticalOptions) != 0 {
		t.Errorf("certificate %+v", cert)
	}
	checker := func(at time.Time, public string) *ssh.CertChecker {
		return &ssh.CertChecker{Clock: func() time.Time { return at }, IsUserAuthority: func(k ssh.PublicKey) bool {
			want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(public))
			return err == nil && string(want.Marshal()) == string(k.Marshal())
		}}
	}
	for name, tt := range map[string]struct {
		at        time.Time
		principal string
		good      bool
	}{
		"now":                             {now, "cluster-c1", true},
		"by a clock that is hours behind": {now.Add(-14 * time.Hour), "cluster-c1", true},
		"after its end":                   {now.Add(time.Hour + time.Second), "cluster-c1", false},
		"for another cluster":             {now, "cluster-c2", false},
	} {
		if err := checker(tt.at, a.Public).CheckCert(tt.principal, cert); (err == nil) != tt.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	other, err := pki.NewSSHAuthority()
	if err != nil {
		t.Fatal(err)
	}
	if checker(now, other.Public).IsUserAuthority(cert.SignatureKey) {
		t.Error("it is signed by another authority too")
	}
	for name, u := range map[string]pki.SSHUser{
		"of everybody": {Until: now.Add(time.Hour)}, "that has ended": {Principals: []string{"x"}, Until: now},
	} {
		if _, err := a.Issue(u, now); director.KindOf(err) != director.KindInvalid {
			t.Errorf("a certificate %s: %v", name, err)
		}
	}
}
