package consulagent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/whole"
)

// The files of a Dir. That of the run is written last, and removed first: it says that an agent is to run.
const (
	runFile      = "run.json"
	agentFile    = "agent.json"
	secretsFile  = "secrets.json"
	servicesFile = "services.json"
	caFile       = "ca.pem"
	programFile  = "consul"
)

// Dir is the directory in which a director leaves what the agent next to it is told. The director alone writes it; the
// agent, which has a user of its own, reads it by its group. It is safe for concurrent use.
type Dir struct {
	path   string
	places []string // where the machine may have the program

	mu   sync.Mutex
	sums map[string]summed // of programs, by path
}

type summed struct {
	size int64
	time time.Time
	sum  string
}

// At returns the directory with that path.
func At(path string) *Dir {
	return &Dir{
		path: path, places: []string{"/usr/local/bin/consul", "/usr/bin/consul"}, sums: map[string]summed{},
	}
}

// Told is all that an agent next to a director is told. CAFile and DataDir of the agent are set here.
type Told struct {
	Agent         Agent
	Token, Gossip director.Secret
	CA            string // PEM
	Services      []Service
	SHA256        string // of the program; empty for any that the machine has
}

// run is what is to run.
type run struct {
	SHA256 string `json:"sha256"`
}

func (d *Dir) file(name string) string { return filepath.Join(d.path, name) }

// Tell writes what the agent is told; it then runs, or follows. It is idempotent and may be cut off at any point.
// Errors: not_found for a machine without the directory.
func (d *Dir) Tell(t Told) error {
	if info, err := os.Stat(d.path); err != nil || !info.IsDir() {
		return director.Errorf(
			director.KindNotFound, "consulagent.tell", "there is no directory %s, which consulDir names", d.path,
		).WithHint("make it as docs/operate/consul.md says: the director writes it, and the agent's group reads it")
	}
	t.Agent.CAFile = d.file(caFile)
	what, err := json.Marshal(run{SHA256: t.SHA256})
	if err != nil {
		return director.Errorf(director.KindInternal, "consulagent.tell", "%w", err)
	}
	for _, f := range []struct {
		name string
		text []byte
	}{
		{caFile, []byte(t.CA)},
		{agentFile, t.Agent.Config()},
		{secretsFile, Secrets(t.Token, t.Gossip)},
		{servicesFile, Services(t.Services)},
		{runFile, what},
	} {
		if err := d.write(f.name, f.text, 0o640); err != nil {
			return err
		}
	}
	return nil
}

// Quiet removes what Tell has written: the agent leaves the datacenter. It is idempotent.
func (d *Dir) Quiet() error {
	for _, name := range []string{runFile, secretsFile, agentFile, servicesFile, caFile, programFile} {
		if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return director.Errorf(director.KindInternal, "consulagent.quiet", "%w", err)
		}
	}
	return nil
}

// write replaces a file, for the group of the directory, and leaves one that is the same alone.
func (d *Dir) write(name string, text []byte, mode fs.FileMode) error {
	if was, err := os.ReadFile(d.file(name)); err == nil && bytes.Equal(was, text) {
		return nil
	}
	return d.place(name, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func (d *Dir) place(name string, mode fs.FileMode, fill func(io.Writer) error) error {
	err := whole.Fill(d.file(name), mode, func(f *os.File) error { return fill(f) })
	if _, ours := errors.AsType[*director.Error](err); err != nil && !ours {
		return director.Errorf(
			director.KindInternal, "consulagent.write", "%s cannot be written: %w", d.file(name), err,
		)
	}
	return err
}

// Program returns a program with that SHA-256; any that the machine has, for none. Errors: not_found.
func (d *Dir) Program(sum string) (string, error) {
	for _, path := range append(slices.Clone(d.places), d.file(programFile)) {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if sum == "" && path != d.file(programFile) {
			return path, nil
		}
		if is, err := d.sum(path, info); err == nil && is == sum {
			return path, nil
		}
	}
	what := "no program consul"
	if sum != "" {
		what += " with the SHA-256 " + sum
	}
	return "", director.Errorf(
		director.KindNotFound, "consulagent.program", "the director's machine has %s", what,
	).WithHint("set spec.agents.program of the Consul, or copy the program to /usr/local/bin/consul")
}

// sum returns the SHA-256 of a program. It is computed again when the file is another one.
func (d *Dir) sum(path string, info fs.FileInfo) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if was, known := d.sums[path]; known && was.size == info.Size() && was.time.Equal(info.ModTime()) {
		return was.sum, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	d.sums[path] = summed{info.Size(), info.ModTime(), hex.EncodeToString(h.Sum(nil))}
	return d.sums[path].sum, nil
}

// mostProgram bounds what is fetched: a Consul has about 200 MB.
const mostProgram = 1 << 30

// Source is where a program is fetched from, and what it has to be.
type Source struct {
	URL, SHA256, CA string
	Networks        confine.Networks // where it may be fetched from
}

// Fetch brings the program into the directory, if the machine has none that fits. It never uses one with another
// SHA-256. Errors: unavailable, conflict for another program, and those of Program for a source without URL.
func (d *Dir) Fetch(ctx context.Context, s Source) error {
	_, err := d.Program(s.SHA256)
	if err == nil || s.URL == "" || s.SHA256 == "" {
		return err
	}
	const op = "consulagent.fetch"
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM([]byte(s.CA))
	c := &http.Client{
		Transport: &http.Transport{
			DialContext: s.Networks.Dialer().DialContext, TLSHandshakeTimeout: 10 * time.Second,
			ResponseHeaderTimeout: 30 * time.Second,
			TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer c.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return director.Errorf(director.KindInvalid, op, "spec.agents.program.url cannot be read: %w", err)
	}
	resp, err := c.Do(r)
	if err != nil {
		return director.Errorf(
			director.KindUnavailable, op, "the program consul cannot be fetched: %w", err,
		).WithHint("check spec.agents.program of the Consul, and providerNetworks of the director's configuration")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return director.Errorf(
			director.KindUnavailable, op, "the server of the program consul answers with %d", resp.StatusCode,
		).WithHint("check spec.agents.program.url of the Consul; redirects are not followed")
	}
	return d.place(programFile, 0o750, func(w io.Writer) error {
		h := sha256.New()
		if _, err := io.Copy(io.MultiWriter(w, h), io.LimitReader(resp.Body, mostProgram)); err != nil {
			return director.Errorf(director.KindUnavailable, op, "the program consul cannot be fetched: %w", err)
		}
		if is := hex.EncodeToString(h.Sum(nil)); is != s.SHA256 {
			return director.Errorf(
				director.KindConflict, op, "the program consul that was fetched has the SHA-256 %s", is,
			).WithHint("compare it with spec.agents.program.sha256 of the Consul")
		}
		return nil
	})
}
