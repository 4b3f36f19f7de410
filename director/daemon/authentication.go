package daemon

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/store"
)

func (d *Daemon) authentication(ctx context.Context, db *store.Store, out io.Writer) (*auth.Service, error) {
	service, err := auth.New(db, auth.Config{
		TokenTTL: time.Duration(d.cfg.TokenLife), Idle: time.Duration(d.cfg.SessionIdle),
		Changed: d.state().passwordChanged,
		People:  d.people,
	})
	if err != nil {
		return nil, err
	}
	hash, err := readLine("adminPasswordHashFile", d.cfg.AdminPasswordHashFile)
	if err != nil {
		return nil, err
	}
	initial, err := readLine("adminPasswordFile", d.cfg.AdminPasswordFile)
	if err != nil {
		return nil, err
	}
	switch {
	case hash != "":
		_, err = service.EnsureAdminHash(ctx, hash.Reveal())
	case initial != "":
		_, _, err = service.EnsureAdmin(ctx, initial)
	default:
		err = d.state().ensureOneTime(ctx, service, out)
	}
	return service, err
}

// readLine returns what is in the file that the setting names, without the ends of lines after it; nothing without a
// file.
func readLine(setting, file string) (director.Secret, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", director.Errorf(director.KindInvalid, "daemon.config", "%s: %w", setting, err)
	}
	return director.Secret(strings.TrimRight(string(text), "\r\n")), nil
}
