package main

import (
	"context"

	"github.com/spf13/cobra"
)

// consent is whether the person agreed on the command line to what a command would ask.
type consent struct{ yes bool }

func (c *consent) flag(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, usage)
}

// agreed asks the question unless the flag --yes has answered it.
func (a *app) agreed(ctx context.Context, c consent, question string) (bool, error) {
	if c.yes {
		return true, nil
	}
	return a.confirm(ctx, question)
}

// startOptions say how a plan that was shown is started.
type startOptions struct {
	consent
	wait bool
}

func (o *startOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.wait, "wait", false, "follow the plan to its end")
	o.flag(cmd, "start without asking")
}

// requestOptions are for commands that make a plan and start it, unless they are told to make it only.
type requestOptions struct {
	startOptions
	planOnly bool
}

func (o *requestOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.planOnly, "plan-only", false, "freeze the plan and show it, and do not start it")
	o.startOptions.flags(cmd)
}

// makeOptions are for commands that make plans, and start them only with --start.
type makeOptions struct {
	startOptions
	start bool
}

func (o *makeOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.start, "start", false, "start what was planned")
	o.startOptions.flags(cmd)
}

// check refuses flags that have no meaning together.
func (o *makeOptions) check(cmd *cobra.Command, form string) error {
	switch {
	case (o.wait || o.yes) && !o.start:
		return usage(cmd, "--wait and --yes are for what --start starts")
	case o.start && form != formTable:
		return usage(cmd, "--start shows plans as tables")
	}
	return nil
}
