package appliance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// part is one file of a support bundle: what a command writes, or a file.
type part struct {
	name    string
	command []string
	file    string
}

// mostPart bounds one part; the newest lines of a longer one are kept.
const mostPart = 16 << 20

// parts say what a bundle has. The journal is bounded by its lines, so that a week of a busy director fits.
func (p Place) parts() []part {
	return []part{
		{name: "versions/director.txt", command: []string{"/usr/local/bin/director", "-version"}},
		{name: "versions/kernel.txt", command: []string{"uname", "-a"}},
		{name: "versions/packages.txt", command: []string{"dpkg-query", "-W"}},
		{name: "config/director.yaml", file: p.etc("director/director.yaml")},
		{name: "config/own.yaml", file: p.data(OwnConfig)},
		{name: "config/network.txt", file: p.etc("systemd/network/10-director.network")},
		{name: "config/logs.txt", file: p.etc(logsConfig)},
		{name: "state/units.txt", command: []string{"systemctl", "--no-pager", "--full", "status"}},
		{name: "state/failed.txt", command: []string{"systemctl", "--no-pager", "--failed"}},
		{name: "state/disks.txt", command: []string{"df", "-h"}},
		{name: "state/inodes.txt", command: []string{"df", "-i"}},
		{name: "state/memory.txt", command: []string{"cat", "/proc/meminfo"}},
		{name: "state/pressure.txt", command: []string{
			"cat", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory",
		}},
		{name: "state/addresses.txt", command: []string{"ip", "address"}},
		{name: "state/routes.txt", command: []string{"ip", "route"}},
		{name: "state/names.txt", command: []string{"resolvectl", "--no-pager", "status"}},
		{name: "state/time.txt", command: []string{"chronyc", "-n", "tracking"}},
		{name: "state/firewall.txt", command: []string{"nft", "list", "ruleset"}},
		{name: "logs/director.txt", command: []string{
			"journalctl", "--no-pager", "--output=short-iso", "--lines=50000", "--unit=director",
		}},
		{name: "logs/system.txt", command: []string{"journalctl", "--no-pager", "--output=short-iso", "--lines=20000"}},
	}
}

// secretFiles are those whose content is in no bundle, wherever it got to. Directories are read whole.
func (p Place) secretFiles() []string {
	return []string{
		p.data("director/sealing.key"), p.data("director/admin-password"), p.data("director/metrics.token"),
		p.data("director/tls"), p.data("setup"), p.data("ssh"), p.data("etc/providers"),
	}
}

// WriteSupport writes a bundle for support into a new file with the mode 0600: versions, configuration, the state of
// the VM and logs. Secrets of the appliance, and what looks like one, are replaced. What cannot be found out is said in
// its place. Errors: conflict if the file exists, exhausted or internal if it cannot be written; no part of it stays
// then.
func (p Place) WriteSupport(ctx context.Context, path string, now time.Time) (err error) {
	secrets, err := p.secrets()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return director.Errorf(director.KindConflict, "appliance.support", "the bundle cannot be written: %w", err).
			WithHint("name a new file in a directory that exists")
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(path)
		}
	}()
	zipped := gzip.NewWriter(f)
	out := tar.NewWriter(zipped)
	for _, s := range p.parts() {
		text := redact(s.read(ctx), secrets)
		header := &tar.Header{
			Name: "director-support/" + s.name, Mode: 0o600, Size: int64(len(text)),
			ModTime: now.UTC().Truncate(time.Second),
		}
		if err = out.WriteHeader(header); err == nil {
			_, err = out.Write(text)
		}
		if err != nil {
			break
		}
	}
	for _, end := range []func() error{out.Close, zipped.Close, f.Sync, f.Close} {
		if err == nil {
			err = end()
		}
	}
	if err != nil {
		return director.Errorf(director.KindExhausted, "appliance.support", "the bundle cannot be written: %w", err).
			WithHint("name a file on a disk with more room")
	}
	return nil
}

// read returns the newest lines of the part, or why there is none.
func (s part) read(ctx context.Context) []byte {
	var text []byte
	var err error
	if s.file != "" {
		text, err = os.ReadFile(s.file)
	} else {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		text, err = command(ctx, nil, s.command[0], s.command[1:]...)
	}
	if err != nil {
		text = fmt.Appendf(text, "\n# %v\n", err)
	}
	if len(text) > mostPart {
		text = text[len(text)-mostPart:]
		if at := bytes.IndexByte(text, '\n'); at >= 0 {
			text = text[at+1:]
		}
		text = append([]byte("# the beginning is left out\n"), text...)
	}
	return text
}

// leastSecret is the shortest text that counts as a secret: shorter ones are in every log.
const leastSecret = 8

// secrets returns the lines of the files with secrets, the longest first. Public parts are among them, which does no
// harm.
func (p Place) secrets() ([]string, error) {
	found := map[string]bool{}
	for _, top := range p.secretFiles() {
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || slices.Contains([]string{".crt", ".pub"}, filepath.Ext(path)) ||
				path == p.data(setupFile) {
				return ignoreMissing(err) // hashes of setup.json are recognised by their form
			}
			f, err := os.Open(path)
			if err != nil {
				return ignoreMissing(err)
			}
			defer f.Close()
			text, err := io.ReadAll(io.LimitReader(f, 1<<20))
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); len(line) >= leastSecret && !strings.HasPrefix(line, "-----") {
					found[line] = true
				}
			}
			return err
		})
		if err = ignoreMissing(err); err != nil {
			return nil, director.Errorf(director.KindInternal, "appliance.support", "a secret cannot be read: %w", err).
				WithHint("run it as root: it cannot leave out secrets that it cannot read")
		}
	}
	all := make([]string, 0, len(found))
	for s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all, nil
}

func ignoreMissing(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// shapes are of what is a secret wherever it is found.
var shapes = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`),
	regexp.MustCompile(`\$(argon2id|2[abxy]|y|6|5|1)\$[A-Za-z0-9./$=,+_-]{20,}`),
	regexp.MustCompile(`\bkaas_[A-Za-z0-9_-]{16,}`),
	regexp.MustCompile(`AGE-SECRET-KEY-[A-Z0-9-]{20,}`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`),
}

// keyed finds values behind words that name a secret, and passwords in URLs; what is before the value is kept.
var keyed = []*regexp.Regexp{
	regexp.MustCompile(
		`(?i)((?:password|passwd|secret|token|authorization|api[_-]?key)["']?\s*[:=]\s*(?:bearer |basic )?)` +
			`("[^"\n]*"|'[^'\n]*'|[^\s,;&}]+)`,
	),
	regexp.MustCompile(`([a-z][a-z0-9+.-]*://[^\s/:@]+:)([^\s/@]+)(?:@)`),
}

const redacted = "<redacted>"

// redact replaces the secrets, and what looks like one.
func redact(text []byte, secrets []string) []byte {
	for _, s := range secrets {
		text = bytes.ReplaceAll(text, []byte(s), []byte(redacted))
	}
	for _, shape := range shapes {
		text = shape.ReplaceAll(text, []byte(redacted))
	}
	text = keyed[0].ReplaceAll(text, []byte("${1}"+redacted))
	return keyed[1].ReplaceAll(text, []byte("${1}"+redacted+"@"))
}
