package ldap

import (
	"testing"
	"time"

	"github.com/go-ldap/ldap/v3"
)

func TestDisabled(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		kind       Kind
		attributes map[string][]string
		want       bool
	}{
		"AD, well": {ActiveDirectory, map[string][]string{
			"userAccountControl": {"512"},
			"accountExpires":     {"0"},
		}, false},
		"AD, never expires": {
			ActiveDirectory,
			map[string][]string{"accountExpires": {"9223372036854775807"}},
			false,
		},
		"AD, disabled": {ActiveDirectory, map[string][]string{"userAccountControl": {"514"}}, true},
		"AD, expired in 2020": {
			ActiveDirectory,
			map[string][]string{"accountExpires": {"132223104000000000"}},
			true,
		},
		"AD, expires in 2030": {
			ActiveDirectory,
			map[string][]string{"accountExpires": {"135379296000000000"}},
			false,
		},
		"389, locked":             {Plain, map[string][]string{"nsaccountlock": {"true"}}, true},
		"OpenLDAP, locked":        {Plain, map[string][]string{"pwdAccountLockedTime": {"000001010000Z"}}, true},
		"OpenLDAP, for some time": {Plain, map[string][]string{"pwdAccountLockedTime": {"20261031000000Z"}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := disabled(tt.kind, ldap.NewEntry("uid=a", tt.attributes), now); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}
