package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/appliance"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/store"
)

const opSetup = "director.setup"

// setupCommands are the commands below setup. The units of the appliance call most of them.
var setupCommands = map[string]func(context.Context, []string, io.Writer) error{
	"disk": func(ctx context.Context, _ []string, _ io.Writer) error { return place().MountData(ctx) },
	"apply": func(ctx context.Context, _ []string, _ io.Writer) error {
		s, _, err := place().SetUp(ctx)
		if err != nil {
			return err
		}
		if err := place().Activate(ctx, s, false); err != nil {
			return err
		}
		keepData()
		if _, err := rootPackages().Compare(); err != nil { // the director starts without knowing it
			_, _ = fmt.Fprintf(os.Stderr, "director: %s\n", director.MessageOf(err))
		}
		// What is wrong with the log server keeps nothing else from working.
		return errors.Join(place().Look(ctx), place().WriteLogs(s))
	},
	"change":  func(ctx context.Context, _ []string, _ io.Writer) error { return place().Change(ctx) },
	"abandon": func(ctx context.Context, _ []string, _ io.Writer) error { return place().Abandon(ctx) },
	"trial":   func(ctx context.Context, _ []string, _ io.Writer) error { return place().Trial(ctx) },
	"return":  setupReturn,
	"config": func(ctx context.Context, _ []string, _ io.Writer) error {
		return place().Config(ctx, time.Minute)
	},
	"properties": func(_ context.Context, _ []string, out io.Writer) error {
		return json.NewEncoder(out).Encode(appliance.Properties())
	},
	"schema": func(_ context.Context, _ []string, out io.Writer) error {
		number, err := store.Latest()
		if err == nil {
			_, err = fmt.Fprintln(out, number)
		}
		return err
	},
	"console": setupConsole,
	"group":   setupGroup,
	"share":   setupShare,
	"join":    setupJoin,
	"shared":  func(ctx context.Context, _ []string, _ io.Writer) error { return place().MountShared(ctx) },
	"edit":    setupEdit,
	"check":   setupCheck,
	"updates": setupUpdates,
	"hash":    setupHash,
}

const setupUsage = `Usage: director setup COMMAND

Sets up the appliance that this director is on. See docs/start/appliance.md.

  edit             ask for the properties again, and apply them
  apply            write again what the services of the VM read
  check [TARGET]   ask the servers for DNS and NTP, and connect to hypervisors: https://VCENTER,
                   qemu+ssh://root@HOST/system or HOST:PORT; and say how old the root disk is
  updates INRELEASE PACKAGES
                   compare the root disk with Debian's list of security updates, and keep the list
  group [flags] MEMBER...
                   make this appliance the first one of a group behind one address, or change the group
  share            write a code with which other appliances join the group, and answer them
  join MEMBER      join the group of the appliance with that address; asks for the code
  hash             read a password, and write its hash for the property admin_password_hash
  disk             mount the data disk, and format a blank one
  shared           mount the files that a group shares
  config           write the configuration of the director
  properties       write the properties of the first boot, in JSON
  change           do what the director asks for: write the root of an upgrade, or take the kept one, and restart
  abandon          end a change whose process has died
  trial            wait until a root that is tried is healthy, and keep it; otherwise restart with the former one
  return [--lose-changes]
                   restore the data that was copied when a newer root disk was attached, for the former one; without
                   the flag, say which data that is
  schema           write the version of the database that this director brings
  console          what runs on the VM's console: the questions of the first boot, and then the log-in
`

func place() appliance.Place { return appliance.Default() }

func rootPackages() appliance.Packages { return appliance.Packages{Place: place()} }

func runSetup(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("director setup", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() { _, _ = io.WriteString(out, setupUsage) }
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return director.Errorf(director.KindInvalid, opSetup, "%w", err)
	}
	command, ok := setupCommands[flags.Arg(0)]
	if !ok {
		return director.Errorf(director.KindInvalid, opSetup, "%q is not a command of setup", flags.Arg(0)).
			WithHint("director setup -help")
	}
	rest := flags.Args()[1:]
	if len(rest) > 0 && !slices.Contains([]string{"check", "group", "join", "return", "updates"}, flags.Arg(0)) {
		return director.Errorf(director.KindInvalid, opSetup, "%q: %s takes no arguments", rest[0], flags.Arg(0)).
			WithHint("director setup -help")
	}
	if !slices.Contains(anywhere, flags.Arg(0)) {
		if err := onAppliance(applianceMark); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return command(ctx, rest, out)
}

// anywhere are the commands that change nothing on the machine.
var anywhere = []string{"hash", "properties", "schema"}

// applianceMark is a file of the image.
const applianceMark = "/usr/lib/director/appliance"

// onAppliance returns an error on any other machine: setup would format a blank disk of it, and write its settings.
func onAppliance(mark string) error {
	if _, err := os.Stat(mark); err != nil {
		return director.Errorf(director.KindConflict, opSetup, "this machine is not the director's appliance: %w", err).
			WithHint("run it on the appliance; elsewhere, write a configuration: docs/start/own-hypervisor.md")
	}
	return nil
}

// setupConsole asks until the appliance is set up, and then becomes the log-in. It does not return.
func setupConsole(ctx context.Context, _ []string, out io.Writer) error {
	t := terminal{in: os.Stdin, out: out}
	for {
		err := askOnce(ctx, t)
		if err == nil {
			break
		}
		_, _ = fmt.Fprintf(t, "\n%s", appliance.Explain(err))
		if errors.Is(err, io.EOF) {
			return err // the unit starts again, with a terminal that works
		}
		if _, err := t.Line("Press Enter to try again. "); err != nil {
			return err
		}
	}
	return syscall.Exec(
		"/sbin/agetty", []string{"agetty", "--noclear", "--keep-baud", "-", "115200,57600,38400,9600", "vt220"},
		os.Environ(),
	)
}

// askOnce asks a person, if the appliance is not set up yet.
func askOnce(ctx context.Context, t terminal) error {
	p := place()
	if err := p.MountData(ctx); err != nil {
		return err
	}
	s, given, err := p.SetUp(ctx)
	switch {
	case err == nil && given.Source == "":
		return nil
	case err == nil:
		return p.Activate(ctx, s, true)
	}
	problem := err
	if director.KindOf(err) == director.KindNotFound {
		problem = nil
	} else if given.Source != "" {
		_, _ = fmt.Fprintf(t, "\nThe properties are from %s.\n", given.Source)
	}
	if s, err = appliance.Form(t, given.Properties, problem); err != nil {
		return err
	}
	done, err := p.SaveFirst(s)
	if err != nil {
		return err
	}
	if !done {
		_, _ = fmt.Fprintln(t, "It was set up on another console meanwhile.")
		return nil
	}
	if err := p.Activate(ctx, s, true); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(t, "\nThe director is set up. Its console opens within a minute.")
	return nil
}

func setupEdit(ctx context.Context, _ []string, out io.Writer) error {
	p := place()
	was, err := p.Load()
	if err != nil {
		return err
	}
	s, err := appliance.Form(terminal{in: os.Stdin, out: out}, was.Values(), nil)
	if err != nil {
		return err
	}
	if s.PasswordHash == was.PasswordHash {
		s.ConsoleHash = was.ConsoleHash
	}
	if err := p.Save(s); err != nil {
		return err
	}
	return p.Activate(ctx, s, true)
}

func setupCheck(ctx context.Context, targets []string, out io.Writer) error {
	s, err := place().Load()
	if err != nil {
		return err
	}
	packages, err := rootPackages().Compare()
	if err != nil {
		return err
	}
	return sayFindings(out, append(
		appliance.Check(ctx, s, targets), appliance.CheckPackages(packages, time.Now())...,
	))
}

// keepData copies the data before a newer root disk changes it. The director starts without a copy, too.
func keepData() {
	kept, err := appliance.Former{Place: place()}.Keep(time.Now())
	if err != nil {
		_, _ = fmt.Fprintf(
			os.Stderr, "director: no copy of the data is made before this version changes it: %s\n",
			director.MessageOf(err),
		)
	}
	if kept {
		_, _ = fmt.Fprintln(os.Stderr, "director: the former root disk's data was copied; see director setup return")
	}
}

// setupReturn goes back to the data from before a newer root disk.
func setupReturn(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 1 || len(args) == 1 && strings.TrimPrefix(args[0], "-") != "-lose-changes" {
		return director.Errorf(director.KindInvalid, opSetup, "return takes --lose-changes alone").
			WithHint("director setup return --lose-changes")
	}
	former := appliance.Former{Place: place()}
	saved, err := former.Saved()
	if err == nil && len(args) == 0 {
		return director.Errorf(
			director.KindConflict, opSetup,
			"the data of version %s, from %s, would be restored, and what has changed since be lost",
			saved.Version, saved.At.Format(time.RFC3339),
		).WithHint("agree to it: director setup return --lose-changes")
	}
	if err == nil {
		saved, err = former.Return(ctx)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(
		out, "The data of version %s is restored, as it was at %s. The director starts.\n",
		saved.Version, saved.At.Format(time.RFC3339),
	)
	return err
}

// setupUpdates compares the root with a list of security updates that the administrator brought.
func setupUpdates(ctx context.Context, files []string, out io.Writer) error {
	if len(files) != 2 {
		return director.Errorf(director.KindInvalid, opSetup, "name the files InRelease and Packages of a mirror").
			WithHint("director setup updates InRelease Packages; docs/operate/appliance.md says where they are")
	}
	packages, err := rootPackages().Read(ctx, files[0], files[1])
	if err != nil {
		return err
	}
	return sayFindings(out, appliance.CheckPackages(packages, time.Now()))
}

// sayFindings writes what was found. Errors: unavailable if something is wrong.
func sayFindings(out io.Writer, all []appliance.Finding) error {
	failed := 0
	for _, f := range all {
		if f.Err == nil {
			_, _ = fmt.Fprintf(out, "ok      %s %s\n", f.What, f.Good)
			continue
		}
		word := "WARNING"
		if !f.Warning {
			word = "FAILED "
			failed++
		}
		_, _ = fmt.Fprintf(
			out, "%s %s %s\n        next: %s\n", word, f.What, director.MessageOf(f.Err), director.HintOf(f.Err),
		)
	}
	if failed > 0 {
		return director.Errorf(director.KindUnavailable, opSetup, "%d checks failed", failed)
	}
	return nil
}

// runSupport writes a bundle for support.
func runSupport(args []string, out io.Writer) error {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return director.Errorf(director.KindInvalid, "director.support", "name one new file for the bundle").
			WithHint("director support /tmp/support.tar.gz")
	}
	if err := onAppliance(applianceMark); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := place().WriteSupport(ctx, args[0], time.Now()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "Written: %s. Look through it before you send it.\n", args[0])
	return err
}

// setupHash writes the hash of a password that it reads from the terminal, or from standard input.
func setupHash(_ context.Context, _ []string, out io.Writer) error {
	password, err := terminal{in: os.Stdin, out: os.Stderr}.Password("Password: ")
	if err != nil {
		return director.Errorf(director.KindInvalid, opSetup, "no password: %w", err)
	}
	if err := auth.CheckPassword("password", director.Secret(password)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, auth.HashPassword(director.Secret(password)))
	return err
}

// terminal asks a person at standard input, or reads lines of a file.
type terminal struct {
	in  *os.File
	out io.Writer
}

var _ appliance.Terminal = terminal{}

func (t terminal) Write(b []byte) (int, error) { return t.out.Write(b) }

// mostLine bounds a line: a terminal gives no more than 4 KiB at once.
const mostLine = 64 << 10

func (t terminal) Line(prompt string) (string, error) {
	_, _ = io.WriteString(t.out, prompt)
	var line strings.Builder
	b := make([]byte, 1) // what follows the line is for who reads next
	for line.Len() < mostLine {
		n, err := t.in.Read(b)
		switch {
		case n == 1 && b[0] == '\n':
			return strings.TrimSuffix(line.String(), "\r"), nil
		case n == 1:
			line.WriteByte(b[0])
		case err != nil && line.Len() > 0 && errors.Is(err, io.EOF):
			return line.String(), nil
		case err != nil:
			return "", err
		}
	}
	return "", errors.New("the line is too long")
}

func (t terminal) Password(prompt string) (string, error) {
	if !term.IsTerminal(int(t.in.Fd())) {
		return t.Line("")
	}
	_, _ = io.WriteString(t.out, prompt)
	text, err := term.ReadPassword(int(t.in.Fd()))
	_, _ = io.WriteString(t.out, "\n")
	return string(text), err
}
