package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// scripted are pages whose commands a script runs, which may run others as well.
type scripted struct {
	dir    string   // of the pages, below docs
	pages  []string // their names, without .md
	script string   // its file; empty if no command of the pages can be run
	// beginnings of commands that are not run, and why: mostly, they need what a test does not have
	notRun map[string]string
	// beginnings of commands that a script of cmd/directorctl runs, and its file
	elsewhere map[string]string
	here      *strings.Replacer // what the script has instead of addresses, directories and names of the pages
}

// Reasons why commands are not run.
const (
	aHost           = "needs a host of its own"
	aCluster        = "needs the API of a real cluster"
	aVM             = "needs a VM"
	aMirror         = "needs a mirror of Debian"
	anAppliance     = "changes the machine that it runs on; the tests of the appliance do so in a VM"
	severalMachines = "needs several machines; test/kill runs two directors on one database"
	stepCA          = "needs step-ca, which the tests of director/acme and director/issuer start"
)

// manualPages are all pages with commands, except for docs/start/simulate.md, which TestSimulatePage runs.
func manualPages() []scripted {
	return []scripted{startPages, appliancePages, usedPages, scriptedPages, signedPages, machinePages, servicePages}
}

// appliancePages are pages of docs/start that no test can follow.
var appliancePages = scripted{
	dir: "start", pages: []string{"appliance"},
	notRun: map[string]string{
		"qemu-img create ": "makes a disk for a VM", "genisoimage ": "makes a disk for a VM", "virt-install ": aVM,
		"sudo director setup ": anAppliance, "journalctl ": anAppliance,
	},
}

// usedPages are the pages of docs/use. TestPages runs their blocks that begin with sh run; these are the other
// commands.
var usedPages = scripted{
	dir: "use", pages: usePages,
	notRun: map[string]string{
		"kubectl ": aCluster, "age ": "reads a backup of a real cluster",
		"etcdutl ":                            "reads a backup of a real cluster",
		"directorctl plan demo --adopt-disk ": "cmd/directorctl adopts a disk with scale",
		"directorctl backup show ":            "no script runs it yet",
		"directorctl backup delete ":          "no script runs it yet",
		"directorctl backup extract ":         "reads a backup of a real cluster",
		"directorctl login --browser":         "needs a browser", "docker ": "needs Docker", "crane ": "needs crane",
		"roll.sh ": "cmd/directorctl runs the example as roll.sh, with other arguments",
	},
	elsewhere: map[string]string{
		"directorctl backup create ": "backup",
		"directorctl backup verify ": "backup", "directorctl backup restore ": "backup",
		"directorctl backup reread ": "backup",
		"directorctl backup drill ":  "backup", "directorctl campaign create ": "campaign",
		"directorctl campaign skip ": "campaign", "directorctl campaign resume ": "campaign",
		"directorctl campaign end ": "campaign", "directorctl retry ": "failures", "directorctl disks list ": "disks",
		"directorctl disks delete ": "disks", "directorctl scale demo ": "disks",
		"directorctl vms list ": "vms", "directorctl vms audit ": "vms", "directorctl vms adopt ": "vms",
		"directorctl vms reclaim ": "vms-reclaim", "directorctl login --server ": "login",
		"directorctl login --device": "device", "directorctl node rejoin ": "nodes",
		"directorctl node repair ":  "nodes",
		"directorctl node replace ": "vms", "directorctl apply -f ": "apply",
		"directorctl provider credentials set ": "provider", "directorctl notifications test ": "notifications",
		"directorctl users create-token ": "users", "directorctl users create planner ": "users",
		"directorctl phase cluster ": "phases", "directorctl phase director ": "phases",
		"directorctl phase post-node-unlock ": "phases", "directorctl provider discover ": "provider",
		"directorctl release import ": "mirror",
	},
}

// machinePages are pages of docs/operate whose commands change a machine.
var machinePages = scripted{
	dir: "operate", pages: []string{"appliance", "high-availability", "logs", "cis", "registry"},
	notRun: map[string]string{
		"sudo ": anAppliance, "ssh-keyscan ": aHost, "at=": aMirror, "curl ": aMirror, "xz ": aMirror, "scp ": aMirror,
		"./kube-bench ": "needs a node; the lab runs it", "rclone ": "needs a bucket",
		"# pg_hba.conf": "is a line of a file", "first# ": severalMachines, "second# ": severalMachines,
		"psql ": severalMachines, "ssh ": severalMachines, "test/": "is a test itself", "go test ": "is a test itself",
	},
	elsewhere: map[string]string{
		"directorctl appliance upgrade ": "appliance", "directorctl appliance status": "appliance",
		"directorctl appliance rollback": "appliance", "directorctl apply -f ": "apply",
		"directorctl follow ": "create",
	},
}

// fences are the fenced blocks of a page, also those in lists.
var fences = regexp.MustCompile("(?ms)^( *)```([a-z ]*)\n(.*?\n) *```$")

// manualPage returns the commands of a page, without their comments, and its YAML. Commands are the lines of blocks
// without a language, and of those in sh that TestPages does not run.
func manualPage(t *testing.T, dir, page string) (commands, documents []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", dir, page+".md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range fences.FindAllStringSubmatch(string(text), -1) {
		body := strings.ReplaceAll(strings.TrimPrefix(block[3], block[1]), "\n"+block[1], "\n")
		switch block[2] {
		case "yaml":
			documents = append(documents, body)
		case "", "sh":
			for line := range strings.Lines(strings.ReplaceAll(body, "\\\n", "")) {
				line, _, _ = strings.Cut(line, " #")
				if line = strings.Join(strings.Fields(line), " "); line != "" {
					commands = append(commands, line)
				}
			}
		}
	}
	return commands, documents
}

// No page has a command that is neither run nor named in notRun. Those of directorctl that are not run exist with their
// flags.
func TestManualCommands(t *testing.T) {
	t.Parallel()
	owners := map[string]scripted{}
	for _, s := range manualPages() {
		s.named(t)
		for _, page := range s.pages {
			owners[s.dir+"/"+page] = s
			commands, _ := manualPage(t, s.dir, page)
			s.check(t, page, commands)
		}
	}
	found, err := filepath.Glob("../../docs/*/*.md")
	if err != nil || len(found) == 0 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, file := range found {
		dir, page := filepath.Base(filepath.Dir(file)), strings.TrimSuffix(filepath.Base(file), ".md")
		_, owned := owners[dir+"/"+page]
		if owned || page == "simulate" || !slices.Contains([]string{"start", "use", "operate"}, dir) {
			continue
		}
		if commands, _ := manualPage(t, dir, page); len(commands) > 0 {
			t.Errorf("docs/%s/%s.md has commands that no test runs: run them, name them in notRun, or give the block "+
				"a language if they are no commands:\n%s", dir, page, strings.Join(commands, "\n"))
		}
	}
}

// named wants the pages to have a command for every beginning in notRun and elsewhere, and the scripts of
// cmd/directorctl to run what is elsewhere.
func (s scripted) named(t *testing.T) {
	t.Helper()
	var all []string
	for _, page := range s.pages {
		commands, _ := manualPage(t, s.dir, page)
		all = append(all, commands...)
	}
	for prefix := range s.reasons() {
		if !slices.ContainsFunc(all, func(c string) bool { return strings.HasPrefix(c, prefix) }) {
			t.Errorf("no page of %s has a command %q any more", s.pages, prefix)
		}
	}
	for prefix, name := range s.elsewhere {
		text, err := os.ReadFile(filepath.Join("..", "directorctl", "testdata", "simulated", name+".txtar"))
		if err != nil || !strings.Contains(string(text), prefix) {
			t.Errorf("the script %s of cmd/directorctl does not run %q: %v", name, prefix, err)
		}
	}
}

// reasons is notRun and elsewhere.
func (s scripted) reasons() map[string]string {
	out := maps.Clone(s.elsewhere)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, s.notRun)
	return out
}

// check wants the script, or a block of the page that TestPages runs, to have each of the commands. A command for a
// shell is run by one.
func (s scripted) check(t *testing.T, page string, commands []string) {
	t.Helper()
	var script []byte
	if s.script != "" {
		var err error
		if script, err = os.ReadFile(s.script); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", s.dir, page+".md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range runBlocks.FindAllSubmatch(text, -1) {
		for line := range strings.Lines(string(block[1])) {
			line, _, _ = strings.Cut(line, " #")
			script = append(script, "exec "+strings.TrimSpace(line)+"\n"...)
		}
	}
	reasons := s.reasons()
	for _, command := range commands {
		excused := false
		for prefix := range reasons {
			excused = excused || strings.HasPrefix(command, prefix)
		}
		if excused {
			exists(t, page, command)
			continue
		}
		run := command
		if s.here != nil {
			run = s.here.Replace(command)
		}
		shell := "sh -c '" + strings.ReplaceAll(run, "'", "''") + "'"
		if !slices.ContainsFunc([]string{run + "\n", run + " &", shell + "\n"}, func(line string) bool {
			return strings.Contains(string(script), "exec "+line)
		}) {
			t.Errorf("docs/%s/%s.md says %q, and %s does not run %q", s.dir, page, command, s.script, run)
		}
	}
}

var commandWord = regexp.MustCompile(`^[a-z][a-z-]*$`)

// exists wants the command line to know a command of directorctl and its flags.
func exists(t *testing.T, page, command string) {
	t.Helper()
	if !strings.HasPrefix(command, "directorctl ") {
		return
	}
	command, _, _ = strings.Cut(command, " > ")
	command = strings.NewReplacer("[", "", "]", "").Replace(command)
	out, err := exec.CommandContext(context.Background(), "sh", "-c", "set -f; "+command+" --help").CombinedOutput()
	if err != nil {
		t.Errorf("%s: %s --help: %v\n%s", page, command, err, out)
		return
	}
	_, usage, _ := strings.Cut(string(out), "Usage:\n  ")
	usage, _, _ = strings.Cut(usage, "\n")
	known := 0
	for _, word := range strings.Fields(usage) {
		if !commandWord.MatchString(word) {
			break
		}
		known++
	}
	words := strings.Fields(command)
	parent := strings.Contains(string(out), "Available Commands:")
	if parent && len(words) > known && commandWord.MatchString(words[known]) {
		t.Errorf("%s: %s has no command %s", page, strings.Join(words[:known], " "), words[known])
	}
}
