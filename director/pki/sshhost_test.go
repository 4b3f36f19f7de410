package pki_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
)

// What an authority vouches for is the host key of one machine, and nothing else is taken for it.
func TestVouchForHost(t *testing.T) {
	t.Parallel()
	authority, err := pki.NewSSHAuthority()
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.NewSSHAuthority()
	if err != nil {
		t.Fatal(err)
	}
	const machine = "m1"
	record, err := authority.VouchForHost(machine, other.Public) // any key is a host key
	if err != nil {
		t.Fatal(err)
	}
	got, err := authority.VouchedHost(machine, record)
	if err != nil || got != strings.TrimSpace(other.Public) {
		t.Errorf("the host key is %q, want %q: %v", got, other.Public, err)
	}
	theirs, err := other.VouchForHost(machine, other.Public)
	if err != nil {
		t.Fatal(err)
	}
	user, err := authority.Issue(pki.SSHUser{
		ID: machine, Principals: []string{machine}, Until: time.Now().Add(time.Hour),
	}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	changed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(record))
	if err != nil {
		t.Fatal(err)
	}
	anotherKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(authority.Public))
	if err != nil {
		t.Fatal(err)
	}
	changed.(*ssh.Certificate).Key = anotherKey
	for name, text := range map[string]string{
		"nothing": "", "no certificate": other.Public, "of another authority": theirs, "of a person": user.Certificate,
		"with another key": string(ssh.MarshalAuthorizedKey(changed)),
	} {
		got, err := authority.VouchedHost(machine, text)
		if director.KindOf(err) != director.KindConflict || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := authority.VouchedHost("m2", record); director.KindOf(err) != director.KindConflict {
		t.Errorf("of another machine: %v", err)
	}
	if _, err := authority.VouchForHost(machine, "no key"); err == nil {
		t.Error("it vouches for what is no key")
	}
}
