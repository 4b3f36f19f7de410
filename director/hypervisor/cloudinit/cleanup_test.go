package cloudinit

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The script runs for real, below another root directory.
func TestCleanUpTakesAwayWhatIsForeign(t *testing.T) {
	t.Parallel()
	foreign := []string{
		"etc/apt/sources.list", "etc/apt/sources.list.d/debian.sources", "etc/yum.repos.d/base.repo",
		"etc/cloud/cloud.cfg.d/90-azure.cfg",
		"var/lib/cloud/instances/i-old/user-data.txt", "var/lib/cloud/seed/nocloud/meta-data",
		"root/.ssh/authorized_keys", "home/ubuntu/.ssh/authorized_keys",
		"opt/vendor/agent", "opt/vendor/agent.conf",
	}
	ours := []string{
		"etc/cloud/cloud.cfg.d/05_logging.cfg", "etc/cloud/cloud.cfg", "var/lib/cloud/instances/m1/user-data.txt",
		"etc/ssh/sshd_config", "opt/other", "home/ubuntu/.profile",
		"etc/apt/trusted.gpg.d/debian.asc",
	}
	root := t.TempDir()
	for _, name := range append(foreign, ours...) {
		path := filepath.Join(root, name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/var/lib/cloud/instances/m1", filepath.Join(root, "var/lib/cloud/instance")); err != nil {
		t.Fatal(err)
	}
	c := CleanUp{What: []string{"keys", "cloud", "repositories"}, Paths: []string{"/opt/vendor/agent*", "/opt/nothing"}}
	run := func() string {
		t.Helper()
		out, err := exec.CommandContext(context.Background(), "sh", "-c", c.script(root)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	if out := run(); out != "" {
		t.Errorf("it says %q", out)
	}
	got := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		got[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"etc/apt/sources.list": "", "var/lib/kaas/cleaned/done": ""}
	for _, name := range ours {
		want[name] = name
	}
	for _, name := range foreign {
		want["var/lib/kaas/cleaned/"+name] = name
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// What comes later stays.
	late := filepath.Join(root, "etc/apt/sources.list.d/ours.list")
	if err := os.WriteFile(late, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run()
	if _, err := os.Stat(late); err != nil {
		t.Error(err)
	}
}
