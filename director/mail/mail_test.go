package mail_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/confine"
	smtpmail "github.com/director-kaas/kaas/director/mail"
	"github.com/director-kaas/kaas/director/mail/mailtest"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
)

const password = "correct horse"

func certificate(t *testing.T, a *webhooktest.Authority, name string) *tls.Certificate {
	t.Helper()
	cert, key := a.Issue(t, name)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

func server(port int, roots *x509.CertPool) smtpmail.Server {
	return smtpmail.Server{
		Host: "127.0.0.1", Port: port, Roots: roots, Hello: "director.test", Timeout: time.Minute,
		Allow: confine.Networks{netip.MustParsePrefix("127.0.0.0/8")},
	}
}

func message(to ...string) smtpmail.Message {
	return smtpmail.Message{
		ID: "n-1.a@director.test", From: "director@example.org", To: to, Subject: "Plan failed: größer",
		Text: "Plan p1 failed.\n.\nhttps://director.test/plans/p1?a=b\n" + strings.Repeat("long ", 300) + "\n",
		Date: time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC), Headers: map[string]string{"Reply-To": "ops@example.org"},
	}
}

func TestSend(t *testing.T) {
	t.Parallel()
	a := webhooktest.NewAuthority(t)
	for name, implicit := range map[string]bool{"STARTTLS": false, "implicit TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			smtp := mailtest.Start(t, mailtest.Options{
				Certificate: certificate(t, a, "127.0.0.1"), Implicit: implicit, User: "kaas", Password: password,
			})
			s := server(smtp.Port, a.Roots())
			s.Implicit, s.User, s.Password = implicit, "kaas", password
			if f := s.Test(t.Context()); f != nil {
				t.Fatal(f)
			}
			m := message("ann@example.org", "bob@example.org")
			if f := s.Send(t.Context(), m); len(f) != 0 {
				t.Fatal(f)
			}
			got := smtp.Got()
			if len(got) != 2 {
				t.Fatalf("got %d mails", len(got))
			}
			for i, g := range got {
				if diff := cmp.Diff([]string{m.From, m.To[i]}, append([]string{g.From}, g.To...)); diff != "" {
					t.Error(diff)
				}
				checkMail(t, g.Text, m, m.To[i])
			}
		})
	}
}

// checkMail reads the mail by the parsers of the standard library.
func checkMail(t *testing.T, text string, m smtpmail.Message, to string) {
	t.Helper()
	parsed, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(parsed.Header.Get("Subject"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(parsed.Body))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{
		parsed.Header.Get("Message-ID"), parsed.Header.Get("To"), subject, parsed.Header.Get("Reply-To"),
		parsed.Header.Get("Auto-Submitted"), strings.ReplaceAll(string(body), "\r\n", "\n"),
	}
	want := []string{"<" + m.ID + ">", "<" + to + ">", m.Subject, "ops@example.org", "auto-generated", m.Text}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A refused recipient keeps no other one from the mail.
func TestRecipients(t *testing.T) {
	t.Parallel()
	a := webhooktest.NewAuthority(t)
	smtp := mailtest.Start(t, mailtest.Options{
		Certificate: certificate(t, a, "127.0.0.1"),
		Refuse:      map[string]int{"gone@example.org": 550, "full@example.org": 452},
	})
	failures := server(smtp.Port, a.Roots()).Send(
		t.Context(), message("gone@example.org", "ann@example.org", "full@example.org"),
	)
	if len(failures) != 2 || len(smtp.Got()) != 1 || smtp.Got()[0].To[0] != "ann@example.org" {
		t.Fatalf("failures %v, mails %v", failures, smtp.Got())
	}
	for i, want := range []smtpmail.Failure{
		{Stage: smtpmail.StageRecipient, Recipient: "gone@example.org", Code: 550},
		{Stage: smtpmail.StageRecipient, Recipient: "full@example.org", Code: 452, Temporary: true},
	} {
		got := *failures[i]
		if !strings.Contains(got.Problem, "not for "+got.Recipient) {
			t.Errorf("the problem does not quote the server: %q", got.Problem)
		}
		got.Problem = ""
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	a, other := webhooktest.NewAuthority(t), webhooktest.NewAuthority(t)
	good := mailtest.Options{Certificate: certificate(t, a, "127.0.0.1"), User: "kaas", Password: password}
	secure := good
	secure.Implicit = true
	start := func(o mailtest.Options) int { return mailtest.Start(t, o).Port }
	silent, web := listen(t, ""), listen(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	for name, c := range map[string]struct {
		port      int
		change    func(*smtpmail.Server)
		stage     smtpmail.Stage
		temporary bool
	}{
		"a name that leads nowhere": {1, func(s *smtpmail.Server) { s.Host = "smtp.invalid" }, "resolve", true},
		"an address not allowed": {
			start(good), func(s *smtpmail.Server) { s.Allow = confine.Private() }, "connect", false,
		},
		"a port without a server": {1, func(*smtpmail.Server) {}, "connect", true},
		"a server that is silent": {
			silent, func(s *smtpmail.Server) { s.Timeout = time.Second }, "greeting", true,
		},
		"a server of the web": {web, func(*smtpmail.Server) {}, "greeting", true},
		"no STARTTLS":         {start(mailtest.Options{}), func(*smtpmail.Server) {}, "tls", true},
		"another authority":   {start(good), func(s *smtpmail.Server) { s.Roots = other.Roots() }, "tls", true},
		"another, from byte 1": {
			start(secure), func(s *smtpmail.Server) { s.Roots, s.Implicit = other.Roots(), true }, "tls", true,
		},
		"implicit TLS to a server of STARTTLS": {
			start(good), func(s *smtpmail.Server) { s.Implicit = true }, "tls", true,
		},
		"another name": {
			start(mailtest.Options{Certificate: certificate(t, a, "smtp.test")}), func(*smtpmail.Server) {}, "tls",
			true,
		},
		"a wrong password": {
			start(good), func(s *smtpmail.Server) { s.User, s.Password = "kaas", "wrong-pw" }, "auth", false,
		},
		"a server without authentication": {
			start(mailtest.Options{Certificate: certificate(t, a, "127.0.0.1")}),
			func(s *smtpmail.Server) { s.User, s.Password = "kaas", "wrong-pw" }, "auth", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(c.port, a.Roots())
			c.change(&s)
			f := s.Test(t.Context())
			if f == nil || f.Stage != c.stage || f.Temporary != c.temporary {
				t.Fatalf("%+v is not of stage %s, temporary %v", f, c.stage, c.temporary)
			}
			if f.Problem == "" || strings.Contains(f.Problem, "wrong-pw") || strings.ContainsAny(f.Problem, "\r\n") {
				t.Errorf("problem %q", f.Problem)
			}
		})
	}
}

// listen returns the port of a server that says the text, and nothing more.
func listen(t *testing.T, text string) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, text)
			context.AfterFunc(t.Context(), func() { _ = c.Close() })
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// Nothing that a message is made of reaches another header, another recipient or another command.
func TestMessagesThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*smtpmail.Message)
		want   string
	}{
		"a line in a recipient":  {func(m *smtpmail.Message) { m.To[0] = "a@b.c>\r\nRCPT TO:<x@y.z" }, "to: "},
		"two in one recipient":   {func(m *smtpmail.Message) { m.To[0] = "a@b.c,x@y.z" }, "to: "},
		"a name and an address":  {func(m *smtpmail.Message) { m.To[0] = "Ann<a@b.c>" }, "to: "},
		"a line in the sender":   {func(m *smtpmail.Message) { m.From = "a@b.c\nBcc: x@y.z" }, "from: "},
		"no recipient":           {func(m *smtpmail.Message) { m.To = nil }, "to: "},
		"too many recipients":    {func(m *smtpmail.Message) { m.To = make([]string, 51) }, "to: "},
		"a header not listed":    {func(m *smtpmail.Message) { m.Headers["Bcc"] = "x@y.z" }, "headers: "},
		"a line in a header":     {func(m *smtpmail.Message) { m.Headers["List-Id"] = "a\r\nBcc: x@y.z" }, "headers: "},
		"an answer to a list":    {func(m *smtpmail.Message) { m.Headers["Reply-To"] = "a@b.c, x@y.z" }, "headers: "},
		"a line in the id":       {func(m *smtpmail.Message) { m.ID = "a@b>\r\nBcc: x@y.z" }, "id: "},
		"a subject that is long": {func(m *smtpmail.Message) { m.Subject = strings.Repeat("x", 201) }, "subject: "},
		"a text that is long":    {func(m *smtpmail.Message) { m.Text = strings.Repeat("x", 64<<10+1) }, "text: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := message("ann@example.org")
			c.change(&m)
			failures := server(1, nil).Send(t.Context(), m)
			if len(failures) != 1 || failures[0].Stage != smtpmail.StageMessage ||
				!strings.HasPrefix(failures[0].Problem, c.want) {
				t.Errorf("%v", failures)
			}
		})
	}
}

// Subjects come from names and messages of other systems: they stay one header.
func TestSubjectsAreOneLine(t *testing.T) {
	t.Parallel()
	a := webhooktest.NewAuthority(t)
	smtp := mailtest.Start(t, mailtest.Options{Certificate: certificate(t, a, "127.0.0.1")})
	m := message("ann@example.org")
	m.Subject = "a\r\nBcc: x@y.z\r\n\r\nb\u2028c"
	if f := server(smtp.Port, a.Roots()).Send(t.Context(), m); len(f) != 0 {
		t.Fatal(f)
	}
	m.Subject = "a  Bcc: x@y.z    b c"
	if got := smtp.Got(); len(got) != 1 || len(got[0].To) != 1 {
		t.Fatalf("mails %v", got)
	}
	checkMail(t, smtp.Got()[0].Text, m, "ann@example.org")
}
