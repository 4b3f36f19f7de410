package store

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contracts are what a director of the version before trips over when it shares the database with a newer one.
var contracts = map[string]*regexp.Regexp{
	"drops a table":     regexp.MustCompile(`(?i)\bDROP\s+TABLE\b`),
	"drops a column":    regexp.MustCompile(`(?i)\bDROP\s+COLUMN\b`),
	"renames":           regexp.MustCompile(`(?i)\bRENAME\b`),
	"changes a type":    regexp.MustCompile(`(?i)\bALTER\s+COLUMN\s+\S+\s+(SET\s+DATA\s+)?TYPE\b`),
	"demands a value":   regexp.MustCompile(`(?i)\bSET\s+NOT\s+NULL\b`),
	"drops a default":   regexp.MustCompile(`(?i)\bDROP\s+DEFAULT\b`),
	"adds a constraint": regexp.MustCompile(`(?i)\bADD\s+(CONSTRAINT|CHECK|UNIQUE|FOREIGN|PRIMARY)\b`),
}

var (
	addsColumn = regexp.MustCompile(`(?i)\bADD\s+(COLUMN\s+)?\S+\s+.*\bNOT\s+NULL\b`)
	hasDefault = regexp.MustCompile(`(?i)\bDEFAULT\b`)
	said       = regexp.MustCompile(`(?m)^-- contract: since v\d+\.\d+: \S`)
)

// contractsOf returns what the migration does that an older director cannot live with. One whose text says since when
// nothing uses what it takes away is fine.
func contractsOf(text string) []string {
	if said.MatchString(text) {
		return nil
	}
	var out []string
	bare := regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(text, "")
	for statement := range strings.SplitSeq(bare, ";") {
		for what, is := range contracts {
			if is.MatchString(statement) {
				out = append(out, what)
			}
		}
		if strings.Contains(strings.ToUpper(statement), "ALTER TABLE") && addsColumn.MatchString(statement) &&
			!hasDefault.MatchString(statement) {
			out = append(out, "adds a column without a default")
		}
	}
	slices.Sort(out)
	return out
}

// Migrations expand before they contract, so that the directors of the version before go on while others are upgraded.
func TestMigrationsExpandOnly(t *testing.T) {
	t.Parallel()
	before := []string{"0005_plan_contents.sql"} // no release was made before it
	found, err := fs.Glob(migrations, "migrations/*/*.sql")
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, name := range found {
		text, err := migrations.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := contractsOf(
			string(text),
		); len(got) > 0 && !slices.ContainsFunc(before, func(b string) bool { return strings.HasSuffix(name, b) }) {
			t.Errorf("%s %s; see docs/develop/writing-a-migration.md", name, strings.Join(got, ", "))
		}
	}
}

// Upgrades in place compare the newest versions of two directors. They would not notice a migration that came later and
// has a lower number. Raise the mark with every release.
func TestMigrationsAreNumberedAsTheyCome(t *testing.T) {
	t.Parallel()
	const mark, upToMark = "0068", 47
	for _, dialect := range []string{"sqlite", "postgres"} {
		found, err := fs.Glob(migrations, "migrations/"+dialect+"/*.sql")
		if err != nil {
			t.Fatal(err)
		}
		found = slices.DeleteFunc(found, func(name string) bool { return version(name)[:len(mark)] > mark })
		if len(found) != upToMark {
			t.Errorf("%s has %d migrations up to %s instead of %d: give a new one a number above all others", dialect,
				len(found), mark, upToMark)
		}
	}
}

// Only directors that tests build know the schema after the newest.
func TestNoNextSchema(t *testing.T) {
	t.Parallel()
	if found, err := fs.Glob(migrations, "next/*/*"); err != nil || len(found) > 0 {
		t.Errorf("a director has %v, %v: it was built for a test of the appliance", found, err)
	}
	if latest, err := Latest(); err != nil || latest >= "9000" {
		t.Errorf("the newest version of the schema is %s, %v", latest, err)
	}
}

// The scan sees what it has to.
func TestContractsOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"CREATE TABLE t (a TEXT NOT NULL);\nCREATE INDEX i ON t (a);\nDROP INDEX j;": nil,
		"ALTER TABLE t ADD COLUMN a TEXT NOT NULL DEFAULT '';":                       nil,
		"ALTER TABLE t ADD COLUMN a TEXT;":                                           nil,
		"-- never DROP TABLE here\nUPDATE t SET a = 1;":                              nil,
		"ALTER TABLE t ADD COLUMN a TEXT NOT NULL;": {
			"adds a column without a default",
		},
		"ALTER TABLE t ADD a BIGINT NOT NULL;\nDROP TABLE u;": {
			"adds a column without a default", "drops a table",
		},
		"alter table t\n drop column a;":      {"drops a column"},
		"ALTER TABLE t RENAME COLUMN a TO b;": {"renames"},
		"ALTER TABLE t ALTER COLUMN a SET NOT NULL; ALTER TABLE t ALTER COLUMN b TYPE BIGINT": {
			"changes a type", "demands a value",
		},
		"ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0);":                                        {"adds a constraint"},
		"-- contract: since v1.4: nothing reads plans.old\nALTER TABLE plans DROP COLUMN old;": nil,
		"-- contract: it is old\nALTER TABLE plans DROP COLUMN old;":                           {"drops a column"},
	} {
		if diff := cmp.Diff(want, contractsOf(text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
