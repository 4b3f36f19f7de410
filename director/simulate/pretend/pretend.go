// Package pretend is a substitute for ansible-playbook: a real process with the same options, that reads the inventory
// it is given and the plays of the playbook, reaches no host, and writes the events that the director's callback plugin
// would write.
//
// It needs only the standard library: a director with thousands of nodes starts tens of thousands of these processes.
package pretend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Name is how the stand-in is called; a program of that name plays it.
const Name = "ansible-playbook"

// SettingsFile is in the directory of the substitute and sets how its plays run.
const SettingsFile = "plays.json"

// Settings is how plays go.
type Settings struct {
	Tasks   int           `json:"tasks"`   // of each play
	Latency time.Duration `json:"latency"` // of a task on a host
	Jitter  time.Duration `json:"jitter"`  // up to so much longer
	Changed int           `json:"changed"` // per cent of the tasks that change something
	Faults  []Fault       `json:"faults"`
	Held    []string      `json:"held"` // playbooks that wait in their plays as long as they are named here, for tests
	Seed    uint64        `json:"seed"`
}

// Fault makes plays fail on some hosts, by chance.
type Fault struct {
	Hosts    string `json:"hosts"`    // pattern of names, such as *-worker-*; empty for all
	Playbook string `json:"playbook"` // name without directory and suffix; empty for all
	Outcome  string `json:"outcome"`  // failed or unreachable
	Percent  int    `json:"percent"`  // of the hosts of a play
	Msg      string `json:"msg"`      // what the task says; there is a default
}

// The exit codes of ansible-playbook.
const (
	exitOK          = 0
	exitError       = 1
	exitFailed      = 2
	exitUnreachable = 4
)

// Called reports whether the program was started under the stand-in's name.
func Called(arg0 string) bool { return filepath.Base(arg0) == Name }

// StandIn ends a program that was called by the name of the stand-in, as the stand-in. It returns in any other program.
func StandIn() {
	if Called(os.Args[0]) {
		os.Exit(Main(os.Args, os.Stderr))
	}
}

// Main plays the playbook and returns the exit code of ansible-playbook. args are those of the command line, with the
// program's name.
func Main(args []string, errs io.Writer) int {
	code, err := run(args)
	if err != nil {
		_, _ = fmt.Fprintf(errs, "ERROR! %v\n", err)
	}
	return code
}

func run(args []string) (int, error) {
	watchLeash()
	opts, err := parse(args[1:])
	if err != nil {
		return exitFailed, err
	}
	file := filepath.Join(filepath.Dir(args[0]), SettingsFile)
	settings, err := load(file)
	if err != nil {
		return exitError, err
	}
	inventory, err := readInventory(opts.inventory)
	if err != nil {
		return exitUnreachable, err
	}
	var plays []play
	for _, p := range opts.playbooks {
		more, err := readPlays(p)
		if err != nil {
			return exitError, err
		}
		plays = append(plays, more...)
	}
	out := os.Stdout
	if name := os.Getenv("KAAS_EVENTS"); name != "" {
		if out, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
			return exitError, err
		}
		defer func() { _ = out.Close() }()
	}
	r := &runner{
		file: file, settings: settings, opts: opts, inventory: inventory, out: out, gone: map[string]string{},
		stats: map[string]*counts{},
		// Another run of the same play has other luck, or a fault would stay for ever.
		random: rand.New(rand.NewPCG(settings.Seed, uint64(time.Now().UnixNano()))),
	}
	return r.run(plays)
}

func load(file string) (Settings, error) {
	s := Settings{Tasks: 3}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// event is one line, with the fields of the callback plugin that a pretence has.
type event struct {
	N        int                `json:"n"`
	Type     string             `json:"type"`
	Time     string             `json:"time"`
	Playbook string             `json:"playbook,omitempty"`
	Play     string             `json:"play,omitempty"`
	Check    bool               `json:"check,omitempty"`
	Task     string             `json:"task,omitempty"`
	Path     string             `json:"path,omitempty"`
	TaskID   string             `json:"task_id,omitempty"`
	Action   string             `json:"action,omitempty"`
	Host     string             `json:"host,omitempty"`
	Status   string             `json:"status,omitempty"`
	Changed  bool               `json:"changed,omitempty"`
	Seconds  float64            `json:"seconds,omitempty"`
	Msg      string             `json:"msg,omitempty"`
	Stats    map[string]*counts `json:"stats,omitempty"`
}

type counts struct {
	OK          int `json:"ok"`
	Changed     int `json:"changed"`
	Failed      int `json:"failed"`
	Unreachable int `json:"unreachable"`
	Skipped     int `json:"skipped"`
	Rescued     int `json:"rescued"`
	Ignored     int `json:"ignored"`
}

type runner struct {
	file      string // of the settings
	settings  Settings
	opts      options
	inventory inventory
	out       io.Writer
	n         int
	random    *rand.Rand
	gone      map[string]string // hosts that are out, with the outcome
	stats     map[string]*counts
}

func (r *runner) emit(e event) error {
	r.n++
	e.N, e.Time = r.n, time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00")
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	return err
}

func (r *runner) run(plays []play) (int, error) {
	started := ""
	for n, p := range plays {
		if p.file != started {
			started = p.file
			if err := r.emit(event{Type: "playbook_start", Playbook: filepath.Base(p.file)}); err != nil {
				return exitError, err
			}
		}
		if err := r.play(n, p); err != nil {
			return exitError, err
		}
	}
	if err := r.emit(event{Type: "stats", Stats: r.stats}); err != nil {
		return exitError, err
	}
	code := exitOK
	for _, outcome := range r.gone {
		switch outcome {
		case "failed":
			code |= exitFailed
		case "unreachable":
			code |= exitUnreachable
		}
	}
	return code, nil
}

func (r *runner) play(number int, p play) error {
	if err := r.emit(event{Type: "play_start", Play: p.name, Check: r.opts.check}); err != nil {
		return err
	}
	if err := r.hold(p); err != nil {
		return err
	}
	var hosts []string
	for _, h := range r.inventory.match(p.hosts) {
		if r.opts.limited(h, r.inventory) && r.gone[h] == "" {
			hosts = append(hosts, h)
		}
	}
	if len(hosts) == 0 {
		return r.emit(event{Type: "no_hosts", Msg: "the play matches no host"})
	}
	doom := r.doom(p, hosts)
	for task := range r.settings.Tasks {
		if len(hosts) == 0 {
			return r.emit(event{Type: "no_hosts", Msg: "no host is left to continue with"})
		}
		e := event{
			Task: fmt.Sprintf("Pretend task %d of %d", task+1, r.settings.Tasks), Action: "pretend",
			Path: fmt.Sprintf("%s:%d", p.file, p.line), TaskID: fmt.Sprintf("pretend-%d-%d", number, task),
		}
		var err error
		if hosts, err = r.task(e, task, hosts, doom); err != nil {
			return err
		}
	}
	return nil
}

// task runs one task on the hosts, as many at once as there are forks, and returns those that continue.
func (r *runner) task(e event, number int, hosts []string, doom map[string]fate) ([]string, error) {
	e.Type = "task_start"
	if err := r.emit(e); err != nil {
		return nil, err
	}
	e.Type = "host"
	var left []string
	for batch := range chunks(hosts, r.opts.forks) {
		took := r.settings.Latency
		if r.settings.Jitter > 0 {
			took += time.Duration(r.random.Int64N(int64(r.settings.Jitter)))
		}
		if took > 0 {
			timer := time.NewTimer(took)
			<-timer.C
		}
		for _, h := range batch {
			e := e
			e.Host, e.Seconds = h, took.Seconds()
			if f, doomed := doom[h]; doomed && f.task == number {
				e.Status, e.Msg = f.Outcome, f.Msg
				r.gone[h] = f.Outcome
			} else {
				e.Changed = r.random.IntN(100) < r.settings.Changed
				e.Status = map[bool]string{false: "ok", true: "changed"}[e.Changed]
				left = append(left, h)
			}
			r.count(e)
			if err := r.emit(e); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

func (r *runner) count(e event) {
	c := r.stats[e.Host]
	if c == nil {
		c = &counts{}
		r.stats[e.Host] = c
	}
	switch e.Status {
	case "failed":
		c.Failed++
	case "unreachable":
		c.Unreachable++
	case "changed":
		c.Changed++
		c.OK++
	default:
		c.OK++
	}
}

// fate is what becomes of a host, and at which task.
type fate struct {
	Fault
	task int
}

// doom rolls the dice for every host of the play.
func (r *runner) doom(p play, hosts []string) map[string]fate {
	out := map[string]fate{}
	name := strings.TrimSuffix(filepath.Base(p.file), filepath.Ext(p.file))
	for _, h := range hosts {
		for _, f := range r.settings.Faults {
			if hit, _ := path.Match(f.Hosts, h); f.Hosts != "" && !hit || f.Playbook != "" && f.Playbook != name {
				continue
			}
			if r.settings.Tasks == 0 || r.random.IntN(100) >= f.Percent {
				continue
			}
			if f.Msg == "" {
				f.Msg = map[string]string{
					"failed":      "this failure is pretended",
					"unreachable": "Failed to connect to the host via ssh: this is pretended",
				}[f.Outcome]
			}
			out[h] = fate{Fault: f, task: r.random.IntN(r.settings.Tasks)}
			break
		}
	}
	return out
}

// chunks yields list in pieces of at most n.
func chunks(list []string, n int) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		for len(list) > 0 {
			k := min(max(n, 1), len(list))
			if !yield(list[:k]) {
				return
			}
			list = list[k:]
		}
	}
}
