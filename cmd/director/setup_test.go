package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/appliance"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/rootdisk"
)

// A warning is shown with its next step, and fails nothing.
func TestFindingsThatWarn(t *testing.T) {
	t.Parallel()
	of := time.Date(2026, 5, 21, 0, 0, 0, 0, time.UTC)
	old := appliance.CheckPackages(rootdisk.Packages{Of: of, List: of.AddDate(0, 0, -1)}, of)
	var out bytes.Buffer
	if err := sayFindings(&out, old); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"ok      root disk has packages of Debian of 2026-05-21",
		"WARNING security updates since 2026-05-20 are not known", "        next: bring a newer list",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

func TestSetupCommands(t *testing.T) {
	t.Parallel()
	for name := range setupCommands {
		if !strings.Contains(setupUsage, "\n  "+name+" ") {
			t.Errorf("the usage of setup does not name %s", name)
		}
	}
	for _, args := range [][]string{{"setup"}, {"setup", "nothing"}, {"setup", "apply", "x"}, {"setup", "-x"}} {
		if err := run(args, &bytes.Buffer{}); director.KindOf(err) != director.KindInvalid {
			t.Errorf("%v: %v", args, err)
		}
	}
	var out bytes.Buffer
	if err := run([]string{"setup", "-help"}, &out); err != nil ||
		!strings.Contains(out.String(), "admin_password_hash") {
		t.Errorf("%v\n%s", err, out.String())
	}
	// On a machine that is no appliance nothing is changed. Only commands that are harmless anyway are called here.
	if err := run([]string{"setup", "check"}, &bytes.Buffer{}); director.KindOf(err) != director.KindConflict {
		t.Errorf("setup check on this machine: %v", err)
	}
	for _, name := range anywhere {
		if !slices.Contains([]string{"hash", "properties", "schema"}, name) {
			t.Errorf("%s runs on any machine", name)
		}
	}
	if err := run([]string{"support", filepath.Join(t.TempDir(), "x")}, &bytes.Buffer{}); director.KindOf(err) !=
		director.KindConflict {
		t.Errorf("support on this machine: %v", err)
	}
	out.Reset()
	if err := run([]string{"setup", "schema"}, &out); err != nil || len(out.String()) != len("0001\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	var properties []struct{ Key string }
	if err := run([]string{"setup", "properties"}, &out); err != nil ||
		json.Unmarshal(out.Bytes(), &properties) != nil ||
		len(properties) < 10 || properties[0].Key != "hostname" {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestLinesOfAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines")
	text := "one\r\ncorrect horse battery\nlast"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	in := terminal{in: f, out: &out}
	one, err1 := in.Line("? ")
	password, err2 := in.Password("hidden: ")
	last, err3 := in.Line("")
	if one != "one" || password != "correct horse battery" || last != "last" || err1 != nil || err2 != nil ||
		err3 != nil {
		t.Errorf("%q %q %q, %v %v %v", one, password, last, err1, err2, err3)
	}
	if _, err := in.Line(""); err == nil {
		t.Error("a line after the end")
	}
	if err := auth.CheckHash("", auth.HashPassword(director.Secret(password))); err != nil {
		t.Error(err)
	}
}
