// Package logserver says where a log server is, how it and the director recognise each other, and what is sent there.
// Messages are those of RFC 5424 over TLS (RFC 5425).
package logserver

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/director-kaas/kaas/director"
)

// Key is where the settings are in the configuration of the director.
const Key = "auditSyslog"

// Settings are those of the log server that gets the audit trail.
type Settings struct {
	Address string `yaml:"address"` // HOST[:PORT] of the server, by TLS; empty for none
	// certificates that the server's must be from; those that the machine trusts if empty
	CAFile     string `yaml:"caFile"`
	CertFile   string `yaml:"certFile"`   // certificate that the director shows, in PEM form; none if empty
	KeyFile    string `yaml:"keyFile"`    // its key
	ServerName string `yaml:"serverName"` // name in the server's certificate; the host of address if empty
	Facility   int    `yaml:"facility"`   // number of the facility of the trail; 13, log audit, if 0
	HostName   string `yaml:"hostName"`   // what messages call this machine; its own name if empty
	Journal    bool   `yaml:"journal"`    // whether the appliance sends its journal there, too
}

// hostName is what can be a name in DNS.
var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// mostFile bounds each file. A bundle of all public authorities has a quarter of a MiB.
const mostFile = 1 << 20

// HostPort returns the host and the port of the server.
func (s Settings) HostPort() (host, port string) {
	const usual = "6514" // syslog-tls, RFC 5425
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return s.Address, usual
	}
	return host, port
}

// Name returns the name that the server's certificate must have.
func (s Settings) Name() string {
	if s.ServerName != "" {
		return s.ServerName
	}
	host, _ := s.HostPort()
	return host
}

// Check returns what is wrong, without a look at the files. Settings without a problem have an address that is a name
// or an IP address with a port; with Journal, Name and HostName are plain names, too, and the address has no zone.
func (s Settings) Check() []director.Field {
	var all []director.Field
	bad := func(key, hint, format string, args ...any) {
		all = append(all, director.Field{Path: Key + "." + key, Msg: fmt.Sprintf(format, args...), Hint: hint})
	}
	if s.Address == "" {
		if s != (Settings{}) {
			bad("address", "HOST:PORT of the log server", "is missing")
		}
		return all
	}
	host, port := s.HostPort()
	n, err := strconv.ParseUint(port, 10, 16)
	ip, notIP := netip.ParseAddr(host)
	if notIP != nil && !hostName.MatchString(host) || err != nil || n == 0 {
		bad("address", "such as logs.example.org:6514", "%q is not an address", s.Address)
	}
	if s.Facility < 0 || s.Facility > 23 {
		bad("facility", "a number from 1 to 23; log audit is 13", "%d is not allowed", s.Facility)
	}
	if (s.CertFile == "") != (s.KeyFile == "") {
		bad("keyFile", "name both certFile and keyFile, or none", "a certificate goes with its key")
	}
	for _, file := range []struct{ key, path string }{
		{"caFile", s.CAFile}, {"certFile", s.CertFile}, {"keyFile", s.KeyFile},
	} {
		if file.path != "" && !filepath.IsAbs(file.path) {
			bad(file.key, "beginning with /", "%q is not an absolute path", file.path)
		}
	}
	if s.Journal {
		s.checkJournal(ip, bad)
	}
	return all
}

// checkJournal checks what the program that sends the journal is told. It knows servers by names alone.
func (s Settings) checkJournal(ip netip.Addr, bad func(key, hint, format string, args ...any)) {
	if ip.Zone() != "" {
		bad("address", "a name, or an address without a zone", "%q has a zone, and journal is true", s.Address)
	}
	if _, err := netip.ParseAddr(s.Name()); err == nil {
		bad(
			"serverName", "a name in the certificate of the log server, such as logs.example.org",
			"is no name, and the journal is only sent to a server whose certificate has a name",
		)
	} else if s.ServerName != "" && !hostName.MatchString(s.ServerName) {
		bad("serverName", "such as logs.example.org", "%q is not a name", s.ServerName)
	}
	if s.HostName != "" && !hostName.MatchString(s.HostName) {
		bad("hostName", "such as director-1.example.org", "%q is not a name", s.HostName)
	}
}

// Files are the contents of the files of Settings; nil for those that are not named.
type Files struct{ CA, Cert, Key []byte }

// Read reads the files. Errors: invalid if one is missing or wrong; no other kind.
func (s Settings) Read() (Files, error) {
	f, _, err := s.read()
	return f, err
}

// TLS reads the files, and returns how the director connects to the server. Errors: those of Read.
func (s Settings) TLS() (*tls.Config, error) {
	_, conf, err := s.read()
	return conf, err
}

func (s Settings) read() (Files, *tls.Config, error) {
	var f Files
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.Name()}
	wrong := func(field string, err error) (Files, *tls.Config, error) {
		return Files{}, nil, director.Invalid("logserver.read", "the log server cannot be used", []director.Field{{
			Path: Key + "." + field, Msg: err.Error(), Hint: "correct the file, and start the director again",
		}})
	}
	var err error
	if s.CAFile != "" {
		if f.CA, err = readFile(s.CAFile); err != nil {
			return wrong("caFile", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(f.CA) {
			return wrong("caFile", fmt.Errorf("%s holds no certificate", s.CAFile))
		}
	}
	if s.CertFile == "" {
		return f, out, nil
	}
	if f.Cert, err = readFile(s.CertFile); err != nil {
		return wrong("certFile", err)
	}
	if f.Key, err = readFile(s.KeyFile); err != nil {
		return wrong("keyFile", err)
	}
	pair, err := tls.X509KeyPair(f.Cert, f.Key)
	if err != nil {
		return wrong("certFile", err)
	}
	out.Certificates = []tls.Certificate{pair}
	return f, out, nil
}

// readFile reads a regular file. Another one could keep its reader for ever.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > mostFile:
		return nil, fmt.Errorf("%s has more than %d KiB", path, mostFile>>10)
	}
	return os.ReadFile(path)
}
