package inventory

import (
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
)

// What reaches an inventory is one line, whoever has stored it.
func TestOneLine(t *testing.T) {
	t.Parallel()
	const pipe = "x\n{{ lookup('pipe', 'id') }}"
	in := Input{
		Name: "demo", RegistryCA: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
		APINames: []string{"fine.example.org", pipe}, NTP: []string{"ntp\nx"},
		Aliases: []Alias{{Address: "10.0.0.1", Names: []string{"a\rb"}}},
		Nodes: []Node{
			{
				Name: "m1", Role: director.RoleMaster, Address: "10.0.0.2", Labels: map[string]string{"k": pipe},
				Taints: []string{"x=\x00:NoSchedule"},
			},
		},
		Vars: map[string]any{
			"registry_ca": "line\nline", "helm_chart_loc_override": []any{map[string]any{"deep": "x\u2028"}},
		},
	}
	_, err := Render(in)
	for _, at := range []string{
		"APINames[1]", "NTP[0]", "Aliases[0].Names[0]", "Nodes[0].Labels.k", "Nodes[0].Taints[0]",
		"Vars.helm_chart_loc_override[0].deep",
	} {
		if err == nil || !strings.Contains(err.Error(), at+": has") {
			t.Errorf("%s passes: %v", at, err)
		}
	}
	if err != nil &&
		(strings.Contains(err.Error(), "RegistryCA") || strings.Contains(err.Error(), "Vars.registry_ca")) {
		t.Errorf("certificates have lines: %v", err)
	}
}
