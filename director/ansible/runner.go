package ansible

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/apenella/go-ansible/v2/pkg/execute"
	"github.com/apenella/go-ansible/v2/pkg/playbook"

	"github.com/director-kaas/kaas/director"
)

// Config is what a Runner needs. The zero value of each field but StateDir is a usable default.
type Config struct {
	Binary   string        // ansible-playbook, by name or path
	StateDir string        // absolute; for the directories of runs and nothing else; of one director only
	Forks    int           // for all runs together, about 100 MB of memory each; 10 if zero
	Grace    time.Duration // between asking a run to end and ending it; 10 s if zero
	// Silence is how long a run continues without a keepalive from the director before it ends itself. It must be
	// shorter than the lease after which another director takes the run's step over. Zero for a single director: its
	// runs end themselves only when it is gone.
	Silence  time.Duration
	Causes   []Cause // looked at before the built-in ones, see ReadCauses
	Logger   *slog.Logger
	Observer Observer // called for runs; may be nil
}

// Runner runs playbooks. It is safe for concurrent use.
type Runner struct {
	cfg    Config
	log    *slog.Logger
	causes []Cause
	forks  *fair

	mu     sync.Mutex
	active map[string]bool // IDs of running plays
}

// New returns a Runner. It touches nothing; call EndSurvivors before the first Play. Errors: invalid for a StateDir
// that is not an absolute path of plain characters, because ssh and ansible-core would take others apart.
func New(cfg Config) (*Runner, error) {
	if !filepath.IsAbs(cfg.StateDir) || !plain.MatchString(cfg.StateDir) {
		return nil, director.Errorf(director.KindInvalid, "ansible.new",
			"the state directory %q is not an absolute path of letters, digits and /._@+=,-", cfg.StateDir)
	}
	if cfg.Binary == "" {
		cfg.Binary = "ansible-playbook"
	}
	if cfg.Forks <= 0 {
		cfg.Forks = 10
	}
	if cfg.Grace <= 0 {
		cfg.Grace = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	r := &Runner{
		cfg: cfg, log: cfg.Logger, forks: newFair(int64(cfg.Forks)), active: map[string]bool{},
		causes: mergeCauses(cfg.Causes, BuiltInCauses()),
	}
	return r, nil
}

// ErrRunning is the cause of an error of Play for an ID that is being played: a former attempt has been told to end and
// has not ended yet.
var ErrRunning = errors.New("a former run has not ended")

// Play says what to run, on what, and with which secrets.
type Play struct {
	ID        string            // plan/step/attempt; two plays with one ID do not run at once
	Tree      string            // the absolute directory of the playbooks, see Unpack
	Playbook  string            // relative to Tree, such as install/prepare.yml
	Inventory map[string][]byte // hosts.ini and the files next to it, such as group_vars/all.yml
	ExtraVars []byte            // a JSON object; every string of eight or more bytes in it is taken for a secret
	SSHKey    []byte            // a private key, for the hosts that are reached by SSH
	// SSHCertificate is a certificate of SSHKey; none if empty.
	SSHCertificate []byte
	// a private key that is offered too, for hosts that accept no certificate; none if empty
	OldSSHKey  []byte
	KnownHosts []byte        // their host keys; a host without one is not talked to
	User       string        // on the hosts; the inventory may say otherwise
	Limit      []string      // hosts or groups; all if empty
	Tags       []string      // all if empty
	Check      bool          // change nothing, and tell what would be changed
	Diff       bool          // tell how files change; secrets in them are shown unless the task says no_log
	Forks      int           // hosts worked on at once, out of Config.Forks; the length of Limit, or 5, if zero
	Timeout    time.Duration // of the run itself, without the wait for forks; none if zero
	LogPath    string        // a file of JSON lines, one Event each, that is appended to; none if empty
	OnEvent    func(Event)   // called with one event at a time, in order; it may be slow, but must not call Play
	// OnFailure is called as soon as a host fails, while the others continue, with all hosts so far that failed in the
	// same way. A block of the playbook may still rescue the host. It comes after OnEvent with the same event, and the
	// same holds for it.
	OnFailure func(Group)
}

// Play runs a playbook to its end and returns what it did. The Result is filled in as far as the run came, also if
// there is an error.
//
// Every error is a director.Error around a *PlayError, whose Class is decided from the run's events: KindUnavailable
// for hosts that cannot be reached, for a timeout and for a cancelled context (errors.Is finds the context's error),
// KindInternal for a failed task, for a playbook that could not be started and for a fault of the director's own
// machine, KindInvalid for a Play that is wrong in itself and KindConflict if a play with this ID is running. See
// Permanent and Question for what to do.
//
// When ctx ends, so does the run: its process group is asked to end, and ended by force after Config.Grace. Whatever
// happens, no process of the run is left when Play returns, and no file but the log. A director that is killed
// meanwhile takes its runs along, as far as they have our callback plugin, and leaves the files, and whatever is left
// otherwise, to EndSurvivors.
func (r *Runner) Play(ctx context.Context, p Play) (res Result, err error) {
	res = Result{Started: time.Now(), ExitCode: -1}
	defer func() { res.Duration = time.Since(res.Started) }()
	secrets, binary, err := r.check(&p)
	if err != nil {
		return res, err
	}
	if !r.claim(p.ID) {
		return res, director.Errorf(
			director.KindConflict, opPlay, "the play %s is running already: %w", p.ID, ErrRunning,
		)
	}
	defer r.release(p.ID)

	s, err := openSink(p.LogPath, secrets, p.Tree, r.listener(p))
	if err != nil {
		return res, setUp(ClassFailed, err, "the run's log %s cannot be opened", p.LogPath).
			WithHint("check that the directory is writable and has room")
	}
	defer s.close(r.log, p.ID)
	defer func() { s.emit(endOf(err, res.Started)) }()

	forks := int64(r.want(p))
	free, err := r.take(ctx, p.ID, forks, func() {
		s.emit(Event{Type: Waiting, Msg: fmt.Sprintf("for %d of the director's %d forks", forks, r.cfg.Forks)})
		s.flush()
	})
	if err != nil {
		return res, interrupted(verdict{limit: p.Limit}, s.fold, &PlayError{ExitCode: -1}, err)
	}
	defer free()
	r.cfg.Observer.RunStarted(int(forks))
	began := time.Now()
	defer func() { r.cfg.Observer.RunEnded(int(forks), ending(err), time.Since(began)) }()

	d, inventory, err := r.runDir(p)
	if err != nil {
		return res, err
	}
	defer d.remove()
	s.emit(Event{Type: RunStart, Playbook: p.Playbook, Limit: p.Limit, Tags: p.Tags, Check: p.Check})

	if p.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.Timeout)
		defer cancel()
	}
	v, err := r.run(ctx, p, d, s, binary, inventory, forks)
	if err != nil {
		return res, err
	}
	res.ExitCode = v.exit
	s.fold.result(&res)
	return res, judge(v, s.fold, &res)
}

// endOf is the last event of a run.
func endOf(err error, started time.Time) Event {
	end := Event{
		Type: RunEnd, Status: ending(err), Seconds: time.Since(started).Round(time.Millisecond).Seconds(),
	}
	if e, ok := errors.AsType[*director.Error](err); ok {
		end.Msg = e.Msg
	}
	return end
}

// runDir makes the run's directory with its files, and returns the path of the inventory in it.
func (r *Runner) runDir(p Play) (*runDir, string, error) {
	d, err := newRunDir(r.cfg.StateDir, p.ID)
	if err != nil {
		return nil, "", setUp(ClassFailed, err, "the run's directory below %s cannot be made", r.cfg.StateDir).
			WithHint("check that it is writable and has room")
	}
	inventory, err := d.fill(p)
	if err != nil {
		d.remove()
		return nil, "", setUp(ClassFailed, err, "the run's files cannot be written").
			WithHint("check that %s has room", r.cfg.StateDir)
	}
	return d, inventory, nil
}

// listener hands events on, and failures to OnFailure as they happen.
func (r *Runner) listener(p Play) func(Event) {
	if p.OnFailure == nil {
		return p.OnEvent
	}
	failures := newGrouper(r.causes)
	return func(e Event) {
		if p.OnEvent != nil {
			p.OnEvent(e)
		}
		if e.stops() {
			p.OnFailure(failures.add(failureOf(e)))
		}
	}
}

// ending is how a run ended, in one word.
func ending(err error) string {
	if err == nil {
		return StatusOK
	}
	if e, ok := errors.AsType[*PlayError](err); ok {
		return string(e.Class)
	}
	return string(ClassBroken)
}

// check refuses what cannot work before anything is made, and finds the binary.
func (r *Runner) check(p *Play) (*Redactor, string, error) {
	switch {
	case !filepath.IsAbs(p.Tree) || strings.Contains(p.Tree, ":"):
		return nil, "", invalid("the tree of playbooks %q is not an absolute path without a colon", p.Tree)
	case p.ID == "":
		return nil, "", invalid("the play has no ID")
	case !filepath.IsLocal(p.Playbook):
		return nil, "", invalid("the playbook %q is not below the tree of playbooks", p.Playbook)
	}
	p.Tree = filepath.Clean(p.Tree)
	if info, err := os.Stat(filepath.Join(p.Tree, p.Playbook)); err != nil || !info.Mode().IsRegular() {
		return nil, "", invalid("there is no playbook %s in %s", p.Playbook, p.Tree)
	}
	names := make([]string, 0, len(p.Inventory))
	for name := range p.Inventory {
		names = append(names, name)
	}
	if _, err := mainInventory(names); err != nil {
		return nil, "", invalid("%v", err)
	}
	for _, s := range append(append([]string(nil), p.Limit...), p.Tags...) {
		// "@file" would be read as a list of hosts.
		if s == "" || strings.HasPrefix(s, "@") || strings.ContainsAny(s, " \t\r\n\x00") {
			return nil, "", invalid("%q is neither a host nor a tag", s)
		}
	}
	secrets, err := NewRedactor(p.ExtraVars, p.SSHKey, p.OldSSHKey)
	if err != nil {
		return nil, "", invalid("%v", err)
	}
	binary, err := osexec.LookPath(r.cfg.Binary)
	if err == nil {
		binary, err = filepath.Abs(binary)
	}
	if err != nil {
		e := setUp(ClassBroken, err, "%s is not installed on the director", r.cfg.Binary)
		return nil, "", e.WithHint("install ansible-core, or name ansible-playbook in the director's configuration")
	}
	return secrets, binary, nil
}

func (r *Runner) claim(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[id] {
		return false
	}
	r.active[id] = true
	return true
}

func (r *Runner) release(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, id)
}

func (r *Runner) want(p Play) int {
	n := p.Forks
	if n <= 0 {
		n = len(p.Limit)
	}
	if n <= 0 {
		n = 5
	}
	return min(n, r.cfg.Forks)
}

// run runs the process and returns what it left to be judged by.
func (r *Runner) run(
	ctx context.Context, p Play, d *runDir, s *sink, binary, inventory string, forks int64,
) (verdict, error) {
	events, err := os.Open(d.file(eventsFile))
	if err != nil {
		return verdict{}, setUp(ClassFailed, err, "the run's events cannot be read")
	}
	defer events.Close()

	printed := func(stream string) *lines {
		return &lines{limit: keepText + spare, emit: func(line string, cut bool) { s.output(stream, line, cut) }}
	}
	stdout, stderr := printed("stdout"), printed("stderr")
	var proc *process
	executor := execute.NewDefaultExecute(
		execute.WithCmd(playbook.NewAnsiblePlaybookCmd(
			playbook.WithBinary(binary),
			playbook.WithPlaybooks(filepath.Join(p.Tree, p.Playbook)),
			playbook.WithPlaybookOptions(playbookOptions(p, d, inventory, forks)),
		)),
		execute.WithExecutable(executable{func(ctx context.Context, name string, args ...string) *process {
			proc = r.process(ctx, p, d, name, args)
			return proc
		}}),
		execute.WithOutput(printer{}),
		execute.WithWrite(stdout),
		execute.WithWriteError(stderr),
	)

	ended, tailed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(tailed)
		(&tailer{file: events, sink: s}).follow(ended)
	}()
	// The error of go-ansible holds the environment and the command; proc knows all there is to know.
	_ = executor.Execute(ctx)
	if proc != nil && proc.done != nil {
		_ = proc.Wait()
	}
	stdout.flush()
	stderr.flush()
	close(ended)
	<-tailed

	return r.verdict(ctx, p, s, proc, binary)
}

// verdict returns what the process left to be judged by. proc is nil if it was not started.
func (r *Runner) verdict(ctx context.Context, p Play, s *sink, proc *process, binary string) (verdict, error) {
	if proc == nil || proc.ProcessState == nil {
		return verdict{}, setUp(
			ClassFailed, errors.New("the process could not be started"), "%s could not be started", binary,
		).
			WithHint("check that %s can be run by the director's user, and that the machine has memory left", binary)
	}
	v := verdict{
		ctx: ctx, timeout: p.Timeout, limit: p.Limit, exit: proc.ProcessState.ExitCode(), output: s.tail,
		causes: r.causes,
		full:   outOfRoom(s.broken, s.tail),
	}
	if status, ok := proc.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		v.signal = status.Signal().String()
	}
	return v, nil
}

// playbookOptions are the command line's.
func playbookOptions(p Play, d *runDir, inventory string, forks int64) *playbook.AnsiblePlaybookOptions {
	options := &playbook.AnsiblePlaybookOptions{
		Inventory: inventory, Forks: strconv.FormatInt(forks, 10), User: p.User,
		Limit: strings.Join(p.Limit, ","), Tags: strings.Join(p.Tags, ","), Check: p.Check, Diff: p.Diff,
	}
	if len(p.SSHKey) > 0 {
		options.PrivateKey = d.file(keyFile)
	}
	if len(p.ExtraVars) > 0 {
		options.ExtraVarsFile = []string{"@" + d.file(extraVarsFile)}
	}
	return options
}

// process prepares the process; nothing of ours gets into it but what is said here.
func (r *Runner) process(ctx context.Context, p Play, d *runDir, name string, args []string) *process {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	cmd := osexec.Command(name, args...) //nolint:noctx // process ends the whole group, which a context cannot
	cmd.Dir = d.path
	cmd.Env = d.environ(p, path)
	return &process{
		Cmd: cmd, ctx: ctx, grace: r.cfg.Grace, leash: &leash{silence: r.cfg.Silence},
		started: func(pid int) error {
			leader, err := identify(pid)
			if err != nil {
				return err
			}
			return d.writeJSON(processFile, leader)
		},
		rest: func(leader identity) {
			const grace = time.Second
			if _, err := d.belonging(leader).end(context.WithoutCancel(ctx), grace); err != nil {
				r.log.ErrorContext(ctx, "processes of a run do not end", "play", p.ID, "err", err)
			}
		},
	}
}
