// Command directorctl is the command line of the director: it states what should be, shows the plan that leads there,
// starts it and follows it. It does nothing that the API does not offer to everybody.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// version and commit are set by the linker.
var (
	version = "dev"
	commit  = ""
)

func main() {
	os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// streams is where a command reads and writes.
type streams struct {
	in  *os.File
	out *os.File
	err io.Writer
}

func (s streams) inIsTerminal() bool  { return term.IsTerminal(int(s.in.Fd())) }
func (s streams) outIsTerminal() bool { return term.IsTerminal(int(s.out.Fd())) }

// run executes one command line and returns its exit code. An interrupt ends what the command does here, never what the
// director does.
func run(args []string, s streams) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{streams: s}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	if err != nil && errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = &interruptedError{}
	}
	if err != nil {
		printError(s.err, err)
	}
	return exitCode(err)
}
