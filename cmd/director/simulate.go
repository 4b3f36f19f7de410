package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/daemon"
)

const simulateUsage = `Usage: director simulate [flags] [FILE|DIRECTORY ...]

Starts a director whose hypervisors, nodes and playbooks are pretended, and applies the documents to it.
It needs neither root nor libvirt nor Ansible, and touches nothing but its state directory.
directorctl works against it as usual.

`

// runSimulate starts a director that simulates.
func runSimulate(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("director simulate", flag.ContinueOnError)
	flags.SetOutput(out)
	config := flags.String(
		"config", "", "configuration `file`; without one, the director listens on this machine alone",
	)
	state := flags.String(
		"state", "", "state `directory`, over the file's stateDir; a temporary one if neither is given",
	)
	listen := flags.String("listen", "", "`address` of the API, over the file's listen")
	registry := flags.String("registry-listen", "", "`address` of the registry, over the file's registryListen")
	level := flags.String("log-level", "", "debug, info, warn or error; over the file's logLevel")
	flags.Usage = func() {
		_, _ = fmt.Fprint(out, simulateUsage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return director.Errorf(director.KindInvalid, "director.flags", "%w", err)
	}
	cfg, err := simulateConfig(*config, *state)
	if err != nil {
		return err
	}
	for flag, into := range map[*string]*string{listen: &cfg.Listen, registry: &cfg.RegistryListen} {
		if *flag != "" {
			*into = *flag
		}
	}
	if *level != "" {
		if err := cfg.LogLevel.UnmarshalText([]byte(*level)); err != nil {
			return director.Errorf(director.KindInvalid, "director.flags", "-log-level: %w", err)
		}
	}
	cfg.Simulation.Documents = append(cfg.Simulation.Documents, flags.Args()...)
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := writePassword(&cfg); err != nil {
		return err
	}
	return serve(cfg, out, func(d *daemon.Daemon) error { return greet(cfg, d, out) })
}

// simulateConfig returns the configuration of the file, or one for this machine alone.
func simulateConfig(file, state string) (daemon.Config, error) {
	var cfg daemon.Config
	if file != "" {
		var err error
		if cfg, err = daemon.LoadConfig(file); err != nil {
			return cfg, err
		}
	} else {
		cfg = daemon.DefaultConfig()
		cfg.StateDir, cfg.Listen, cfg.RegistryListen, cfg.Address = "", "127.0.0.1:8443", "127.0.0.1:5000",
			netip.MustParseAddr("127.0.0.1")
		cfg.Forks = 200 // a pretended one costs next to nothing
	}
	cfg.Simulate = true
	if state != "" {
		abs, err := filepath.Abs(state)
		if err != nil {
			return cfg, director.Errorf(director.KindInvalid, "director.flags", "-state: %w", err)
		}
		cfg.StateDir = abs
	}
	if cfg.StateDir == "" {
		dir, err := os.MkdirTemp("", "director-simulate-")
		if err != nil {
			return cfg, director.Errorf(
				director.KindInternal, "director.simulate", "a temporary state directory cannot be made: %w", err,
			).
				WithHint("name one with -state")
		}
		cfg.StateDir = dir
	}
	return cfg, nil
}

// writePassword makes a first password and keeps it in a file, unless there is one.
func writePassword(cfg *daemon.Config) error {
	if cfg.AdminPasswordFile != "" {
		return nil
	}
	dir := cfg.StateDir
	if cfg.Database != "" { // its directors have their users in common, too
		dir = cfg.Simulation.Worlds
	}
	cfg.AdminPasswordFile = filepath.Join(dir, "admin.password")
	b := make([]byte, 18)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return director.Errorf(director.KindInternal, "director.simulate", "%s cannot be made: %w", dir, err)
	}
	f, err := os.OpenFile(cfg.AdminPasswordFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err == nil {
		_, err = fmt.Fprintln(f, base64.RawURLEncoding.EncodeToString(b))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return director.Errorf(
			director.KindInternal, "director.simulate", "the password of admin cannot be written: %w", err,
		)
	}
	return nil
}

func greet(cfg daemon.Config, d *daemon.Daemon, out io.Writer) error {
	_, err := fmt.Fprintf(out, `
This director simulates: nothing that it makes is real.

  state     %[2]s
  password  of admin: %[3]s

  directorctl login --server https://%[1]s --ca-file %[2]s/tls/ca.crt --user admin --password-file %[3]s

`, d.Addr(), cfg.StateDir, cfg.AdminPasswordFile)
	return err
}
