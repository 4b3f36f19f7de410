// Command director is the service: it keeps Kubernetes clusters on hypervisors.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/cores"
	"github.com/director-kaas/kaas/director/daemon"
	"github.com/director-kaas/kaas/director/simulate/pretend"
)

// Set by the linker.
var (
	version = "dev"
	commit  = "unknown"
)

// exitCodes maps kinds to exit codes, those of sysexits.h where one fits.
var exitCodes = map[director.Kind]int{
	director.KindInvalid: 78, director.KindUnauthenticated: 77, director.KindForbidden: 77, director.KindNotFound: 66,
	director.KindConflict: 73, director.KindStale: 73, director.KindExhausted: 74, director.KindUnavailable: 69,
	director.KindInternal: 70,
}

func main() {
	pretend.StandIn() // for a simulated director, if the small substitute is not in its directory
	cores.Overcommit()
	syscall.Umask(0o077) // what the director and its programs write is for its own user alone
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprint(os.Stderr, describe(err))
		os.Exit(exitCodes[director.KindOf(err)])
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("director", flag.ContinueOnError)
	flags.SetOutput(out)
	config := flags.String("config", "/etc/director/director.yaml", "configuration `file`")
	level := flags.String("log-level", "", "debug, info, warn or error; over the file's logLevel")
	show := flags.Bool("version", false, "print the version and exit")
	flags.Usage = func() {
		_, _ = fmt.Fprint(out, "Usage: director [flags]               run the director\n       director [flags] "+
			"check-config  check the configuration and exit\n"+
			"       director restore [flags] BUNDLE  make a director of a bundle; see director restore -help\n"+
			"       director simulate [flags] [FILE|DIRECTORY ...]  run a simulated director; see director simulate "+
			"-help\n"+
			"       director setup COMMAND  set up the appliance that this director is on; see director setup -help\n"+
			"       director consul-agent DIR  run the agent of Consul next to a director (DIR: its consulDir)\n"+
			"       director support FILE  write logs and configuration of the appliance, without secrets\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return director.Errorf(director.KindInvalid, "director.flags", "%w", err)
	}
	if *show {
		_, err := fmt.Fprintf(out, "director %s (%s)\n", version, commit)
		return err
	}
	switch flags.Arg(0) {
	case "simulate":
		return runSimulate(flags.Args()[1:], out)
	case "setup":
		return runSetup(flags.Args()[1:], out)
	case "consul-agent":
		return runConsulAgent(flags.Args()[1:])
	case "support":
		return runSupport(flags.Args()[1:], out)
	case "restore":
		return runRestore(flags.Args()[1:], *config, out)
	}
	cfg, err := daemon.LoadConfig(*config)
	if err != nil {
		return err
	}
	if *level != "" {
		if err := cfg.LogLevel.UnmarshalText([]byte(*level)); err != nil {
			return director.Errorf(director.KindInvalid, "director.flags", "-log-level: %w", err)
		}
	}
	switch flags.Arg(0) {
	case "":
		return serve(cfg, out, nil)
	case "check-config":
		_, err := fmt.Fprintf(out, "%s is fine\n", *config)
		return err
	}
	return director.Errorf(director.KindInvalid, "director.flags", "%q is not a command", flags.Arg(0)).
		WithHint("director -help")
}

// serve runs the director until it is told to stop. ready is called once its API answers; it may be nil.
func serve(cfg daemon.Config, out io.Writer, ready func(*daemon.Daemon) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(logHandler(cfg))
	slog.SetDefault(log) //nolint:forbidigo // the library of the authorization server writes there alone
	d, err := daemon.Start(ctx, cfg, daemon.Build{Version: version, Commit: commit}, log, out)
	if err != nil {
		return err
	}
	if ready != nil {
		if err := ready(d); err != nil {
			return errors.Join(err, d.Stop(context.WithoutCancel(ctx)))
		}
	}
	<-ctx.Done()
	log.Info("the director is stopping; running steps continue at the next start")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return d.Stop(ctx)
}

func logHandler(cfg daemon.Config) slog.Handler {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.NewJSONHandler(os.Stderr, opts)
	}
	return slog.NewTextHandler(os.Stderr, opts)
}

// describe renders an error for the terminal: what is wrong, each place, what to do. The administrator of the service
// also gets the cause.
func describe(err error) string {
	e, ok := errors.AsType[*director.Error](err)
	if !ok {
		return "director: " + err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "director: %s\n", e.Msg)
	for _, f := range e.Fields {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	if e.Err != nil && !strings.Contains(e.Msg, e.Err.Error()) {
		fmt.Fprintf(&b, "  cause: %v\n", e.Err)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "  next: %s\n", e.Hint)
	}
	return b.String()
}
