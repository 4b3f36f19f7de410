package model

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director/confine"
)

// What notifications can be about.
const (
	AboutApprovals    = "approvals"
	AboutFailures     = "failures"
	AboutBackups      = "backups"
	AboutDrills       = "drills"
	AboutCertificates = "certificates"
)

// notificationValidator validates notifications.
type notificationValidator struct{ *validator }

// notificationKind is what the model knows of the kind Notification.
var notificationKind = kind{
	name: KindNotification,
	meaning: "Who is told what waits for a person and what went wrong; see " +
		"[notifications](../use/notifications.md).",
	spec: func(d *Document) any { return ensure(&d.Notification) },
	validate: func(v *validator, d *Document) {
		v.notifications().notification(d.Notification)
	},
	credentials: func(d *Document) []string { return []string{d.Notification.CredentialsName()} },
	columns:     [][2]string{{"ABOUT", "about"}, {"TO", "mail.to"}, {"URL", "webhook.url"}, {"GROUP", "group"}},
	effects: of(Later, "no machine depends on it; the next message is sent so", "spec.about",
		"spec.select.clusters", "spec.quiet", "spec.group", "spec.certificatesWithin", "spec.mail.server",
		"spec.mail.port", "spec.mail.tls", "spec.mail.ca", "spec.mail.from", "spec.mail.to", "spec.mail.credentials",
		"spec.mail.allow", "spec.webhook.url", "spec.webhook.timeout", "spec.webhook.signature", "spec.webhook.ca",
		"spec.webhook.clientCredentials", "spec.webhook.allow"),
}

func (v *validator) notifications() notificationValidator { return notificationValidator{v} }

// Abouts returns everything that notifications can be about, the most urgent first.
func Abouts() []string {
	return []string{AboutApprovals, AboutFailures, AboutBackups, AboutDrills, AboutCertificates}
}

// How a mail server is spoken to.
const (
	MailStartTLS = "starttls"
	MailImplicit = "implicit"
)

// Notification tells people, or a program of theirs, what waits for them and what went wrong.
type Notification struct {
	Mail    *NotificationMail    `json:"mail,omitempty" doc:"Mail to people. Either this or webhook is required."`
	Webhook *NotificationWebhook `json:"webhook,omitempty" doc:"Requests to a program. Either this or mail is required."`
	About   []string             `json:"about,omitempty" doc:"What is told. approvals: plans that wait for a person, and questions of plans to hooks. failures: plans and runs of schedules that failed. backups: backups of clusters and of the director that are late or failed. drills: restore drills that failed or are late. certificates: certificates that end soon. Default: all." maxItems:"5"`
	Select  NotificationSelect   `json:"select,omitzero" doc:"Which clusters it is for. Default: all, and the director itself."`
	Quiet   []QuietTime          `json:"quiet,omitempty" doc:"Times when nothing is sent. What came meanwhile and still holds is sent at their end, in one message." maxItems:"14"`
	Group   Duration             `json:"group,omitempty" doc:"How long the director waits for more before it tells of the first, and how long after a message the next one comes at the earliest." default:"5m" min:"10s" max:"24h"`
	Within  Duration             `json:"certificatesWithin,omitempty" doc:"How long before its end a certificate is told of. It is told again three days before the end, and when it has ended." default:"336h" min:"1h" max:"8760h"`
}

// NotificationSelect narrows a notification. What is empty does not narrow it.
type NotificationSelect struct {
	Clusters []string `json:"clusters,omitempty" of:"Cluster" doc:"Names of clusters." maxItems:"200"`
}

// NotificationMail is mail over an SMTP server. It is always sent over TLS.
type NotificationMail struct {
	Server string   `json:"server" doc:"Name or address of the SMTP server, as its certificate has it." required:"true" maxLength:"253"`
	Port   int      `json:"port,omitempty" doc:"Port of the server. Default: 587, and 465 with tls: implicit." min:"1" max:"65535"`
	TLS    string   `json:"tls,omitempty" doc:"starttls: the connection is secured before anything is said. implicit: it is secured from the first byte on." enum:"starttls,implicit" default:"starttls"`
	CA     string   `json:"ca,omitempty" doc:"Certificates in PEM that the server's is trusted by, instead of those of the system." text:"lines" maxLength:"65536"`
	From   string   `json:"from" doc:"Address that the mails come from, such as director@example.org." required:"true" maxLength:"254"`
	To     []string `json:"to" doc:"Addresses of the people. Each gets a mail of their own, and does not see the others." required:"true" maxItems:"50" maxLength:"254"`
	// Credentials name what is sealed, so that a document holds no password.
	Credentials string         `json:"credentials,omitempty" doc:"Name of the credentials that the director logs in with. Default: it does not log in."`
	Allow       []netip.Prefix `json:"allow,omitempty" doc:"Ranges of addresses that the server may be in. Loopback and link-local addresses are only allowed by a range of their own. Default: private addresses." maxItems:"20"`
}

// NotificationWebhook is an endpoint that is told by signed requests, in the form of hooks.
type NotificationWebhook struct {
	URL               string         `json:"url" doc:"Address that is posted to: https://HOST[:PORT]/PATH, without an account." required:"true" maxLength:"1024"`
	Timeout           Duration       `json:"timeout,omitempty" doc:"How long one request may take." default:"15s" min:"1s" max:"30s"`
	Signature         string         `json:"signature,omitempty" doc:"How requests are signed: ed25519, which a public key verifies, or hmac with a shared secret." enum:"ed25519,hmac" default:"ed25519"`
	CA                string         `json:"ca,omitempty" doc:"Certificates in PEM that the server's is trusted by, instead of those of the system." text:"lines" maxLength:"65536"`
	ClientCredentials string         `json:"clientCredentials,omitempty" doc:"Name of the credentials whose password is the director's client certificate with its key, both in PEM."`
	Allow             []netip.Prefix `json:"allow,omitempty" doc:"Ranges of addresses that the URL may lead to. Loopback and link-local addresses are only allowed by a range of their own. Default: private addresses." maxItems:"20"`
}

// QuietTime is a time of the day when nothing is sent.
type QuietTime struct {
	From string   `json:"from" doc:"When it begins, such as 22:00." required:"true"`
	To   string   `json:"to" doc:"When it ends, such as 07:00. At or before from: on the next day." required:"true"`
	Zone string   `json:"zone,omitempty" doc:"Time zone, an IANA name such as Europe/Berlin." default:"UTC"`
	Days []string `json:"days,omitempty" doc:"Days on which it begins: mon, tue, wed, thu, fri, sat, sun. Default: every day." maxItems:"7"`
}

// Tells reports whether the notification is about that.
func (n *Notification) Tells(about string) bool {
	return len(n.About) == 0 || slices.Contains(n.About, about)
}

// For reports whether the notification is for the cluster; empty means the director itself.
func (n *Notification) For(cluster string) bool {
	return len(n.Select.Clusters) == 0 || slices.Contains(n.Select.Clusters, cluster)
}

// ServerPort returns the port of the mail server.
func (m *NotificationMail) ServerPort() int {
	switch {
	case m.Port != 0:
		return m.Port
	case m.TLS == MailImplicit:
		return 465
	}
	return 587
}

// CredentialsName returns the name of the credentials that the notification is sent with, or "" if it needs none.
func (n *Notification) CredentialsName() string {
	switch {
	case n.Mail != nil:
		return n.Mail.Credentials
	case n.Webhook != nil:
		return n.Webhook.ClientCredentials
	}
	return ""
}

// longestQuiet is how far QuietUntil looks: quiet times that follow one another for longer are refused.
const longestQuiet = 8 * 24 * time.Hour

// QuietUntil returns when the quiet time ends that the moment lies in, over all that follow at once, and zero if it
// lies in none.
func (n *Notification) QuietUntil(at time.Time) time.Time {
	var end time.Time
	for until := at; until.Sub(at) < longestQuiet; end = until {
		next := until
		for _, q := range n.Quiet {
			if e := q.end(until); e.After(next) {
				next = e
			}
		}
		if next.Equal(until) {
			return end
		}
		until = next
	}
	return end
}

// days are the names of weekdays, in Go's order.
var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// end returns when the quiet time ends that the moment lies in, and zero if it lies in none.
func (q QuietTime) end(at time.Time) time.Time {
	zone, err := time.LoadLocation(q.Zone)
	from, ok1 := clock(q.From)
	to, ok2 := clock(q.To)
	if err != nil || !ok1 || !ok2 {
		return time.Time{} // the document was refused
	}
	if to <= from {
		to += 24 * 60
	}
	at = at.In(zone)
	for back := range 2 {
		day := time.Date(at.Year(), at.Month(), at.Day()-back, 0, 0, 0, 0, zone)
		moment := func(minutes int) time.Time {
			return time.Date(day.Year(), day.Month(), day.Day(), 0, minutes, 0, 0, zone)
		}
		in := !at.Before(moment(from)) && at.Before(moment(to))
		if in && (len(q.Days) == 0 || slices.Contains(q.Days, days[day.Weekday()])) {
			return moment(to)
		}
	}
	return time.Time{}
}

var clockPattern = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)

// clock returns the minutes since midnight.
func clock(text string) (int, bool) {
	t, err := time.Parse("15:04", text)
	return t.Hour()*60 + t.Minute(), err == nil && clockPattern.MatchString(text)
}

func (v notificationValidator) notification(n *Notification) {
	if (n.Mail == nil) == (n.Webhook == nil) {
		v.fail("spec", "write one of mail and webhook", "has both mail and webhook, or none of them")
	}
	if n.Mail != nil {
		v.notificationMail(n.Mail)
	}
	if n.Webhook != nil {
		v.notificationWebhook(n.Webhook)
	}
	v.each("spec.about", n.About, "one of "+strings.Join(Abouts(), ", "), func(a string) bool {
		return slices.Contains(Abouts(), a)
	})
	v.each("spec.select.clusters", n.Select.Clusters, "the name of a cluster", func(c string) bool {
		return len(c) <= 40 && labelPattern.MatchString(c)
	})
	v.quiet(n)
}

func (v notificationValidator) notificationMail(m *NotificationMail) {
	if _, err := netip.ParseAddr(m.Server); err != nil {
		v.match("spec.mail.server", m.Server, apiName, "the name or the address of a mail server", 253)
	}
	if err := confine.CheckMail(m.From); err != nil {
		v.fail("spec.mail.from", "an address such as director@example.org", "%v", err)
	}
	v.each("spec.mail.to", m.To, "an address such as ann@example.org", func(a string) bool {
		return confine.CheckMail(a) == nil
	})
	if len(m.To) == 0 {
		v.fail("spec.mail.to", "name the address of a person", "is empty")
	}
	v.sending("spec.mail", m.CA, "credentials", m.Credentials, m.Allow)
}

func (v notificationValidator) notificationWebhook(w *NotificationWebhook) {
	v.endpoint(w.URL, "spec.webhook.url")
	v.sending("spec.webhook", w.CA, "clientCredentials", w.ClientCredentials, w.Allow)
}

// endpoint checks the address that requests are posted to.
func (v *validator) endpoint(address, at string) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		v.fail(at, "an address such as https://cmdb.example.org/hooks, without an account",
			"is not the address of an endpoint")
	}
}

// sending checks what mails and requests have in common.
func (v notificationValidator) sending(at, ca, field, credentials string, allow []netip.Prefix) {
	if ca != "" {
		v.content().pem(at+".ca", ca)
	}
	if credentials != "" {
		v.match(at+"."+field, credentials, credentialsPattern,
			"the name of credentials: letters a-z, digits and dashes, beginning with a letter", 40)
	}
	v.ranged(at+".allow", allow)
}

// ranged checks ranges of addresses that something may lead to.
func (v *validator) ranged(path string, allow []netip.Prefix) {
	for i, p := range allow {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case !p.IsValid(): // the decoder has said so
		case p != p.Masked():
			v.fail(at, "write "+p.Masked().String(), "%s has bits set behind the prefix length", p)
		case p.Addr().Is4In6():
			v.fail(at, "write the IPv4 range", "%s is an IPv4 range in IPv6's form", p)
		}
	}
}

func (v notificationValidator) quiet(n *Notification) {
	fine := true
	for i, q := range n.Quiet {
		at := fmt.Sprintf("spec.quiet[%d]", i)
		for _, c := range [][2]string{{"from", q.From}, {"to", q.To}} {
			if _, ok := clock(c[1]); !ok {
				fine = false
				v.fail(at+"."+c[0], "a time such as 22:00", "%q is not a time of the day", c[1])
			}
		}
		if _, err := time.LoadLocation(q.Zone); err != nil || q.Zone == "Local" {
			fine = false
			v.fail(at+".zone", "an IANA name such as Europe/Berlin, or UTC", "%q is not a time zone", q.Zone)
		}
		v.each(at+".days", q.Days, "one of "+strings.Join(days, ", "), func(d string) bool {
			return slices.Contains(days, d)
		})
	}
	week := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC) // any: quiet times are the same in each
	if fine && n.QuietUntil(week).Sub(week) >= longestQuiet {
		v.fail("spec.quiet", "leave a time of the week when mails may come", "is the whole week: nothing is ever sent")
	}
}
