package model

import (
	"fmt"
	"strings"
	"testing"
)

// Presets fill in what is not written out, and what is written out wins and is said.
func TestMasterSizes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		masters string
		workers int
		want    string
		warns   bool
	}{
		"none":             {"{}", 1, "2 4GiB", false},
		"small":            {"{size: small}", 1, "2 8GiB", false},
		"medium":           {"{size: medium}", 1, "4 16GiB", false},
		"large":            {"{size: large}", 1, "8 32GiB", false},
		"xlarge":           {"{size: xlarge}", 1, "16 64GiB", false},
		"memory wins":      {"{size: large, memory: 12GiB}", 1, "8 12GiB", true},
		"cpus win":         {"{size: large, cpus: 3}", 1, "3 32GiB", true},
		"said twice alike": {"{size: small, cpus: 2, memory: 8GiB}", 1, "2 8GiB", false},
		"auto, 5":          {"{size: auto}", 5, "2 4GiB", false},
		"auto, 6":          {"{size: auto}", 6, "2 7680MiB", false},
		"auto, 11":         {"{size: auto}", 11, "4 15GiB", false},
		"auto, 101":        {"{size: auto}", 101, "8 30GiB", false},
		"auto, 251":        {"{size: auto}", 251, "16 60GiB", false},
		"auto, 501":        {"{size: auto}", 501, "32 120GiB", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			docs, err := Parse([]byte(fmt.Sprintf(`apiVersion: kaas/v1
kind: Cluster
metadata: {name: x}
spec: {release: r, provider: p, image: i, network: n, masters: %s, workers: [{name: w, count: %d}], pods: {cidr: `+
				`10.128.0.0/9}}
`, tt.masters, tt.workers)), "")
			if err != nil {
				t.Fatal(problems(err))
			}
			m := docs[0].Cluster.Masters
			if got := fmt.Sprintf("%d %s", m.CPUs, m.Memory); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			Default(&docs[0])
			if again := docs[0].Cluster.Masters; again.VMSize != m.VMSize {
				t.Errorf("a second time it is %+v", again.VMSize)
			}
			warnings, err := Validate(&docs[0])
			if err != nil || (len(warnings) > 0) != tt.warns ||
				tt.warns && !strings.Contains(warnings[0], "spec.masters.size") {
				t.Errorf("warnings %v, %v", warnings, err)
			}
		})
	}
}

func TestScriptsAreBounded(t *testing.T) {
	t.Parallel()
	d := *demoSet()[Ref{KindCluster, "demo"}]
	for i := range 3 {
		d.Cluster.Masters.Scripts = append(d.Cluster.Masters.Scripts, Script{
			Name: fmt.Sprint("s", i), Content: strings.Repeat("x", 15<<10), Timeout: 10 * minute,
		})
	}
	d.Cluster.Masters.Scripts[0].Content += strings.Repeat("x", 2<<10)
	_, err := Validate(&d)
	if text := problems(err); !strings.Contains(text, "spec.masters.scripts[0].content: is 17408 bytes long") ||
		!strings.Contains(text, "spec.masters.scripts: are 48128 bytes together") {
		t.Errorf("got %v %s", err, text)
	}
}

func TestFirstBootBudget(t *testing.T) {
	t.Parallel()
	m := VMModel{}
	if m.Budget() != 0 {
		t.Errorf("nothing takes %s", m.Budget())
	}
	m = VMModel{
		Scripts: []Script{{Timeout: minute}, {Timeout: 2 * minute}}, Shares: []Share{{}}, Packages: []string{"x"},
		Health: &Health{Timeout: minute},
	}
	if m.Budget() != 19*minute {
		t.Errorf("all of it takes %s", m.Budget())
	}
}
