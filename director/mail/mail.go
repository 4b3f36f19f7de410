// Package mail is how a text gets to people: over SMTP, always with TLS, to a server whose address is allowed. It knows
// nothing of what the text is about.
package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// What a message may hold.
const (
	MostRecipients = 50
	MostText       = 64 << 10 // bytes of a text
	MostLine       = 200      // bytes of a subject and of the value of a header
	mostProblem    = 1000     // bytes of what is told about a failure
)

// headers are those that a message may set apart from its own fields. Every other one is refused: a header may say who
// else gets the mail, and how it is read.
var headers = []string{"Importance", "List-Id", "Reply-To", "X-Priority"}

// Server is an SMTP server and how to talk to it.
type Server struct {
	Host     string
	Port     int
	Implicit bool             // TLS from the first byte on (RFC 8314), and not after STARTTLS
	Allow    confine.Networks // ranges that it may be in
	Roots    *x509.CertPool   // those of the system if nil
	User     string           // no authentication if empty
	Password director.Secret
	Hello    string        // the name by which the director introduces itself
	Timeout  time.Duration // of a connection with all that is sent over it
	Resolve  *net.Resolver // the system's if nil
}

// Message is a text for people.
type Message struct {
	ID      string // of the mail, LEFT@RIGHT; an attempt that is made again has the same one
	From    string
	To      []string          // each gets a mail of its own, and does not see the others
	Subject string            // characters that are not for one line become spaces
	Text    string            // plain; it ends with a line break
	Headers map[string]string // of Importance, List-Id, Reply-To and X-Priority
	Date    time.Time
}

// Stage is how far an attempt got.
type Stage string

// The stages of an attempt, in their order.
const (
	StageMessage   Stage = "message" // the message itself is wrong; nothing was sent
	StageResolve   Stage = "resolve"
	StageConnect   Stage = "connect"
	StageGreeting  Stage = "greeting"
	StageTLS       Stage = "tls"
	StageAuth      Stage = "auth"
	StageSender    Stage = "sender"
	StageRecipient Stage = "recipient"
	StageContent   Stage = "content"
)

// Failure says what an attempt failed at.
type Failure struct {
	Stage     Stage
	Recipient string // who did not get it; empty if no recipient did
	Code      int    // of SMTP; 0 if the server did not say one
	Temporary bool   // a later attempt may work
	Problem   string // for people; one line
}

// Error tells the stage and the problem.
func (f *Failure) Error() string {
	if f.Recipient != "" {
		return fmt.Sprintf("mail: %s %s: %s", f.Stage, f.Recipient, f.Problem)
	}
	return fmt.Sprintf("mail: %s: %s", f.Stage, f.Problem)
}

// Check returns the first thing that is wrong with the message, a *Failure of StageMessage, or nil.
func (m Message) Check() error {
	bad := func(format string, args ...any) error {
		return &Failure{Stage: StageMessage, Problem: line(fmt.Sprintf(format, args...), mostProblem)}
	}
	left, right, ok := strings.Cut(m.ID, "@")
	switch {
	case !ok || !word(left) || !word(right) || len(m.ID) > MostLine:
		return bad("id: %q is not LEFT@RIGHT of letters, digits, dots and dashes", m.ID)
	case len(m.To) == 0 || len(m.To) > MostRecipients:
		return bad("to: there are %d recipients, and may be 1 to %d", len(m.To), MostRecipients)
	case len(m.Subject) > MostLine:
		return bad("subject: it has %d bytes, and may have %d", len(m.Subject), MostLine)
	case len(m.Text) > MostText:
		return bad("text: it has %d bytes, and may have %d", len(m.Text), MostText)
	}
	for i, a := range append([]string{m.From}, m.To...) {
		if err := confine.CheckMail(a); err != nil {
			return bad("%s: %v", map[bool]string{true: "from", false: "to"}[i == 0], err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		value := m.Headers[name]
		switch {
		case !slices.Contains(headers, name):
			return bad("headers: %q is not one of %s", name, strings.Join(headers, ", "))
		case len(value) > MostLine || value != line(value, MostLine):
			return bad("headers: the value of %s is not one line of at most %d bytes", name, MostLine)
		case name == "Reply-To" && confine.CheckMail(value) != nil:
			return bad("headers: Reply-To: %v", confine.CheckMail(value))
		}
	}
	return nil
}

// word reports whether s can be a half of an id.
func word(s string) bool {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-'
	}
	return s != "" && !strings.ContainsFunc(s, other)
}

// line returns text of others as at most n bytes of one line of characters that can be shown.
func line(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// Send sends a mail to each recipient over one connection. It returns a failure for each recipient that did not get
// it, and one without a recipient if none could be tried. A recipient whose failure is temporary may have got the mail
// if the connection broke after its text was sent: the id is then the same in the next attempt.
func (s Server) Send(ctx context.Context, m Message) []*Failure {
	if err := m.Check(); err != nil {
		f, _ := errors.AsType[*Failure](err)
		return []*Failure{f}
	}
	var failures []*Failure
	f := s.talk(ctx, func(send func(*gomail.Msg) error) {
		for _, to := range m.To {
			msg, err := m.render(to)
			if err == nil {
				err = send(msg)
			}
			if err != nil {
				failures = append(failures, refused(err, to))
			}
		}
	})
	if f != nil {
		return []*Failure{f}
	}
	return failures
}

// Test connects, secures the connection and authenticates, without a mail. It returns nil if that worked.
func (s Server) Test(ctx context.Context) *Failure {
	return s.talk(ctx, func(func(*gomail.Msg) error) {})
}

// talk calls do with a connection that is ready for mails. The connection is closed afterwards, whatever happened.
func (s Server) talk(ctx context.Context, do func(send func(*gomail.Msg) error)) *Failure {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	a := attempt{server: s, stage: StageResolve}
	client, err := a.client()
	if err != nil {
		return &Failure{Stage: StageMessage, Problem: line(err.Error(), mostProblem)}
	}
	defer a.end()
	conn, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return a.failure(ctx, err)
	}
	do(func(m *gomail.Msg) error { return client.SendWithSMTPClient(conn, m) })
	_ = conn.Quit() // the mails are taken already
	return nil
}

// attempt is one connection. The library neither closes the connection of a failed dial nor says how far that got.
type attempt struct {
	server Server
	stage  Stage
	conn   net.Conn
}

func (a *attempt) client() (*gomail.Client, error) {
	s := a.server
	options := []gomail.Option{
		gomail.WithPort(s.Port), gomail.WithTLSPolicy(gomail.TLSMandatory), gomail.WithTLSConfig(a.tls()),
		gomail.WithTimeout(s.Timeout), gomail.WithDialContextFunc(a.dial), gomail.WithHELO(s.Hello),
	}
	if s.Implicit {
		options = append(options, gomail.WithSSL())
	}
	if s.User != "" {
		options = append(
			options, gomail.WithUsername(s.User), gomail.WithPassword(s.Password.Reveal()),
			gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin),
		)
	}
	return gomail.NewClient(s.Host, options...)
}

func (a *attempt) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: a.server.Roots, ServerName: a.server.Host,
		VerifyConnection: func(tls.ConnectionState) error {
			a.stage = StageAuth // called after the certificate was verified
			return nil
		},
	}
}

// dial connects to the server, and over TLS if that comes first.
func (a *attempt) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	dialer := a.server.Allow.Dialer()
	dialer.Timeout, dialer.Resolver = a.server.Timeout, a.server.Resolve
	conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(a.server.Host, strconv.Itoa(a.server.Port)))
	if err != nil {
		if _, ok := errors.AsType[*net.DNSError](err); !ok {
			a.stage = StageConnect
		}
		return nil, err
	}
	a.conn, a.stage = conn, StageGreeting
	// The context that the library hands over ends with the dial, so the deadline is that of the whole attempt.
	if err := conn.SetDeadline(time.Now().Add(a.server.Timeout)); err != nil || !a.server.Implicit {
		return conn, err
	}
	a.stage = StageTLS
	secure := tls.Client(conn, a.tls())
	return secure, secure.HandshakeContext(ctx)
}

// end closes the connection.
func (a *attempt) end() {
	if a.conn != nil {
		_ = a.conn.Close()
	}
}

// failure explains an attempt that did not get as far as a mail.
func (a *attempt) failure(ctx context.Context, err error) *Failure {
	f := &Failure{Stage: a.stage, Temporary: true, Problem: line(err.Error(), mostProblem)}
	reply, replied := errors.AsType[*textproto.Error](err)
	_, odd := errors.AsType[textproto.ProtocolError](err)
	_, broken := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, confine.ErrAddress):
		f.Temporary = false
	case replied:
		f.Code, f.Temporary = reply.Code, reply.Code < 500
	case ctx.Err() != nil || broken && isTimeout(err):
		f.Problem = fmt.Sprintf("no answer within %s", a.server.Timeout)
	case a.stage == StageGreeting && !odd && strings.Contains(err.Error(), "STARTTLS"),
		a.stage == StageGreeting && isCertificate(err):
		f.Stage = StageTLS
	}
	return f
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

func isCertificate(err error) bool {
	_, cert := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return cert || record
}

// refused explains a mail that the server did not take for the recipient.
func refused(err error, to string) *Failure {
	f := &Failure{Stage: StageContent, Recipient: to, Temporary: true, Problem: line(err.Error(), mostProblem)}
	e, ok := errors.AsType[*gomail.SendError](err)
	if !ok {
		return f
	}
	f.Code = e.ErrorCode()
	f.Temporary = f.Code < 500 // also without a code: the connection broke
	switch e.Reason {
	case gomail.ErrSMTPMailFrom:
		f.Stage = StageSender
	case gomail.ErrSMTPRcptTo:
		f.Stage = StageRecipient
	}
	return f
}

// render returns the mail for one recipient.
func (m Message) render(to string) (*gomail.Msg, error) {
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := msg.From(m.From); err != nil {
		return nil, err
	}
	if err := msg.To(to); err != nil {
		return nil, err
	}
	msg.SetMessageIDWithValue(m.ID)
	msg.SetDateWithValue(m.Date)
	msg.Subject(line(m.Subject, MostLine))
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no absence notes in answer
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		msg.SetGenHeader(gomail.Header(name), m.Headers[name])
	}
	msg.SetBodyString(gomail.TypeTextPlain, m.Text)
	return msg, nil
}
