package metrics

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
)

// rules is a file of alert rules, with what Prometheus takes.
type rules struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

// functions are those of PromQL that the rules use.
var functions = []string{
	"absent", "increase", "predict_linear", "min_over_time", "time", "and", "or", "bool", "by",
}

var labelled = regexp.MustCompile(`\$labels\.(\w+)`)

// TestAlerts compares the alert rules with what a director shows: each metric, and each label that a rule or its text
// names, has to be there; and the manual has to say what to do.
func TestAlerts(t *testing.T) {
	t.Parallel()
	f, err := os.Open("../../docs/operate/alerts/director.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	var all rules
	if err := dec.Decode(&all); err != nil || len(all.Groups) == 0 {
		t.Fatalf("%v, %d groups", err, len(all.Groups))
	}
	page, err := os.ReadFile("../../docs/operate/monitor.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := labelsOf(show(everything()))
	seen := map[string]bool{}
	for _, g := range all.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || seen[r.Alert] || !strings.Contains(string(page), "`"+r.Alert+"`") {
				t.Errorf("%q has no name, is there twice, or is not on the page", r.Alert)
			}
			seen[r.Alert] = true
			if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) ||
				r.Annotations["summary"] == "" {
				t.Errorf("%s has no severity or no summary", r.Alert)
			}
			if _, err := time.ParseDuration(r.For); r.For != "" && err != nil {
				t.Errorf("%s: for: %v", r.Alert, err)
			}
			labels := checkExpr(t, r.Alert, r.Expr, shown)
			for _, m := range labelled.FindAllStringSubmatch(r.Annotations["summary"], -1) {
				if m[1] != "instance" && !slices.Contains(labels, m[1]) { // Prometheus adds that one
					t.Errorf("%s shows the label %s, which %s has not", r.Alert, m[1], r.Expr)
				}
			}
		}
	}
}

// checkExpr checks the names, parentheses and labels of an expression, and returns the labels of its metrics.
func checkExpr(t *testing.T, alert, expr string, shown map[string][]string) (labels []string) {
	t.Helper()
	if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") {
		t.Errorf("%s: parentheses of %s", alert, expr)
	}
	metrics := 0
	for _, m := range regexp.MustCompile(`([a-zA-Z_]\w*)(\{[^}]*\})?`).FindAllStringSubmatch(
		regexp.MustCompile(`\[\d+[smhd]\]|\d+(e\d+)?`).ReplaceAllString(expr, ""), -1,
	) {
		if slices.Contains(functions, m[1]) {
			continue
		}
		of, known := shown[m[1]]
		if !known {
			t.Errorf("%s asks for %s, which no director shows", alert, m[1])
			continue
		}
		metrics++
		labels = append(labels, of...)
		for _, l := range regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(of, l[1]) {
				t.Errorf("%s asks for the label %s, which %s has not", alert, l[1], m[1])
			}
		}
	}
	if metrics == 0 {
		t.Errorf("%s asks for no metric", alert)
	}
	return labels
}

// labelsOf returns the metrics in the text with their labels.
func labelsOf(text string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(text) {
		m := regexp.MustCompile(`^([a-z]\w*)(\{[^}]*\})? `).FindStringSubmatch(line)
		if m == nil {
			continue
		}
		all[m[1]] = []string{}
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			all[m[1]] = append(all[m[1]], l[1])
		}
	}
	return all
}

// everything is a director with a cluster, its certificates, backups and drills.
func everything() *Metrics {
	m := busy()
	counts := m.cfg.Counts
	m.cfg.Counts = func(ctx context.Context) (Counts, error) {
		c, err := counts(ctx)
		c.Backups = []BackupAge{{Cluster: "demo", Drill: &Drill{Failed: true}}}
		c.Certificates = []director.Certificate{
			{Cluster: "demo", Node: "m1", Name: "apiserver"}, {Name: director.CertificateACME},
		}
		return c, err
	}
	return m
}
