package cloudinit_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
)

// written puts what cloud-init would write for the first boot into a directory, and returns the path of its runner.
func written(t *testing.T, g cloudinit.Guest) (dir, run string) {
	t.Helper()
	seed, err := cloudinit.Render(g)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Files  []struct{ Path, Permissions, Content, Encoding string } `yaml:"write_files"`
		Runcmd [][]string
	}
	if err := yaml.Unmarshal(seed.UserData, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Runcmd) != 1 || len(doc.Runcmd[0]) != 1 || doc.Runcmd[0][0] != cloudinit.FirstBootDir+"/run" {
		t.Fatalf("runcmd is %v", doc.Runcmd)
	}
	dir = t.TempDir()
	for _, f := range doc.Files {
		name, ours := strings.CutPrefix(f.Path, cloudinit.FirstBootDir+"/")
		if !ours {
			continue
		}
		if f.Encoding != "" || f.Permissions != "0700" {
			t.Fatalf("%+v", f)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(f.Content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir, filepath.Join(dir, "run")
}

func report(t *testing.T, run string) cloudinit.Report {
	t.Helper()
	out, err := exec.Command(run, "report").Output()
	if err != nil {
		t.Fatal(err)
	}
	r, err := cloudinit.ParseReport(string(out))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

// The scripts run in order, each to its own end; how they ended and what they said last is told; only what has not
// succeeded runs again.
func TestFirstBootScripts(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"flock", "timeout", "base64"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("nodes have %s, and so must this test: %v", program, err)
		}
	}
	g := master(t)
	g.Scripts = []cloudinit.Script{
		{Name: "good", Content: "pwd >>order\necho fine\n"},
		{
			Name: "bad",
			Content: "echo tried >>order\nfor i in $(seq 30); do echo line $i; done\ntest -f mended || { echo 'no: " +
				"\"such\" thing' >&2; exit 3; }\n",
		},
		{Name: "other", Content: "#!/bin/cat\nnot shell\n"},
		{Name: "slow", Content: "echo waits\nexec sleep 60\n", Timeout: time.Second},
		{Name: "greedy", Content: "cat\necho after\n"}, // the list of scripts is not its input
	}
	dir, run := written(t, g)
	for _, s := range report(t, run).Scripts {
		if s.Ran || !s.Failed() || s.String() != "was not run" {
			t.Errorf("before: %+v", s)
		}
	}
	if out, err := exec.Command(run).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v %s", err, out)
	}
	r := report(t, run)
	var got []string
	for _, s := range r.Scripts {
		got = append(got, s.Name+" "+s.String())
	}
	want := "good ended with exit code 0, bad ended with exit code 3, other ended with exit code 0, slow was ended " +
		"after 1s, greedy ended with exit code 0"
	if strings.Join(got, ", ") != want || r.Busy {
		t.Errorf("got %s, busy %t", strings.Join(got, ", "), r.Busy)
	}
	bad := r.Scripts[1]
	if !strings.HasSuffix(bad.Tail, "line 30\nno: \"such\" thing") || strings.Contains(bad.Tail, "line 5\n") ||
		bad.Log != cloudinit.FirstBootDir+"/01-bad.log" {
		t.Errorf("it said last: %q in %s", bad.Tail, bad.Log)
	}
	if r.Scripts[0].Tail != "" || r.Scripts[0].Failed() {
		t.Errorf("the good one: %+v", r.Scripts[0])
	}
	// Again, after a person has mended what was missing.
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "mended"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "03-slow"), []byte("true\n"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(run).Run(); err != nil {
		t.Fatal(err)
	}
	for _, s := range report(t, run).Scripts {
		if s.Failed() {
			t.Errorf("after the second time: %+v", s)
		}
	}
	order, err := os.ReadFile(filepath.Join(dir, "order"))
	if err != nil || strings.Count(string(order), dir) != 1 || strings.Count(string(order), "tried") != 2 {
		t.Errorf("what ran: %s, %v", order, err)
	}
}

// A node that crashes in the middle of a script says so, and one that runs them is left alone.
func TestFirstBootCutOff(t *testing.T) {
	t.Parallel()
	g := master(t)
	g.Scripts = []cloudinit.Script{{Name: "one", Content: "echo $$ >pid\nexec sleep 60\n"}}
	dir, run := written(t, g)
	cmd := exec.Command(run)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		if text, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil && len(text) > 0 {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("it never began")
		}
	}
	if r := report(t, run); !r.Busy || !r.Scripts[0].Ran || r.Scripts[0].Ended {
		t.Errorf("while it runs: %+v", r)
	}
	text, err1 := os.ReadFile(filepath.Join(dir, "pid"))
	pid, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	group, err3 := syscall.Getpgid(pid) // timeout(1) has one of its own
	if err := errors.Join(
		err1, err2, err3, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL), syscall.Kill(-group, syscall.SIGKILL),
	); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("it was killed and ended well")
	}
	// as a disk may have it
	if err := os.WriteFile(filepath.Join(dir, "00-one.status"), []byte("running\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := report(t, run).Scripts[0]; !s.Failed() || !strings.Contains(s.String(), "cut off") {
		t.Errorf("afterwards: %+v", s)
	}
}

func TestParseReportRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"00-a", "00-a x 5", "00-a 0 five", "00-a 1 5 %%%"} {
		if r, err := cloudinit.ParseReport(text); err == nil {
			t.Errorf("%q was read as %+v", text, r)
		}
	}
	if r, err := cloudinit.ParseReport("\n"); err != nil || len(r.Scripts) > 0 || r.Busy {
		t.Errorf("nothing is %+v, %v", r, err)
	}
}

// The shares are mounted before the other scripts run, by a script that sh can read.
func TestShares(t *testing.T) {
	t.Parallel()
	g := master(t)
	g.Shares = []cloudinit.Share{
		{
			Path: "/var/backups", Server: "10.90.0.5", Export: "/exports/kaas", Sub: "demo-master-1/var/backups",
			Options: "nfsvers=4,hard",
		},
		{Path: "/srv/common", Server: "fd00::5", Export: "/common", Options: "nfsvers=4"},
	}
	g.Scripts = []cloudinit.Script{{Name: "later", Content: "true\n"}}
	dir, run := written(t, g)
	r := report(t, run)
	if len(r.Scripts) != 2 || r.Scripts[0].Name != "nfs.shares" || r.Scripts[1].Name != "later" {
		t.Fatalf("%+v", r)
	}
	file := filepath.Join(dir, "00-nfs.shares")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"share /var/backups 10.90.0.5:/exports/kaas nfsvers=4,hard 'demo-master-1/var/backups'\n",
		"share /srv/common [fd00::5]:/common nfsvers=4 ''\n",
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
	if out, err := exec.Command("sh", "-n", file).CombinedOutput(); err != nil {
		t.Errorf("sh -n: %v\n%s", err, out)
	}
}

// The shares' script mounts, copies what was there at the first time, and is done at once at the second. mount and its
// like are stood in for: a mount is a link, and an export a directory.
func TestSharesScript(t *testing.T) {
	t.Parallel()
	g := master(t)
	root := t.TempDir()
	g.Shares = []cloudinit.Share{
		{
			Path: "/var/backups", Server: "nfs", Export: "/exports", Sub: "demo-master-1/var/backups",
			Options: "nfsvers=4",
		},
	}
	dir, _ := written(t, g)
	text, err := os.ReadFile(filepath.Join(dir, "00-nfs.shares"))
	if err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer(
		"/var/backups nfs:", root+"/backups nfs:", "/etc/fstab", root+"/fstab", "/run/kaas-share", root+"/top",
	).Replace(string(text))
	bin := filepath.Join(root, "bin")
	programs := map[string]string{
		"mount.nfs":  "true",
		"mountpoint": `test -L "$2"`,
		"mount": `from=$5; to=$6; [ "$1 $2 $3 $4" = "-t nfs -o nfsvers=4" ] || exit 9; rmdir "$to" 2>/dev/null ` +
			`|| rm -rf "$to"; ln -s "` + root + `/nfs${from#nfs:}" "$to"; echo "$from" >>"` + root + `/mounts"`,
		"umount": `rm "$1"`,
	}
	if err := errors.Join(os.MkdirAll(
		bin, 0o755,
	), os.MkdirAll(root+"/nfs/exports", 0o755), os.MkdirAll(root+"/backups", 0o755),
		os.WriteFile(root+"/fstab", nil, 0o600), os.WriteFile(root+"/backups/old", []byte("kept"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, body := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		cmd := exec.Command("sh", "-c", script)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	kept, err := os.ReadFile(root + "/nfs/exports/demo-master-1/var/backups/old")
	if err != nil || string(kept) != "kept" {
		t.Errorf("what was there is lost: %q, %v", kept, err)
	}
	fstab, err1 := os.ReadFile(root + "/fstab")
	mounts, err2 := os.ReadFile(root + "/mounts")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if got, want := string(fstab),
		"nfs:/exports/demo-master-1/var/backups "+root+
			"/backups nfs nfsvers=4,_netdev,x-systemd.mount-timeout=90s 0 0\n"; got != want {
		t.Errorf("fstab is %q, want %q", got, want)
	}
	if got := strings.Fields(string(mounts)); len(got) != 2 {
		t.Errorf("mounted were %v; the second time nothing was to be done", got)
	}
}

func TestFirstBootRefuses(t *testing.T) {
	t.Parallel()
	good := cloudinit.Share{Path: "/srv", Server: "nfs.example.org", Export: "/x", Options: "hard"}
	for name, tt := range map[string]struct {
		change func(*cloudinit.Guest)
		path   string
	}{
		"script name": {
			func(g *cloudinit.Guest) { g.Scripts = []cloudinit.Script{{Name: "A b", Content: "x"}} }, "scripts[0].name",
		},
		"empty script": {
			func(g *cloudinit.Guest) { g.Scripts = []cloudinit.Script{{Name: "a", Content: " \n"}} },
			"scripts[0].content",
		},
		"name twice": {func(g *cloudinit.Guest) {
			g.Scripts = []cloudinit.Script{{Name: "a", Content: "x"}, {Name: "a", Content: "x"}}
		}, "scripts[1].name"},
		"share path": {
			func(g *cloudinit.Guest) { g.Shares = []cloudinit.Share{good}; g.Shares[0].Path = "/a b" },
			"shares[0].path",
		},
		"share server": {
			func(g *cloudinit.Guest) { g.Shares = []cloudinit.Share{good}; g.Shares[0].Server = "a;b" },
			"shares[0].server",
		},
		"share export": {
			func(g *cloudinit.Guest) { g.Shares = []cloudinit.Share{good}; g.Shares[0].Export = "x" },
			"shares[0].export",
		},
		"share sub": {
			func(g *cloudinit.Guest) { g.Shares = []cloudinit.Share{good}; g.Shares[0].Sub = "../x" }, "shares[0].sub",
		},
		"share options": {
			func(g *cloudinit.Guest) { g.Shares = []cloudinit.Share{good}; g.Shares[0].Options = "a b" },
			"shares[0].options",
		},
		"share on a disk": {
			func(g *cloudinit.Guest) { g.Shares = []cloudinit.Share{good}; g.Shares[0].Path = "/var/lib/etcd/x" },
			"shares[0].path",
		},
		"nested shares": {
			func(g *cloudinit.Guest) { g.Shares = []cloudinit.Share{good, good}; g.Shares[1].Path = "/srv/x" },
			"shares[1].path",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := master(t)
			tt.change(&g)
			_, err := cloudinit.Render(g)
			e, ok := errors.AsType[*director.Error](err)
			if !ok || e.Kind != director.KindInvalid || len(e.Fields) != 1 || e.Fields[0].Path != tt.path {
				t.Fatalf("got %v, want invalid at %s", err, tt.path)
			}
		})
	}
}
