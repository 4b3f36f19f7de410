package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/director/simulate"
)

// usePages are in an order in which each page finds the cluster that its commands need.
var usePages = []string{
	"networks", "providers", "checks", "plans", "console", "console-upkeep", "console-setup", "login", "access",
	"nodes", "vms", "disks", "ledger", "images", "own-images", "releases", "backups", "campaigns", "schedules",
	"notifications", "phases",
}

// operatePages are the pages of docs/operate with commands that a simulated director can carry out.
var operatePages = []string{"certificates", "users", "audit"}

// runBlocks are the blocks of a page that begin with ```sh run.
var runBlocks = regexp.MustCompile("(?s)\n```sh run\n(.*?)\n```\n")

// pageScript returns a script of the commands of pages in a directory of docs, in the form of testscript.
func pageScript(t *testing.T, dir string, pages []string) string {
	t.Helper()
	var script strings.Builder
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", dir, page+".md"))
		if err != nil {
			t.Fatal(err)
		}
		blocks := runBlocks.FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			t.Errorf("docs/%s/%s.md has no commands to run", dir, page)
		}
		fmt.Fprintf(&script, "\n# docs/%s/%s.md\n", dir, page)
		for _, block := range blocks {
			for _, command := range strings.Split(block[1], "\n") {
				if strings.HasPrefix(command, "#") || command == "" {
					continue
				}
				if strings.Contains(command, "PLAN") {
					script.WriteString("plan PLAN any\n")
					command = strings.ReplaceAll(command, "PLAN", `"$PLAN"`)
				}
				if strings.Contains(command, "CAMPAIGN") {
					script.WriteString("campaign CAMPAIGN\n")
					command = strings.ReplaceAll(command, "CAMPAIGN", `"$CAMPAIGN"`)
				}
				// A command that asks before it starts a plan is answered.
				if strings.Contains(command, "--wait") && !strings.Contains(command, "--yes") {
					script.WriteString("ttyin -stdin yes\n")
				}
				fmt.Fprintf(&script, "exec sh -c '%s'\n", strings.ReplaceAll(command, "'", "''"))
			}
		}
	}
	return script.String()
}

// TestPages runs the commands of every page of docs/use, and then those of operatePages, one page after the other,
// against a director that simulates.
func TestPages(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("../../docs/use/*.md")
	if err != nil || len(found) != len(usePages) {
		t.Errorf("docs/use has %d pages, and %d are run: %v", len(found), len(usePages), err)
	}
	setup, err := os.ReadFile("testdata/pages.txtar")
	if err != nil {
		t.Fatal(err)
	}
	commands, files, _ := strings.Cut(string(setup), "\n-- ")
	script := filepath.Join(t.TempDir(), "pages.txtar")
	pages := pageScript(t, "use", usePages) + pageScript(t, "operate", operatePages)
	whole := commands + "\n" + pages + "\nkill -INT director\nwait director\n-- " + files
	if err := os.WriteFile(script, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: []string{script}, RequireExplicitExec: true, ContinueOnError: true,
		Setup: func(env *testscript.Env) error {
			if _, err := newcomer(t.Context(), env); err != nil {
				return err
			}
			_, err := simulate.Bundle(
				t.Context(), filepath.Join(env.WorkDir, "bundles"), "k8s-1.37.2", "v1.37.2",
			)
			return errors.Join(err, bootable(filepath.Join(env.WorkDir, "node.raw")))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready": ready, "plan": newestPlan, "campaign": newestCampaign,
		},
	})
}

// newestCampaign sets a variable to the id of the newest campaign: campaign VARIABLE.
func newestCampaign(ts *testscript.TestScript, _ bool, args []string) {
	waitFor(ts, "there is no campaign", func(ctx context.Context) error {
		c, err := session(ctx, ts)
		if err != nil {
			return err
		}
		defer c.Close()
		list, err := c.Campaigns(ctx)
		if err != nil || len(list) == 0 {
			return fmt.Errorf("there is %+v, %w", list, err)
		}
		ts.Setenv(args[0], list[0].ID)
		return nil
	})
}

// bootable writes an empty disk with the mark of a boot sector.
func bootable(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(1 << 30); err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{0x55, 0xaa}, 510)
	return err
}
