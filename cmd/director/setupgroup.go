package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/appliance"
	"github.com/director-kaas/kaas/director/store"
)

// setupGroup makes the appliance the first one of a group, or changes the group on a member.
func setupGroup(ctx context.Context, args []string, out io.Writer) error {
	var r appliance.GroupRequest
	flags := flag.NewFlagSet("director setup group", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&r.Address, "address", "", "`address` of the group: one that a ready member has")
	flags.StringVar(&r.Files, "files", "", "NFS with the files that members share, as `HOST:/PATH`")
	flags.IntVar(
		&r.Router, "router", 0,
		"`number` of the group in VRRP, 1 to 255, of no other in the network; the last part of the address unless set",
	)
	flags.Usage = func() {
		_, _ = fmt.Fprint(out, "Usage: director setup group -address ADDRESS [flags] MEMBER...\n\n"+
			"Names the own addresses of all appliances in the group, in the order in which they take\n"+
			"the address. See docs/operate/high-availability.md.\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return director.Errorf(director.KindInvalid, opSetup, "%w", err)
	}
	r.Members = flags.Args()
	p := place()
	s, err := p.Load()
	if err != nil {
		return err
	}
	g, err := appliance.NewGroup(r, s)
	if err != nil {
		return err
	}
	if err := p.CheckGroup(); err != nil {
		return err
	}
	if err := appliance.StopDirector(ctx); err != nil {
		return err
	}
	if err := p.MoveFiles(ctx, g); err != nil {
		return errors.Join(err, appliance.StartDirector(ctx))
	}
	if err := p.SaveGroup(g); err != nil {
		return errors.Join(err, appliance.StartDirector(ctx))
	}
	if err := p.Activate(ctx, s, true); err != nil {
		return err
	}
	_, err = fmt.Fprintf(
		out, "This appliance is in the group of %s. Others join it: sudo director setup share\n", g.Address,
	)
	return err
}

// setupShare answers appliances that join, until all have joined.
func setupShare(ctx context.Context, _ []string, out io.Writer) error {
	p := place()
	s, err := p.Load()
	if err != nil {
		return err
	}
	if _, err := p.LoadGroup(); err != nil {
		return err
	}
	schema, err := store.Latest()
	if err != nil {
		return err
	}
	own := s.Address.Addr()
	at := net.JoinHostPort(own.String(), strconv.Itoa(appliance.SharePort))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return director.Errorf(director.KindConflict, opSetup, "no appliance can join: %w", err).
			WithHint("end the other director setup share")
	}
	code := appliance.NewCode()
	_, _ = fmt.Fprintf(
		out, "On each other appliance of the group, within %s:\n\n  sudo director setup join %s\n\nIt asks for this "+
			"code. Who has it can get the keys of the director: tell no one else.\n\n  %s\n\n",
		appliance.ShareWithin, own, code.Reveal(),
	)
	ctx, cancel := context.WithTimeout(ctx, appliance.ShareWithin)
	defer cancel()
	err = p.Share(ctx, l, code, schema, func(a netip.Addr) { _, _ = fmt.Fprintf(out, "%s has what it needs.\n", a) })
	if errors.Is(err, context.DeadlineExceeded) {
		return director.Errorf(
			director.KindUnavailable, opSetup, "not all members have joined within %s", appliance.ShareWithin,
		).WithHint("run it again for a new code")
	}
	if err == nil {
		_, err = fmt.Fprintln(out, "All members have what they need. The code is of no use any more.")
	}
	return err
}

// setupJoin has the appliance join a group.
func setupJoin(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return director.Errorf(director.KindInvalid, opSetup, "name the appliance on which director setup share runs").
			WithHint("director setup join 192.0.2.11")
	}
	from, err := netip.ParseAddr(args[0])
	if err != nil {
		return director.Errorf(director.KindInvalid, opSetup, "%q is no address", args[0]).
			WithHint("the own address of a member, such as 192.0.2.11")
	}
	schema, err := store.Latest()
	if err != nil {
		return err
	}
	code, err := terminal{in: os.Stdin, out: out}.Password("Code: ")
	if err != nil {
		return director.Errorf(director.KindInvalid, opSetup, "no code: %w", err)
	}
	p, stopped := place(), false
	g, aside, err := p.Join(ctx, from, director.Secret(code), schema, func(ctx context.Context) error {
		stopped = true
		return appliance.StopDirector(ctx)
	})
	if err != nil && stopped {
		return errors.Join(err, appliance.StartDirector(ctx))
	}
	if err != nil {
		return err
	}
	if aside != "" {
		_, _ = fmt.Fprintf(
			out, "What the director of this appliance had is in %s; remove it when the group works.\n", aside,
		)
	}
	s, err := p.Load()
	if err != nil {
		return err
	}
	if err := p.Activate(ctx, s, true); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "This appliance is in the group of %s. Its director starts within a minute.\n", g.Address)
	return err
}
