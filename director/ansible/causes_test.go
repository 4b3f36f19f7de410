package ansible

import (
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
)

// Every example is explained by its own cause and by none before it.
func TestBuiltInCauses(t *testing.T) {
	t.Parallel()
	causes := BuiltInCauses()
	if len(causes) < 15 {
		t.Errorf("only %d causes", len(causes))
	}
	for _, c := range causes {
		if len(c.Examples) == 0 || c.Hint == "" {
			t.Errorf("%s has no example or no hint", c.ID)
		}
		if strings.HasSuffix(c.Explain, ".") || strings.HasSuffix(c.Hint, ".") {
			t.Errorf("%s ends in a full stop", c.ID)
		}
		for _, x := range c.Examples {
			got := causeOf(causes, Failure{Msg: "non-zero return code", Tail: "before\n" + x + "\nafter"})
			if got == nil || got.ID != c.ID {
				t.Errorf("%q is explained by %+v, want %s", x, got, c.ID)
			}
		}
	}
	if c := causeOf(causes, Failure{Msg: "something else entirely"}); c != nil {
		t.Errorf("explained by %s", c.ID)
	}
}

func TestCausesOfAnAdministrator(t *testing.T) {
	t.Parallel()
	own, err := ParseCauses("own.yml", []byte(`
causes:
  - {id: ours, match: 'quota of tenant', task: '^kubelet : ', class: person, explain: the tenant is full, hint: ask for more}
`))
	if err != nil {
		t.Fatal(err)
	}
	f := Failure{Role: "kubelet", Task: "Start", Msg: "no space left on device: quota of tenant"}
	causes := append(own, BuiltInCauses()...)
	if c := causeOf(causes, f); c == nil || c.ID != "ours" {
		t.Errorf("got %+v", c)
	}
	f.Role = "etcd"
	if c := causeOf(causes, f); c == nil || c.ID != "disk_full" {
		t.Errorf("got %+v", c)
	}
}

func TestCausesAreChecked(t *testing.T) {
	t.Parallel()
	_, err := ParseCauses("own.yml", []byte(`
causes:
  - {id: a, match: '(', class: transient, explain: x}
  - {id: a, match: 'x', class: sometimes, explain: x}
  - {match: 'x', class: person}
`))
	if director.KindOf(err) != director.KindInvalid {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		"own.yml: causes[0].match: is not a regular expression", `causes[1].id: "a" is there twice`,
		`causes[1].class: is "sometimes"`, "causes[2].id: is missing", "causes[2].explain: is missing",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := ParseCauses("own.yml", []byte("causes: []\nmore: 1\n")); director.KindOf(err) != director.KindInvalid {
		t.Errorf("unknown key: got %v", err)
	}
}
