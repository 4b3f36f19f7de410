package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/daemon"
	"github.com/director-kaas/kaas/director/recovery"
)

const opRestore = "director.restore"

// restoring is what the command was asked for.
type restoring struct {
	config, stateDir, identity, bundle string
}

// runRestore makes a director of a bundle. It does not start it.
func runRestore(args []string, config string, out io.Writer) error {
	r := restoring{config: config}
	flags := flag.NewFlagSet("director restore", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&r.config, "config", config, "configuration `file`; one that is not there is taken from the bundle")
	flags.StringVar(&r.identity, "identity", "", "`file` with the key of a recipient, as age-keygen writes it")
	flags.StringVar(
		&r.stateDir, "state-dir", daemon.DefaultConfig().StateDir,
		"state `directory`, when the configuration is not there",
	)
	flags.Usage = func() {
		_, _ = fmt.Fprint(out, "Usage: director restore [flags] BUNDLE\n\nMakes a director of a bundle that the "+
			"job backup has written, in an empty state directory,\nas the user that it will run as. The former "+
			"director must not run any more.\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return director.Errorf(director.KindInvalid, opRestore, "%w", err)
	}
	if flags.NArg() != 1 || r.identity == "" {
		return director.Errorf(director.KindInvalid, opRestore, "name -identity and one bundle").
			WithHint("director restore -help")
	}
	r.bundle = flags.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return r.run(ctx, out)
}

func (r restoring) run(ctx context.Context, out io.Writer) error {
	key, err := readIdentity(r.identity)
	if err != nil {
		return err
	}
	cfg, err := daemon.LoadConfig(r.config)
	_, missing := os.Stat(r.config)
	own := errors.Is(missing, fs.ErrNotExist) // the bundle's own configuration is used
	switch {
	case own:
		cfg.StateDir = r.stateDir
	case err != nil:
		return err
	}
	f, err := os.Open(r.bundle)
	if err != nil {
		return director.Errorf(director.KindInvalid, opRestore, "the bundle cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	u, err := recovery.Unpack(ctx, f, key, cfg.StateDir)
	if err != nil {
		return err
	}
	if err := r.place(ctx, u, cfg, own, out); err != nil {
		return errors.Join(err, u.Discard())
	}
	_, err = fmt.Fprintf(
		out, "The director %s of %s is restored in %s.\nNext: start it, log in, and look what has happened since: "+
			"directorctl schedules run drift --wait\n", u.Director, u.Made.Format("2006-01-02 15:04 UTC"), cfg.StateDir,
	)
	return err
}

// place puts the configuration, the database and the state in their places, in this order.
func (r restoring) place(
	ctx context.Context, u *recovery.Unpacked, cfg daemon.Config, own bool, out io.Writer,
) error {
	if own {
		text, there := u.ConfigFile(r.config)
		if !there {
			return director.Errorf(
				director.KindInvalid, opRestore, "there is no %s, and the bundle has none of that name", r.config,
			).WithHint("write a configuration first; see docs/start/own-hypervisor.md")
		}
		if dir := stateDirOf(text); dir != cfg.StateDir {
			return director.Errorf(
				director.KindInvalid, opRestore, "the bundle's configuration has stateDir %s, and not %s", dir,
				cfg.StateDir,
			).WithHint("run it again with -state-dir %s", dir)
		}
	}
	written, err := u.PutConfig(filepath.Dir(r.config))
	if err != nil {
		return director.Errorf(director.KindInvalid, opRestore, "the configuration cannot be written: %w", err).
			WithHint("copy it by hand, or run this as a user who may write into %s", filepath.Dir(r.config))
	}
	if len(written) > 0 {
		_, _ = fmt.Fprintf(out, "Written into %s: %s\n", filepath.Dir(r.config), strings.Join(written, ", "))
	}
	if own {
		if cfg, err = daemon.LoadConfig(r.config); err != nil {
			return err
		}
	}
	switch postgres := cfg.Database != ""; {
	case postgres != (u.Database == recovery.Postgres):
		return director.Errorf(
			director.KindConflict, opRestore, "the bundle has a database of the kind %s, and the configuration another",
			u.Database,
		).WithHint("correct database in %s", r.config)
	case postgres:
		p, err := cfg.Postgres()
		if err != nil {
			return err
		}
		server := recovery.Server{URL: p.URL, Password: p.Password}
		if err := server.Load(ctx, u.DatabasePath()); err != nil {
			return err
		}
	}
	return u.Place()
}

// stateDirOf finds stateDir in the text of a configuration, which may not be valid on this machine yet.
func stateDirOf(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "stateDir:"); ok {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return daemon.DefaultConfig().StateDir
}

// readIdentity reads a private key of age.
func readIdentity(file string) (age.Identity, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, opRestore, "the key cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	keys, err := age.ParseIdentities(io.LimitReader(f, 1<<16))
	if err != nil || len(keys) != 1 { // the parser's error may quote a key
		return nil, director.Errorf(director.KindInvalid, opRestore, "%s does not have one private key of age", file).
			WithHint("name the file that age-keygen has written for a recipient of the BackupTarget")
	}
	return keys[0], nil
}
