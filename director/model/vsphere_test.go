package model

import "testing"

// A provider names credentials if it logs in with an account that the director keeps.
func TestCredentialsName(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		p    Provider
		want string
	}{
		"sealed":  {Provider{Type: ProviderVSphere, VSphere: &VSphere{Credentials: "vcenter"}}, "vcenter"},
		"file":    {Provider{Type: ProviderVSphere, VSphere: &VSphere{User: "u", PasswordFile: "/p"}}, ""},
		"libvirt": {Provider{Type: ProviderLibvirt, Libvirt: &Libvirt{}}, ""},
		"empty":   {Provider{Type: ProviderVSphere}, ""},
	} {
		if got := tt.p.CredentialsName(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
