package recovery

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// Server is a PostgreSQL database.
type Server struct {
	URL      string // without a password
	Password director.Secret
}

// Dump writes the database into a new file, as it is at one moment.
func (s Server) Dump(ctx context.Context, path string) error {
	return s.run(ctx, filepath.Dir(path), "pg_dump", "--format=custom", "--no-owner", "--no-privileges", "--file="+path,
		"--dbname="+s.URL)
}

// Load fills an empty database from such a file, wholly or not at all.
func (s Server) Load(ctx context.Context, path string) error {
	return s.run(ctx, filepath.Dir(path), "pg_restore", "--single-transaction", "--exit-on-error", "--no-owner",
		"--no-privileges", "--dbname="+s.URL, path)
}

// run runs a program of PostgreSQL. The password is in a file that is removed afterwards, in dir.
func (s Server) run(ctx context.Context, dir, program string, args ...string) error {
	const op = "recovery.postgres"
	file := filepath.Join(dir, "pgpass")
	escaped := strings.NewReplacer(`\`, `\\`, `:`, `\:`).Replace(s.Password.Reveal())
	if err := os.WriteFile(file, []byte("*:*:*:*:"+escaped+"\n"), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(file) }()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "PGPASSFILE="+file, "PGCONNECT_TIMEOUT=15")
	var said bytes.Buffer
	cmd.Stderr = &said
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return director.Errorf(director.KindInvalid, op, "there is no %s on this machine", program).
			WithHint("install the client of PostgreSQL (Debian: postgresql-client), of the server's version or newer")
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		text := said.String()
		return director.Errorf(
			director.KindUnavailable, op, "%s failed: %s", program, strings.TrimSpace(text[:min(len(text), 500)]),
		).WithHint("the client must have the server's version or a newer one, and the database must be empty")
	}
	return nil
}
