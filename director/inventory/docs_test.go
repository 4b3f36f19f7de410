package inventory

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocs holds the table of variables in the documentation to the schema.
func TestDocs(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../docs/reference/playbooks.md", "-update -->\n", "<!-- end -->"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(raw), begin)
	old, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", file)
	}
	var table strings.Builder
	table.WriteString("| variable | type | default | where | cluster | what |\n|---|---|---|---|---|---|\n")
	for _, v := range Variables() {
		value, where, cluster := "none", "all", ""
		switch {
		case v.Required:
			value = "required"
		case v.AliasOf != "":
			value = "that of `" + v.AliasOf + "`"
		case v.Default != nil && fmt.Sprint(v.Default) != "":
			value = "`" + strings.NewReplacer("map[]", "{}").Replace(fmt.Sprint(v.Default)) + "`"
		}
		if v.PerHost {
			where = "host"
		}
		if v.Secret {
			where = "secrets"
		}
		if v.Override {
			cluster = "yes"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s | %s |\n", v.Name, v.Type, value, where, cluster, v.Doc)
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+begin+table.String()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(table.String(), old); d != "" {
		t.Errorf("the table in %s is not current (-want +got; -update writes it):\n%s", file, d)
	}
}
