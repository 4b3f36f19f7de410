package ldap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/go-ldap/ldap/v3"
)

// Stage is a part of the way to an answer of a directory.
type Stage string

// The stages, in their order.
const (
	StageResolve Stage = "resolve"
	StageConnect Stage = "connect"
	StageTLS     Stage = "tls"
	StageBind    Stage = "bind"
	StageSearch  Stage = "search"
	StageGroups  Stage = "groups"
)

// stageError is what went wrong, and where.
type stageError struct {
	stage Stage
	err   error
	hint  string
}

func (e *stageError) Error() string { return string(e.stage) + ": " + e.err.Error() }
func (e *stageError) Unwrap() error { return e.err }

// session is a connection to one server, bound as the account that searches.
type session struct {
	c    *Config
	conn *ldap.Conn
	stop func() bool // ends the watch on the context
}

func (s *session) close() {
	s.stop()
	_ = s.conn.Close()
}

// open connects to the server and binds. passed is told of every stage that went well. The session ends with ctx.
func open(ctx context.Context, c *Config, server string, passed func(Stage)) (*session, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, &stageError{StageResolve, err, "write ldaps://host or ldap://host"}
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"ldap": "389", "ldaps": "636"}[u.Scheme]
	}
	limit, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if net.ParseIP(u.Hostname()) == nil {
		if _, err := net.DefaultResolver.LookupNetIP(limit, "ip", u.Hostname()); err != nil {
			return nil, &stageError{StageResolve, err, "check the name, and the DNS servers of the director"}
		}
	}
	passed(StageResolve)
	raw, err := c.Dial(limit, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, &stageError{StageConnect, err, "check the port, and the firewalls on the way to the directory"}
	}
	passed(StageConnect)
	conn, err := secure(limit, c, u, raw)
	if err != nil {
		_ = raw.Close()
		return nil, &stageError{StageTLS, err, hintTLS(err, u.Hostname())}
	}
	passed(StageTLS)
	conn.SetTimeout(c.Timeout)
	s := &session{c: c, conn: conn, stop: context.AfterFunc(ctx, func() { _ = conn.Close() })}
	if err := conn.Bind(c.BindDN, c.Password.Reveal()); err != nil {
		s.close()
		return nil, &stageError{StageBind, err, hintBind(err)}
	}
	passed(StageBind)
	return s, nil
}

// secure turns TLS on and starts to speak LDAP.
func secure(ctx context.Context, c *Config, u *url.URL, raw net.Conn) (*ldap.Conn, error) {
	config := &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	if len(c.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(c.CA)
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = raw.SetDeadline(deadline)
		defer func() { _ = raw.SetDeadline(time.Time{}) }()
	}
	if u.Scheme == "ldaps" {
		over := tls.Client(raw, config)
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn := ldap.NewConn(over, true)
		conn.Start()
		return conn, nil
	}
	conn := ldap.NewConn(raw, false)
	conn.SetTimeout(c.Timeout)
	conn.Start()
	if err := conn.StartTLS(config); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func hintTLS(err error, host string) string {
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if unknown.Cert != nil {
			return "put its CA into spec.ca; the server's certificate is from " + unknown.Cert.Issuer.String()
		}
		return "put the CA of the server's certificate into spec.ca"
	}
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("name the server as its certificate does (%v), not %s", name.Certificate.DNSNames, host)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "renew the server's certificate, or set the clock of the director"
	}
	if ldap.IsErrorAnyOf(err, ldap.LDAPResultProtocolError, ldap.LDAPResultUnavailable) {
		return "the server has no StartTLS; configure a certificate there, or use ldaps://"
	}
	return "check that the port speaks TLS: 636 for ldaps://, 389 for StartTLS"
}

func hintBind(err error) string {
	switch {
	case ldap.IsErrorWithCode(err, ldap.LDAPResultInvalidCredentials):
		return "check the user and the password of the credentials"
	case ldap.IsErrorWithCode(err, ldap.LDAPResultStrongAuthRequired):
		return "the server wants TLS for passwords: use ldaps:// or startTLS"
	}
	return "see the log of the directory"
}

// pageSize is below the limit of 1,000 that Active Directory has by default.
const pageSize = 500

// search returns the entries below base that the filter takes, in pages, at most limit of them (0 for all). Referrals
// to other servers are left out: nothing says that those may be asked.
func (s *session) search(base string, scope, limit int, filter string, attributes ...string) ([]*ldap.Entry, error) {
	request := ldap.NewSearchRequest(
		base, scope, ldap.NeverDerefAliases, limit, int(s.c.Timeout/time.Second), false, filter, attributes, nil,
	)
	var result *ldap.SearchResult
	var err error
	if limit > 0 {
		result, err = s.conn.Search(request)
	} else {
		result, err = s.conn.SearchWithPaging(request, pageSize)
	}
	enough := limit > 0 && ldap.IsErrorWithCode(err, ldap.LDAPResultSizeLimitExceeded)
	if enough || ldap.IsErrorWithCode(err, ldap.LDAPResultReferral) {
		err = nil
	}
	if result == nil {
		return nil, err
	}
	return result.Entries, err
}
