package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *planCommands) logsCommand() *cobra.Command {
	var follow, failed, raw bool
	var step string
	var attempt int
	cmd := &cobra.Command{
		Use:   "logs PLAN",
		Short: "Read the logs of a plan's steps",
		Long: "Read the logs of a plan's steps, in the order in which the steps started. With -f, follow until the " +
			"plan ends; an interrupt stops\n" +
			"following, the plan continues.",
		Example: "  directorctl logs PLAN --failed\n  directorctl logs PLAN -f --step " +
			"play.control_plane/demo",
		Args:              exact("PLAN"),
		ValidArgsFunction: a.complete(0, planIDs),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case step != "" && failed:
				return usage(cmd, "--step and --failed exclude each other")
			case attempt < 0 || (attempt > 0 && step == ""):
				return usage(cmd, "--attempt is a number from 1, of the step named by --step")
			}
			return nil
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			r := &logReader{
				api: api, out: a.out, err: a.err, raw: raw, id: args[0], step: step, failed: failed, attempt: attempt,
				every:  logPoll,
				places: make(map[string]*logPlace),
			}
			err := r.run(cmd.Context(), follow)
			if err != nil && cmd.Context().Err() != nil {
				return interrupted("plan %s continues; read on: directorctl logs %s -f", args[0], args[0])
			}
			return err
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow until the plan ends")
	cmd.Flags().BoolVar(&failed, "failed", false, "only steps that failed or wait for a person")
	cmd.Flags().StringVar(&step, "step", "", "only this step")
	cmd.Flags().IntVar(&attempt, "attempt", 0, "an earlier attempt of the step (default: the latest)")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the lines of JSON as they are")
	_ = cmd.RegisterFlagCompletionFunc("step", a.complete(1, func(
		ctx context.Context, c *client.Client, args []string,
	) []string {
		p, _ := c.Plan(ctx, args[0]) // no completion is better than an error in the middle of a line
		ids := make([]string, len(p.Steps))
		for i, s := range p.Steps {
			ids[i] = s.ID
		}
		return ids
	}))
	return cmd
}

// logPoll is how often logs are asked for when they are followed: so much is a line late. What takes long to read is
// asked for less often.
const logPoll = 500 * time.Millisecond

type logReader struct {
	api     *client.Client
	out     io.Writer
	err     io.Writer
	raw     bool
	id      string
	step    string
	failed  bool
	attempt int
	every   time.Duration
	places  map[string]*logPlace
	heading string // whose lines were printed last
}

// logPlace is how far the log of a step was read.
type logPlace struct {
	attempt int
	offset  int64
	settled bool // the attempt had ended when its log was read last
}

// logPatience is how many polls in a row may fail before following logs gives up: restarts of the director take less.
const logPatience = 60

// run prints what there is, and with follow what comes until the plan ends. When the director is back, it continues
// from there.
func (r *logReader) run(ctx context.Context, follow bool) error {
	for failures := 0; ; {
		began := time.Now()
		status, err := r.look(ctx)
		switch {
		case err == nil && failures > 0:
			sayLine(r.err, "connected again")
			failures = 0
		case err != nil && follow && ctx.Err() == nil && director.KindOf(err) == director.KindUnavailable &&
			failures < logPatience:
			if failures++; failures == 1 {
				say(r.err, "the connection is lost, trying again: %v\n", err)
			}
		case err != nil:
			return err
		}
		if err == nil && (!follow || wire.Ended(status)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(r.every, 2*time.Since(began))):
		}
	}
}

// look prints what is new, and returns the status that the plan had before.
func (r *logReader) look(ctx context.Context) (string, error) {
	p, err := r.api.Plan(ctx, r.id)
	if err != nil {
		return "", err
	}
	if r.step != "" && findStep(p, r.step).Status == "" {
		return "", director.Errorf(director.KindNotFound, "directorctl.logs", "plan %s has no step %q", r.id, r.step).
			WithHint("directorctl plans show %s lists them", r.id)
	}
	return p.Status, r.round(ctx, p)
}

// round prints what is new in the logs of the steps that were chosen.
func (r *logReader) round(ctx context.Context, p wire.Plan) error {
	var steps []wire.Step
	for _, s := range p.Steps {
		st := plan.StepStatus(s.Status)
		switch {
		case s.Attempt == 0, r.step != "" && s.ID != r.step:
		case r.failed && st != plan.Failed && st != plan.Parked && st != plan.Stuck:
		default:
			steps = append(steps, s)
		}
	}
	slices.SortStableFunc(steps, func(a, b wire.Step) int {
		if a.StartedAt == nil || b.StartedAt == nil {
			return 0
		}
		return a.StartedAt.Compare(*b.StartedAt)
	})
	for _, s := range steps {
		place := r.places[s.ID]
		if place == nil {
			place = &logPlace{attempt: s.Attempt}
			if r.attempt > 0 {
				place.attempt = r.attempt
			}
			r.places[s.ID] = place
		}
		for r.attempt == 0 && place.attempt < s.Attempt { // the end of an attempt that was followed
			if err := r.read(ctx, s, place); err != nil {
				return err
			}
			*place = logPlace{attempt: place.attempt + 1}
		}
		if place.settled {
			continue
		}
		if err := r.read(ctx, s, place); err != nil {
			return err
		}
		status := plan.StepStatus(s.Status)
		place.settled = status != plan.Running && status != plan.Undoing
	}
	return nil
}

// read prints whole lines from where it stopped, and leaves half a line for the next time.
func (r *logReader) read(ctx context.Context, s wire.Step, place *logPlace) error {
	log, err := r.api.StepLog(ctx, r.id, s.ID, place.attempt, place.offset)
	if director.KindOf(err) == director.KindNotFound && err != nil {
		return nil // nothing was written
	}
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if err == nil {
			place.offset += int64(len(line))
			r.print(s, place.attempt, line)
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return director.Errorf(director.KindUnavailable, "directorctl.logs", "the log broke off: %w", err).
			WithHint("try again")
	}
}

func (r *logReader) print(s wire.Step, attempt int, line []byte) {
	if r.raw {
		_, _ = r.out.Write(line)
		return
	}
	text := plain(logLine(bytes.TrimSpace(line)))
	if text == "" {
		return
	}
	heading := s.ID
	if attempt > 1 {
		heading += fmt.Sprintf(" (attempt %d)", attempt)
	}
	if heading != r.heading {
		say(r.out, "== %s: %s\n", heading, s.Title)
		r.heading = heading
	}
	sayLine(r.out, text)
}

// logEntry is what is looked at in a line: the director's own entries and the events of a playbook run.
type logEntry struct {
	Time  time.Time `json:"time"`
	Level string    `json:"level"`
	Msg   string    `json:"msg"`

	Type     string  `json:"type"`
	Playbook string  `json:"playbook"`
	Play     string  `json:"play"`
	Task     string  `json:"task"`
	Role     string  `json:"role"`
	Host     string  `json:"host"`
	Status   string  `json:"status"`
	Ignored  bool    `json:"ignored"`
	Seconds  float64 `json:"seconds"`
	Stdout   string  `json:"stdout"`
	Stderr   string  `json:"stderr"`
	Attempts int     `json:"attempts"`
	Retries  int     `json:"retries"`
	Diff     string  `json:"diff"`
	Count    int     `json:"count"`
}

// logLine renders one line of a log for people; "" leaves it out. What is not known is shown as it is.
func logLine(line []byte) string {
	if len(line) == 0 {
		return ""
	}
	var e logEntry
	if err := json.Unmarshal(line, &e); err != nil {
		return string(line)
	}
	at := "        "
	if !e.Time.IsZero() {
		at = e.Time.Local().Format(time.TimeOnly)
	}
	text := ""
	switch e.Type {
	case "":
		if e.Msg == "" {
			return string(line)
		}
		text = e.Msg + attributes(line)
		if e.Level != "" && e.Level != "INFO" {
			text = strings.ToLower(e.Level) + ": " + text
		}
	case "run_start":
		text = "run " + e.Playbook
	case "play_start":
		text = "play " + e.Play
	case "task_start":
		text = "task " + e.Task
		if e.Role != "" {
			text = "task " + e.Role + ": " + e.Task
		}
	case "host":
		text = hostLine(e)
	case "retry":
		text = fmt.Sprintf("  %s: tries again, %d of %d", e.Host, e.Attempts, e.Retries)
	case "diff":
		text = e.Diff
	case "output":
		text = e.Msg
	case "waiting":
		text = "waits for other runs to end"
	case "lost":
		text = fmt.Sprintf("%d events are missing", e.Count)
	case "run_end":
		text = "run ended: " + e.Status
		if e.Msg != "" {
			text += ": " + e.Msg
		}
	case "playbook_start", "stats":
		return ""
	default:
		text = strings.TrimSpace(e.Type + " " + e.Host + " " + e.Msg)
	}
	return at + "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n          ")
}

func hostLine(e logEntry) string {
	text := "  " + e.Host + ": " + e.Status
	if e.Ignored {
		text += " (ignored)"
	}
	if e.Seconds >= 0.1 {
		text += fmt.Sprintf(" in %.1f s", e.Seconds)
	}
	if e.Status != "failed" && e.Status != "unreachable" {
		return text
	}
	if e.Msg != "" {
		text += ": " + e.Msg
	}
	for _, out := range []string{e.Stderr, e.Stdout} {
		if out = strings.TrimSpace(out); out != "" && !strings.Contains(text, out) {
			text += "\n    " + strings.ReplaceAll(out, "\n", "\n    ")
		}
	}
	return text
}

// attributes renders the fields of a structured entry after its message, in a fixed order.
func attributes(line []byte) string {
	var all map[string]any
	if json.Unmarshal(line, &all) != nil {
		return ""
	}
	var parts []string
	for k, v := range all {
		if k != "time" && k != "level" && k != "msg" {
			parts = append(parts, fmt.Sprintf("%s=%v", k, v))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return " " + strings.Join(parts, " ")
}
