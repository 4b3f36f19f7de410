package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/syslog"
)

// AuditSyslog is where the audit trail goes besides the database.
type AuditSyslog struct {
	Address string `yaml:"address"` // HOST[:PORT] of a log server, by TLS; empty for none
	// certificates that the server's must be from; those that the machine trusts if empty
	CAFile     string `yaml:"caFile"`
	CertFile   string `yaml:"certFile"`   // certificate that the director shows, in PEM form; none if empty
	KeyFile    string `yaml:"keyFile"`    // its key
	ServerName string `yaml:"serverName"` // name in the server's certificate; the host of address if empty
	Facility   int    `yaml:"facility"`   // number of the facility; 13, log audit, if 0
	HostName   string `yaml:"hostName"`   // what messages call this machine; its own name if empty
}

// hostName is what can be a name in DNS.
var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// syslogEvery is how often the trail is looked at for what to send.
const syslogEvery = time.Second

// address returns the host and the port of the server.
func (c AuditSyslog) address() (host, port string) {
	const usual = "6514" // syslog-tls, RFC 5425
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return c.Address, usual
	}
	return host, port
}

func (c AuditSyslog) check(p *problems) {
	if c.Address == "" {
		if c != (AuditSyslog{}) {
			p.add("auditSyslog.address", "HOST:PORT of the log server", "is missing")
		}
		return
	}
	host, port := c.address()
	n, err := strconv.ParseUint(port, 10, 16)
	_, notIP := netip.ParseAddr(host)
	if notIP != nil && !hostName.MatchString(host) || err != nil || n == 0 {
		p.add("auditSyslog.address", "such as logs.example.org:6514", "%q is not an address", c.Address)
	}
	if c.Facility < 0 || c.Facility > 23 {
		p.add("auditSyslog.facility", "a number from 1 to 23; log audit is 13", "%d is not allowed", c.Facility)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		p.add("auditSyslog.keyFile", "name both certFile and keyFile, or none", "a certificate goes with its key")
	}
	for _, file := range []struct{ key, path string }{
		{"caFile", c.CAFile}, {"certFile", c.CertFile}, {"keyFile", c.KeyFile},
	} {
		if file.path != "" && !filepath.IsAbs(file.path) {
			p.add("auditSyslog."+file.key, "beginning with /", "%q is not an absolute path", file.path)
		}
	}
}

// tls reads the files.
func (c AuditSyslog) tls() (*tls.Config, error) {
	wrong := func(field string, err error) error {
		return director.Invalid("daemon.syslog", "the audit trail cannot be sent", []director.Field{
			{Path: "auditSyslog." + field, Msg: err.Error(), Hint: "correct the file, and start the director again"},
		})
	}
	host, _ := c.address()
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if c.ServerName != "" {
		out.ServerName = c.ServerName
	}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, wrong("caFile", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(text) {
			return nil, wrong("caFile", director.Errorf(director.KindInvalid, "", "%s holds no certificate", c.CAFile))
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, wrong("certFile", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// startSyslog sends the audit trail to the log server, if there is one.
func (d background) startSyslog(ctx context.Context, db *store.Store, build Build) error {
	c := d.cfg.AuditSyslog
	if c.Address == "" {
		return nil
	}
	conf, err := c.tls()
	if err != nil {
		return err
	}
	name := c.HostName
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			name = d.cfg.Address.String()
		}
	}
	facility := syslog.LogAudit
	if c.Facility != 0 {
		facility = syslog.Facility(c.Facility)
	}
	host, port := c.address()
	s := syslog.New(syslog.Config{
		Trail: db, Owner: db.DirectorID() + "/" + name + "/" + strconv.Itoa(os.Getpid()),
		Address: net.JoinHostPort(host, port), TLS: conf, Now: time.Now, Log: d.log,
		Origin: syslog.Origin{Host: name, Version: build.Version, Facility: facility, Process: os.Getpid()},
	})
	d.onStop(func(context.Context) error { s.Close(); return nil })
	d.every(ctx, syslogEvery, "send the audit trail to the log server", s.Tick)
	return nil
}
