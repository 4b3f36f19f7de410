package appliance

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/steady"
	"github.com/director-kaas/kaas/director/wire"
)

// health is how a root that is tried has to be well.
var health = steady.Wait{For: 20 * time.Second, Every: 2 * time.Second}

// Trial waits until the root that is tried is healthy, makes it the one that starts from now on, and lets the director
// work. Otherwise it writes down what was wrong, and restarts the VM: the loader starts the former root then. It does
// nothing at another start.
func (p Place) Trial(ctx context.Context) error {
	boot, err := booted()
	if err != nil || !boot.Trial {
		return err
	}
	wait := health
	wait.Within = time.Duration(boot.Within) * time.Second
	if unwell := wait.Until(ctx, p.roots().healthy); unwell != nil {
		if ctx.Err() != nil {
			return nil // the VM is being stopped, and its next start settles the change
		}
		err := p.roots().blame(director.Errorf(
			director.KindUnavailable, opRoots, "the root was not healthy within %s: %w", wait.Within, unwell,
		))
		_, rerr := command(ctx, nil, "systemctl", "reboot")
		return errors.Join(err, rerr) // an error has the unit restart the VM by force
	}
	parts, err := partitions()
	if err == nil {
		err = setLoader(parts[partitionLoader], loaderBlock{slot: boot.Slot})
	}
	if err != nil {
		return err // the unit restarts the VM
	}
	// From here on this root starts. Killed now, the next start ends the change.
	s, err := p.Roots()
	if err == nil && s.Change.Stage == rootdisk.Trying {
		s.Change.Stage, s.Change.Ended = rootdisk.Done, time.Now().UTC()
		err = p.roots().saveRoots(s)
	}
	return errors.Join(err, p.roots().ask(ctx, wire.ReleasePath, time.Minute))
}

// blame writes down why the root that is tried is given up.
func (p rootDisks) blame(cause error) error {
	s, err := p.Roots()
	if err != nil || s.Change.Stage != rootdisk.Trying {
		return err
	}
	s.Change.Reason = fmt.Sprintf(
		"version %s did not become healthy: %s",
		s.Change.To.Version,
		director.MessageOf(cause),
	)
	s.Change.Hint = "look at the journal of that start: journalctl --boot=-1"
	return p.saveRoots(s)
}

// healthy returns nil if the director answers, and says that it is ready.
func (p rootDisks) healthy(ctx context.Context) error {
	url, err := p.readiness()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	// It is this machine, and nothing secret is sent; the certificate may be the administrator's.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return director.Errorf(director.KindUnavailable, opRoots, "the director does not answer: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
		return director.Errorf(
			director.KindUnavailable,
			opRoots,
			"the director is not ready: %s",
			printable(string(text)),
		)
	}
	return nil
}

// readiness returns where the director says whether it is ready.
func (p rootDisks) readiness() (string, error) {
	text, err := os.ReadFile(p.etc("director/director.yaml"))
	var settings struct {
		Listen string `yaml:"listen"`
	}
	if err == nil {
		err = yaml.Unmarshal(text, &settings)
	}
	host, port := "", ""
	if err == nil {
		host, port, err = net.SplitHostPort(settings.Listen)
	}
	if err != nil {
		return "", director.Errorf(director.KindUnavailable, opRoots, "the director is not set up: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, port) + "/readyz", nil
}

// drain has the director start no more steps, and waits until those that run have ended, or for so long: the rest is
// interrupted when it stops, and runs again. A director that does not run needs none of it.
func (p rootDisks) drain(ctx context.Context, wait time.Duration) error {
	err := p.ask(ctx, wire.DrainPath, wait)
	if errors.Is(err, context.DeadlineExceeded) || director.KindOf(err) == director.KindUnavailable {
		return nil
	}
	return err
}

// ask sends the director a request through its socket for root, and waits for the answer.
func (p rootDisks) ask(ctx context.Context, path string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", p.data("director/"+wire.RescueSocket))
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://director"+path, bytes.NewReader(nil))
	if err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return director.Errorf(director.KindUnavailable, opRoots, "the director does not answer: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNoContent {
		return nil
	}
	var problem wire.Problem
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<16)).Decode(&problem); err != nil {
		return director.Errorf(director.KindInternal, opRoots, "the director answered %d", answer.StatusCode)
	}
	return director.Errorf(director.Kind(problem.Kind), opRoots, "%s", strings.TrimSpace(problem.Detail))
}

// Look writes down which roots there are. Each start of the VM calls it.
func (p Place) Look(ctx context.Context) error {
	boot, err := booted()
	if err != nil {
		return err
	}
	s, err := p.Roots()
	if err != nil {
		return err
	}
	if s.Running, err = p.roots().runningRoot(boot); err != nil {
		return err
	}
	if _, err := os.Stat(rootAt); errors.Is(err, os.ErrNotExist) {
		return nil // started with director.root=rw, to look for faults
	}
	if s.Kept, err = keptRoot(ctx, boot.Slot.Other()); err != nil {
		return err
	}
	return p.roots().saveRoots(s)
}
