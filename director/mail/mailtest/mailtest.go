// Package mailtest has SMTP servers for tests: real ones, with TLS and authentication.
package mailtest

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Mail is one that a server has taken.
type Mail struct {
	From string
	To   []string
	Text string // with its headers
}

// Server keeps the mails that it takes.
type Server struct {
	Port int

	mu  sync.Mutex
	got []Mail
}

// Options say how a server behaves.
type Options struct {
	Certificate    *tls.Certificate // no TLS if nil
	Implicit       bool             // TLS from the first byte on
	User, Password string           // no authentication if empty
	Refuse         map[string]int   // the SMTP code for a recipient or a sender
}

// Start returns a server on a free port of 127.0.0.1. It ends with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Port: l.Addr().(*net.TCPAddr).Port}
	smtpd := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		plain := &session{server: s, options: o, known: o.User == ""}
		if o.User == "" {
			return plain, nil
		}
		return authSession{plain}, nil
	}))
	smtpd.ErrorLog = log.New(io.Discard, "", 0) // refused clients are expected
	smtpd.ReadTimeout, smtpd.WriteTimeout = time.Minute, time.Minute
	if o.Certificate != nil {
		smtpd.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*o.Certificate}}
	}
	if o.Implicit {
		l = tls.NewListener(l, smtpd.TLSConfig)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = smtpd.Serve(l) // ends when the server is closed
	}()
	t.Cleanup(func() {
		_ = smtpd.Close()
		<-done
	})
	return s
}

// Got returns the mails so far.
func (s *Server) Got() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

type session struct {
	server  *Server
	options Options
	known   bool
	mail    Mail
}

// authSession offers authentication. The server asks by the type whether a session does.
type authSession struct{ *session }

func (authSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s authSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != s.options.User || password != s.options.Password {
			return smtp.ErrAuthFailed
		}
		s.known = true
		return nil
	}), nil
}

func (s *session) refuse(who string) error {
	if code := s.options.Refuse[who]; code != 0 {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: "not for " + who}
	}
	return nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if !s.known {
		return smtp.ErrAuthRequired
	}
	s.mail = Mail{From: from}
	return s.refuse(from)
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.mail.To = append(s.mail.To, to)
	return s.refuse(to)
}

func (s *session) Data(r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return errors.New("the text ended too early")
	}
	s.mail.Text = string(text)
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.got = append(s.server.got, s.mail)
	return nil
}

func (s *session) Reset()        { s.mail = Mail{} }
func (s *session) Logout() error { return nil }
