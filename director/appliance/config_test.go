package appliance_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/appliance"
	"github.com/director-kaas/kaas/director/daemon"
)

// What the appliance writes is a configuration that the director takes, with the settings of the administrator over it.
func TestConfig(t *testing.T) {
	t.Parallel()
	p := appliance.Somewhere(t)
	s, err := appliance.Read(appliance.Good())
	if err != nil {
		t.Fatal(err)
	}
	load := func(own string, s appliance.Setup, addresses ...netip.Addr) (daemon.Config, error) {
		t.Helper()
		if err := p.Directories(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.DataPath(appliance.OwnConfig), []byte(own), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Write(t.Context(), s, addresses); err != nil {
			return daemon.Config{}, err
		}
		return daemon.LoadConfig(p.EtcPath("director/director.yaml"))
	}
	c, err := load("", s)
	if err != nil || c.Address.String() != "192.0.2.10" || c.Listen != ":443" || c.StateDir != p.DataPath("director") {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = load("forks: 3\nlisten: :8443\n", s); err != nil || c.Forks != 3 || c.Listen != ":8443" {
		t.Errorf("with own settings: %+v, %v", c, err)
	}
	for own, want := range map[string]string{"stateDir: /tmp\n": "stateDir", "a: [": appliance.OwnConfig} {
		_, err := load(own, s)
		if director.KindOf(err) != director.KindInvalid || !strings.Contains(appliance.Explain(err), want) {
			t.Errorf("%q: %v", own, err)
		}
	}
	s.Address, s.Gateway = netip.Prefix{}, netip.Addr{}
	if c, err = load("", s, netip.MustParseAddr("198.51.100.7")); err != nil || c.Address.String() != "198.51.100.7" {
		t.Errorf("by DHCP: %+v, %v", c, err)
	}
	text, err := os.ReadFile(p.EtcPath("director/director.yaml"))
	var any map[string]any
	if err != nil || yaml.Unmarshal(text, &any) != nil || any["runDir"] != nil {
		t.Errorf("%s, %v: runDir is systemd's", text, err)
	}
}
