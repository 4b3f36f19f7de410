// Command bench measures what the director promises and prints one table: every bar with its goal and what was
// measured. `make bench` builds what it needs. Where a bar is about the director as a whole, the real program runs, on
// pretended hypervisors.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// row is a line of the table.
type row struct {
	what, goal, measured string
	met                  bool
}

// bar is a measurement that can be chosen by name. It may give several rows.
type bar struct {
	name    string
	measure func(context.Context, *bench) ([]row, error)
}

// bars in the order of the table.
var bars = []bar{
	{"first-step", firstStep},
	{"hooks", hooked},
	{"no-op", noOp},
	{"plan", planning},
	{"wide", wide},
	{"vm", overhead},
	{"kill", killed},
	{"log", logs},
	{"certificates", certificates},
	{"backup", backup},
	{"consul", consul},
	{"idle", idle},
	{"fleet", fleet},
}

// bench is what all measurements share.
type bench struct {
	bin, dir string // the binaries, and where a measurement may write
	part     int    // per cent of the size of the large bars
}

// of returns the part of a size that is to be measured.
func (b *bench) of(size int) int { return max(2, size*b.part/100) }

// say tells how a long measurement goes, beside the table.
func (*bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

// room makes a directory for one measurement.
func (b *bench) room(name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	return dir, os.MkdirAll(dir, 0o700)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	names := make([]string, len(bars))
	for i, b := range bars {
		names[i] = b.name
	}
	chosen := flag.String("bars", "", "measure only these, separated by commas: "+strings.Join(names, ", "))
	bin := flag.String("bin", "bin", "directory of director and pretend-ansible")
	dir := flag.String(
		"dir", "", "directory to keep what the directors leave; a temporary one that is removed if empty",
	)
	part := flag.Int(
		"part", 100,
		"`per cent` of the size of kill, log and fleet: to try the program itself, as the goals are for all of it",
	)
	flag.Parse()
	b := &bench{dir: *dir, part: *part}
	var err error
	if b.bin, err = filepath.Abs(*bin); err != nil {
		return err
	}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "director-bench-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(b.dir) }()
	}
	want := strings.FieldsFunc(*chosen, func(r rune) bool { return r == ',' || r == ' ' })
	for _, w := range want {
		if !slices.Contains(names, w) {
			return fmt.Errorf("there is no bar %q, only %s", w, strings.Join(names, ", "))
		}
	}
	var rows []row
	var errs []error
	for _, bar := range bars {
		if len(want) > 0 && !slices.Contains(want, bar.name) {
			continue
		}
		b.say("%s ...", bar.name)
		some, err := bar.measure(ctx, b)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", bar.name, err))
		}
		rows = append(rows, some...)
		if ctx.Err() != nil {
			break
		}
	}
	printTable(rows)
	return errors.Join(errs...)
}

// printTable prints in the form of docs/develop/benchmarks.md. A goal that was missed is no error: on a busy machine it
// says little.
func printTable(rows []row) {
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	_, _ = fmt.Fprintln(tw, "| bar\t| goal\t| measured\t| met\t|")
	_, _ = fmt.Fprintln(tw, "|---\t|---\t|---\t|---\t|")
	for _, r := range rows {
		_, _ = fmt.Fprintf(
			tw, "| %s\t| %s\t| %s\t| %s\t|\n", r.what, r.goal, r.measured,
			map[bool]string{true: "yes", false: "**no**"}[r.met],
		)
	}
	_ = tw.Flush() // to a terminal that has gone
}

// quantile returns the part of sorted times below which q of them lie.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(float64(len(sorted))*q), len(sorted)-1)]
}

// round makes a time readable.
func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// pause waits, or returns why not.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
