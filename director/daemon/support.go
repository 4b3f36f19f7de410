package daemon

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/archives"
	"github.com/director-kaas/kaas/director/store"
)

// support returns what archives tell of this director. What cannot be found out is said in its place.
func (d *Daemon) support(
	db *store.Store, build Build, playbook, tree string, push director.Secret,
) func(context.Context) archives.Support {
	return func(ctx context.Context) archives.Support {
		config, err := yaml.Marshal(d.cfg)
		if err != nil {
			config = []byte("# " + err.Error() + "\n")
		}
		versions := map[string]string{
			"director": build.Version, "commit": build.Commit, "go": runtime.Version(),
			"platform":  runtime.GOOS + "/" + runtime.GOARCH,
			"playbooks": tree, "ansible": ansibleVersion(ctx, playbook), "director_id": db.DirectorID(),
		}
		versions["database"], versions["schema"], err = db.Schema(ctx)
		if err != nil {
			versions["schema"] = err.Error()
		}
		s := archives.Support{Versions: versions, Config: config, Private: []director.Secret{push}}
		for _, file := range []string{
			d.cfg.AdminPasswordFile, d.cfg.AdminPasswordHashFile, d.cfg.DatabasePasswordFile, d.path("sealing.key"),
			d.cfg.CertificateKeyFile,
		} {
			if file == "" {
				continue
			}
			if text, err := os.ReadFile(file); err == nil { // what cannot be read has not been read before either
				s.Private = append(s.Private, director.Secret(strings.TrimSpace(string(text))))
			}
		}
		return s
	}
}

// ansibleVersion asks ansible-playbook, which takes a second.
func ansibleVersion(ctx context.Context, playbook string) string {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, playbook, "--version")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C.UTF-8"}
	out, err := cmd.Output()
	if err != nil {
		return "unknown: " + err.Error()
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}
