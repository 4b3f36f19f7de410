package logserver_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/logserver"
	"github.com/director-kaas/kaas/director/syslog/syslogtest"
)

// paths returns the paths of fields, without what they have in common.
func paths(t *testing.T, fields []director.Field) (out []string) {
	t.Helper()
	for _, f := range fields {
		if !strings.HasPrefix(f.Path, "auditSyslog.") || f.Msg == "" || f.Hint == "" {
			t.Errorf("%+v", f)
		}
		out = append(out, strings.TrimPrefix(f.Path, "auditSyslog."))
	}
	return out
}

// With the journal, every text is a plain name: it goes into the configuration of another program.
func TestSettingsOfTheJournal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s    logserver.Settings
		want []string
	}{
		"a name":     {logserver.Settings{Address: "logs.example.org"}, nil},
		"an address": {logserver.Settings{Address: "10.0.0.9:6514"}, []string{"serverName"}},
		"an address, named": {
			logserver.Settings{Address: "[2001:db8::1]:1", ServerName: "logs", HostName: "d1"}, nil,
		},
		"named by an address": {
			logserver.Settings{Address: "logs", ServerName: "10.0.0.9"}, []string{"serverName"},
		},
		"a zone": {
			logserver.Settings{Address: "[fe80::1%eth0]:1", ServerName: "logs"}, []string{"address"},
		},
		"a zone that is text": {
			logserver.Settings{Address: "fe80::1%\"\naction()", ServerName: "logs"}, []string{"address"},
		},
		"every server": {logserver.Settings{Address: "logs", ServerName: "*.example.org"}, []string{"serverName"}},
		"two servers":  {logserver.Settings{Address: "logs", ServerName: `a", "b`}, []string{"serverName"}},
		"a fingerprint": {
			logserver.Settings{Address: "logs", ServerName: "SHA1:00:11"}, []string{"serverName"},
		},
		"a line":      {logserver.Settings{Address: "logs", ServerName: "logs\n"}, []string{"serverName"}},
		"a command":   {logserver.Settings{Address: "logs", HostName: "$(reboot)"}, []string{"hostName"}},
		"a backtick":  {logserver.Settings{Address: "logs", HostName: "`echo x`"}, []string{"hostName"}},
		"a quote":     {logserver.Settings{Address: `logs"`}, []string{"address"}},
		"a backslash": {logserver.Settings{Address: `logs\`}, []string{"address"}},
		"an action": {
			logserver.Settings{Address: "logs", HostName: "x\")\naction(type=\"omprog\" binary=\"/bin/sh\")\n#"},
			[]string{"hostName"},
		},
	} {
		c.s.Journal = true
		if diff := cmp.Diff(c.want, paths(t, c.s.Check())); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), syslogtest.NewCA(t)
	cert, key := ca.Issue(t, syslogtest.Peer, x509.ExtKeyUsageClientAuth)
	_, otherKey := ca.Issue(t, syslogtest.Peer, x509.ExtKeyUsageClientAuth)
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	caFile, certFile, keyFile := file("ca.crt", ca.PEM), file("c.crt", cert), file("c.key", key)
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		s    logserver.Settings
		want []string
	}{
		"nothing":        {logserver.Settings{}, nil},
		"all":            {logserver.Settings{CAFile: caFile, CertFile: certFile, KeyFile: keyFile}, nil},
		"no CA":          {logserver.Settings{CAFile: dir + "/none"}, []string{"caFile"}},
		"a key as CA":    {logserver.Settings{CAFile: keyFile}, []string{"caFile"}},
		"no certificate": {logserver.Settings{CertFile: dir + "/none", KeyFile: keyFile}, []string{"certFile"}},
		"no key":         {logserver.Settings{CertFile: certFile, KeyFile: dir + "/none"}, []string{"keyFile"}},
		"another key": {
			logserver.Settings{CertFile: certFile, KeyFile: file("other.key", otherKey)}, []string{"certFile"},
		},
		"what never ends": {logserver.Settings{CAFile: fifo}, []string{"caFile"}},
		"too much":        {logserver.Settings{CAFile: file("huge", make([]byte, 1<<20+1))}, []string{"caFile"}},
	} {
		c.s.Address = "logs.example.org:6514"
		conf, err := c.s.TLS()
		if diff := cmp.Diff(c.want, paths(t, director.FieldsOf(err))); diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
		if err == nil && (conf.ServerName != "logs.example.org" || (conf.RootCAs == nil) != (c.s.CAFile == "") ||
			(len(conf.Certificates) == 0) != (c.s.CertFile == "") || conf.InsecureSkipVerify) {
			t.Errorf("%s: %+v", name, conf)
		}
		files, err := c.s.Read()
		if (err == nil) != (c.want == nil) || len(files.Key) > 0 != (err == nil && c.s.KeyFile != "") {
			t.Errorf("%s: %v", name, err)
		}
	}
	conf, err := logserver.Settings{Address: "10.0.0.9", ServerName: "logs"}.TLS()
	if err != nil || conf.ServerName != "logs" {
		t.Errorf("%+v, %v", conf, err)
	}
}
