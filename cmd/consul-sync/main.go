// Command consul-sync runs in a cluster and syncs its Services with Consul, both ways, while the director is away. See
// docs/operate/consul-sync.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"k8s.io/klog/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulsync"
	"github.com/director-kaas/kaas/director/consulsync/controller"
)

// version is set by the linker.
var version = "dev"

// exitCodes maps kinds to exit codes, those of sysexits.h where one fits.
var exitCodes = map[director.Kind]int{
	director.KindInvalid: 78, director.KindUnauthenticated: 77, director.KindForbidden: 77, director.KindNotFound: 66,
	director.KindConflict: 73, director.KindStale: 73, director.KindExhausted: 74, director.KindUnavailable: 69,
	director.KindInternal: 70,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprint(os.Stderr, describe(err))
		os.Exit(exitCodes[director.KindOf(err)])
	}
}

func run(ctx context.Context, args []string, out, logs io.Writer) error {
	flags := flag.NewFlagSet("consul-sync", flag.ContinueOnError)
	flags.SetOutput(out)
	path := flags.String("config", "/etc/consul-sync/config.yaml", "configuration `file`")
	show := flags.Bool("version", false, "print the version and exit")
	flags.Usage = func() {
		_, _ = fmt.Fprint(out, "Usage: consul-sync [flags]               sync until a signal comes\n"+
			"       consul-sync [flags] check-config  check the configuration and exit\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return director.Errorf(director.KindInvalid, "consulsync.flags", "%w", err)
	}
	if *show {
		_, err := fmt.Fprintln(out, "consul-sync", version)
		return err
	}
	cfg, err := load(*path)
	if err != nil {
		return err
	}
	switch flags.Arg(0) {
	case "":
		return sync(ctx, cfg, logs)
	case "check-config":
		_, err := fmt.Fprintln(out, "The configuration is valid.")
		return err
	}
	return director.Errorf(director.KindInvalid, "consulsync.flags", "unknown command %q", flags.Arg(0)).
		WithHint("use check-config, or no command")
}

func load(path string) (consulsync.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return consulsync.Config{}, director.Errorf(director.KindInvalid, "consulsync.config", "%w", err).
			WithHint("name the configuration file with -config")
	}
	return consulsync.ParseConfig(text)
}

func sync(ctx context.Context, cfg consulsync.Config, logs io.Writer) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return director.Errorf(director.KindInvalid, "consulsync.config", "logLevel: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(log) // of Kubernetes' client
	// The client of Consul would read addresses and tokens from the environment.
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "CONSUL_") {
			if err := os.Unsetenv(name); err != nil {
				return director.Errorf(director.KindInternal, "consulsync.start", "%w", err)
			}
		}
	}
	kube, err := controller.KubeConfig(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return director.Errorf(director.KindInternal, "consulsync.start", "%w", err)
	}
	c, err := controller.New(controller.Options{
		Config: cfg, Kube: kube, Replica: host + "_" + uuid.NewString(), Version: version, Log: log,
	})
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return director.Errorf(director.KindConflict, "consulsync.listen", "%w", err).
			WithHint("set listen in the configuration to an address that is free")
	}
	log.InfoContext(ctx, "The sync has started", "version", version, "cluster", cfg.Cluster,
		"address", ln.Addr().String())
	err = c.Run(ctx, ln)
	if err == nil {
		log.InfoContext(context.WithoutCancel(ctx), "The sync has ended")
	}
	return err
}

// describe renders an error for a terminal: what is wrong, where, and what to do.
func describe(err error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "consul-sync: %s\n", director.MessageOf(err))
	for _, f := range director.FieldsOf(err) {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	if h := director.HintOf(err); h != "" {
		fmt.Fprintf(&b, "  %s\n", h)
	}
	return b.String()
}
