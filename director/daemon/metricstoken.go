package daemon

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/whole"
)

// metricsToken returns the token that /metrics asks for. That of the configuration has to be there; our own is made at
// the first start.
func (d *Daemon) metricsToken() (director.Secret, error) {
	path := d.cfg.MetricsTokenFile
	if path == "" {
		path = d.path("metrics.token")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			fresh := make([]byte, 32)
			_, _ = rand.Read(fresh) // crypto/rand.Read never fails
			if err := whole.Write(path, []byte(base64.RawURLEncoding.EncodeToString(fresh)+"\n"), 0o600); err != nil {
				return "", director.Errorf(
					director.KindInternal, "daemon.metrics", "the token of the metrics cannot be written: %w", err,
				).
					WithHint("check the space and the permissions of %s", d.cfg.StateDir)
			}
		}
	}
	text, err := os.ReadFile(path)
	token := director.Secret(strings.TrimSpace(string(text)))
	if err == nil && token == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", director.Errorf(
			director.KindInvalid, "daemon.metrics", "metricsTokenFile: %s cannot be used: %w", path, err,
		).
			WithHint("write a long random text into it, readable by the director and by the metrics' reader alone")
	}
	return token, nil
}
