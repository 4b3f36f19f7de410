package notifications

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/mail"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/webhook"
)

// mailTimeout is how long one connection to a mail server may take with all that is sent over it.
const mailTimeout = 30 * time.Second

// outcome is what came of an attempt.
type outcome struct {
	received bool          // by an endpoint, or by everyone who can get it
	gone     bool          // the endpoint asks for nothing any more
	retry    time.Duration // what the endpoint asks to wait; 0 if it does not say
	problem  string
}

// send makes one attempt. It notes in m who has the mail.
func (s *Service) send(ctx context.Context, doc model.Stored, m *director.NotificationMessage) outcome {
	var account director.Credentials
	if doc.Notification.CredentialsName() != "" {
		var err error
		if account, err = s.c.Accounts.OpenNotification(ctx, doc.Metadata.Name, *doc.Notification); err != nil {
			return failed(err)
		}
	}
	if doc.Notification.Mail != nil {
		return s.mail(ctx, doc, account, m)
	}
	return s.post(ctx, doc, account, *m)
}

func failed(err error) outcome {
	text := err.Error()
	if hint := director.HintOf(err); hint != "" {
		text += "; " + hint
	}
	return outcome{problem: webhook.Clip(text, webhook.MostReason)}
}

func roots(ca string) *x509.CertPool {
	if ca == "" {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca))
	return pool
}

func (s *Service) mail(
	ctx context.Context, doc model.Stored, account director.Credentials, m *director.NotificationMessage,
) outcome {
	spec := doc.Notification.Mail
	host := "director"
	if u, err := url.Parse(s.c.URL); err == nil {
		host = u.Hostname()
	}
	server := mail.Server{
		Host: spec.Server, Port: spec.ServerPort(), Implicit: spec.TLS == model.MailImplicit,
		Allow: confine.Allowed(spec.Allow), Roots: roots(spec.CA), User: account.User, Password: account.Password,
		Hello: hello(host), Timeout: mailTimeout,
	}
	var to []string
	for _, a := range spec.To {
		if !slices.Contains(m.Received, a) {
			to = append(to, a)
		}
	}
	if len(to) == 0 { // those who did not have it are not named any more
		return outcome{received: true}
	}
	failures := server.Send(ctx, mail.Message{
		ID: m.ID + "@" + s.c.Store.DirectorID() + ".director", From: spec.From, To: to, Subject: s.subject(*m, host),
		Text: s.text(*m), Headers: map[string]string{"List-Id": listID(doc.Metadata.Name, host)}, Date: m.Created,
	})
	var problems []string
	later := false
	for _, a := range to {
		i := slices.IndexFunc(failures, func(f *mail.Failure) bool { return f.Recipient == a || f.Recipient == "" })
		if i < 0 {
			m.Received = append(m.Received, a)
			continue
		}
		later = later || failures[i].Temporary
		problems = append(problems, failures[i].Error())
	}
	return outcome{
		received: len(m.Received) > 0 && !later,
		problem:  webhook.Clip(strings.Join(slices.Compact(problems), "; "), webhook.MostReason),
	}
}

// hello is the name by which a director introduces itself that is reached at the host.
func hello(host string) string {
	if strings.Contains(host, ":") {
		return "[IPv6:" + host + "]"
	}
	if strings.Trim(host, "0123456789.") == "" {
		return "[" + host + "]"
	}
	return host
}

// listID lets people sort the mails.
func listID(name, host string) string {
	return "<" + name + ".notifications." + strings.Trim(strings.ReplaceAll(host, ":", "-"), "[]") + ">"
}

// headlines say what the items of a message have in common.
var headlines = map[string]string{
	model.AboutApprovals: "waits for a person", model.AboutFailures: "failed", model.AboutBackups: "backups are late",
	model.AboutDrills: "restore drills failed or are late", model.AboutCertificates: "certificates end",
}

// mostSubject is how much of a subject is text of the item.
const mostSubject = 120

func (s *Service) subject(m director.NotificationMessage, host string) string {
	head := "[director " + webhook.Clip(host, 60) + "] "
	switch {
	case len(m.Items) == 0:
		return head + "Test of Notification/" + m.Notification
	case len(m.Items) == 1:
		return head + webhook.Clip(m.Items[0].Text, mostSubject)
	}
	var parts []string
	for _, about := range model.Abouts() {
		n := 0
		for _, i := range m.Items {
			if i.About == about {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", headlines[about], n))
		}
	}
	if m.More > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", m.More))
	}
	return head + strings.Join(parts, ", ")
}

// text is the body of a mail: plain, with links to the console.
func (s *Service) text(m director.NotificationMessage) string {
	var b strings.Builder
	if len(m.Items) == 0 {
		b.WriteString("This is a test. Mails of this notification arrive.\n\n")
	}
	about := ""
	for _, i := range m.Items {
		if i.About != about {
			about = i.About
			head := headlines[about]
			fmt.Fprintf(&b, "%s\n\n", strings.ToUpper(head[:1])+head[1:])
		}
		fmt.Fprintf(&b, "  * %s\n", i.Text)
		if !i.Since.IsZero() {
			fmt.Fprintf(&b, "    since %s\n", moment(i.Since))
		}
		fmt.Fprintf(&b, "    %s%s\n\n", s.c.URL, i.Path)
	}
	if m.More > 0 {
		fmt.Fprintf(&b, "And %d more: %s/\n\n", m.More, s.c.URL)
	}
	fmt.Fprintf(&b, "--\nSent by the director at %s/ for Notification/%s\n", s.c.URL, m.Notification)
	return b.String()
}

// eventType is the type of the events that endpoints get.
const eventType = "io.github.director-kaas.notification"

// data is what an event says.
type data struct {
	Notification string `json:"notification"`
	Test         bool   `json:"test,omitempty"`
	Items        []item `json:"items"`
	More         int    `json:"more,omitempty"` // things that are not listed
}

type item struct {
	Key     string    `json:"key"`
	About   string    `json:"about"`
	Cluster string    `json:"cluster,omitempty"`
	Text    string    `json:"text"`
	URL     string    `json:"url"`
	Since   time.Time `json:"since,omitzero"`
}

func (s *Service) post(
	ctx context.Context, doc model.Stored, account director.Credentials, m director.NotificationMessage,
) outcome {
	w := doc.Notification.Webhook
	to := webhook.Endpoint{
		URL: w.URL, Allow: confine.Allowed(w.Allow), Own: s.c.Own(), Timeout: time.Duration(w.Timeout),
		Agent: "director/" + s.c.Version, Roots: roots(w.CA),
	}
	if w.ClientCredentials != "" {
		pair, err := tls.X509KeyPair([]byte(account.Password.Reveal()), []byte(account.Password.Reveal()))
		if err != nil { // its text may quote the key
			return outcome{problem: "the credentials " + account.Name + " are no certificate with its key in PEM"}
		}
		to.Client = &pair
	}
	of := data{Notification: m.Notification, Test: len(m.Items) == 0, Items: []item{}, More: m.More}
	for _, i := range m.Items {
		of.Items = append(of.Items, item{i.Key, i.About, i.Cluster, i.Text, s.c.URL + i.Path, i.Since})
	}
	body, err := s.event(m, of)
	if err != nil {
		return failed(err)
	}
	keys, err := s.keys.Signers(ctx, ownerOf(doc))
	if err != nil {
		return failed(err)
	}
	o := to.Send(ctx, webhook.Request{ID: m.ID, Body: body, Keys: keys, At: s.c.Now()})
	out := outcome{received: o.Received, gone: o.Gone, retry: o.Retry, problem: o.Problem}
	if o.Received {
		out.problem = "" // whatever it has answered
	}
	return out
}

// event is the body of a request. It names fewer items where their texts are too long for one.
func (s *Service) event(m director.NotificationMessage, of data) ([]byte, error) {
	for {
		body, err := webhook.Event{
			ID: m.ID, Source: s.c.URL, Type: eventType, Subject: "notification/" + m.Notification,
			Time: m.Created.UTC(), Data: of,
		}.Encode()
		if err == nil || len(of.Items) < 2 {
			return body, err
		}
		of.Items, of.More = of.Items[:len(of.Items)-1], of.More+1
	}
}
