package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulagent"
)

// runConsulAgent runs the agent of Consul next to a director, with its own data where systemd keeps the state of units.
func runConsulAgent(args []string) error {
	const op = "director.consul_agent"
	if len(args) != 1 || !filepath.IsAbs(args[0]) {
		return director.Errorf(
			director.KindInvalid, op, "name the directory that consulDir of the director's configuration names",
		).WithHint("director consul-agent /var/lib/director-consul/told")
	}
	data := os.Getenv("STATE_DIRECTORY")
	if !filepath.IsAbs(data) {
		return director.Errorf(
			director.KindInvalid, op, "STATE_DIRECTORY does not name the directory of the agent's own data",
		).WithHint("run it as a unit with StateDirectory=director-consul")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return consulagent.Run(ctx, consulagent.At(args[0]), data, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}
