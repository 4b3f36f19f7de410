package notifications_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"mime/quotedprintable"
	"net/http"
	"net/mail"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/mail/mailtest"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/notifications"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/webhook"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
)

// world is what a test says is so.
type world struct {
	waits     []notifications.Wait
	questions []notifications.Question
	backups   []notifications.Backup
	schedules []notifications.Schedule
	certs     []director.Certificate
}

func (w *world) Waits(context.Context) ([]notifications.Wait, error)         { return w.waits, nil }
func (w *world) Questions(context.Context) ([]notifications.Question, error) { return w.questions, nil }

func (w *world) Backups(context.Context) ([]notifications.Backup, error) { return w.backups, nil }

func (w *world) Schedules(context.Context) ([]notifications.Schedule, error) { return w.schedules, nil }

func (w *world) Certificates(_ context.Context, before time.Time) ([]director.Certificate, error) {
	return slices.DeleteFunc(slices.Clone(w.certs), func(c director.Certificate) bool {
		return !c.Ends.Before(before)
	}), nil
}

const password = "correct-horse-battery" // of the mail server; it may be nowhere else

type accounts struct{ password string }

func (a *accounts) OpenNotification(context.Context, string, model.Notification) (director.Credentials, error) {
	return director.Credentials{Name: "smtp", User: "director", Password: director.Secret(a.password)}, nil
}

type unobserved struct{}

func (unobserved) NotificationSent(string, bool, time.Duration) {}

// lab is a director's database with notifications, a clock and a world.
type lab struct {
	t         *testing.T
	db        *store.Store
	s         *notifications.Service
	now       time.Time
	world     world
	accounts  accounts
	authority *webhooktest.Authority
}

func open(t *testing.T) *lab {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return openOn(t, db)
}

func openOn(t *testing.T, db *store.Store) *lab {
	t.Helper()
	t.Cleanup(func() { _ = db.Close() })
	l := &lab{
		t: t, db: db, now: time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC), accounts: accounts{password},
		authority: webhooktest.NewAuthority(t),
	}
	l.s = l.another("one")
	return l
}

// another returns a service of another director on the database.
func (l *lab) another(instance string) *notifications.Service {
	l.t.Helper()
	box, err := seal.Open(filepath.Join(l.t.TempDir(), "sealing.key"), true)
	if err != nil {
		l.t.Fatal(err)
	}
	return notifications.New(notifications.Config{
		Store: l.db, Sealer: box, World: &l.world, Accounts: &l.accounts, Observer: unobserved{},
		URL: "https://director.test", Own: func() []netip.AddrPort { return nil }, Instance: instance,
		Version: "test", Now: func() time.Time { return l.now }, Log: slog.New(slog.DiscardHandler),
	})
}

// smtp starts a mail server with a certificate of the authority.
func (l *lab) smtp(o mailtest.Options) *mailtest.Server {
	l.t.Helper()
	pair, err := tls.X509KeyPair(l.authority.Issue(l.t, "127.0.0.1"))
	if err != nil {
		l.t.Fatal(err)
	}
	o.Certificate = &pair
	return mailtest.Start(l.t, o)
}

// loopback lets a document lead to the test's own servers.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}

// mails is a notification by the mail server.
func (l *lab) mails(server *mailtest.Server, to ...string) model.Notification {
	return model.Notification{Mail: &model.NotificationMail{
		Server: "127.0.0.1", Port: server.Port, CA: l.authority.PEM, From: "director@example.org", To: to,
		Credentials: "smtp", Allow: loopback,
	}}
}

// apply writes the document, as an apply does.
func (l *lab) apply(n model.Notification) {
	l.t.Helper()
	d := model.Document{
		Kind: model.KindNotification, Metadata: model.Metadata{Name: "oncall"}, Notification: &n,
	}
	model.Default(&d)
	if _, err := model.Validate(&d); err != nil {
		l.t.Fatal(err)
	}
	if err := l.db.Update(l.t.Context(), func(tx *store.Tx) error {
		return tx.PutDocument(d, "test", l.now)
	}); err != nil {
		l.t.Fatal(err)
	}
}

// after lets time pass, and has the director look.
func (l *lab) after(d time.Duration) {
	l.t.Helper()
	l.now = l.now.Add(d)
	if err := l.s.Tick(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) messages() []director.NotificationMessage {
	l.t.Helper()
	list, err := l.s.Messages(l.t.Context(), "oncall", "", 100)
	if err != nil {
		l.t.Fatal(err)
	}
	return list
}

func (l *lab) wait(id string, status plan.Status, reason string) notifications.Wait {
	return notifications.Wait{
		Plan: id, Cluster: "demo", Operation: plan.ClusterUpgrade, Status: status, Reason: reason, Since: l.now,
	}
}

// read returns the headers and the text of a mail.
func read(t *testing.T, m mailtest.Mail) (mail.Header, string) {
	t.Helper()
	msg, err := mail.ReadMessage(strings.NewReader(m.Text))
	if err != nil {
		t.Fatal(err)
	}
	body := msg.Body
	if msg.Header.Get("Content-Transfer-Encoding") == "quoted-printable" {
		body = quotedprintable.NewReader(msg.Body)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return msg.Header, string(text)
}

// count fails the test unless the server has so many mails.
func count(t *testing.T, when string, server *mailtest.Server, want int) []mailtest.Mail {
	t.Helper()
	got := server.Got()
	if len(got) != want {
		t.Fatalf("%s: there are %d mails, and should be %d: %v", when, len(got), want, got)
	}
	return got
}

func TestMailTellsOnceWhatWaits(t *testing.T) {
	t.Parallel()
	for _, tls := range []string{model.MailStartTLS, model.MailImplicit} {
		l := open(t)
		server := l.smtp(mailtest.Options{Implicit: tls == model.MailImplicit, User: "director", Password: password})
		n := l.mails(server, "ann@example.org", "bob@example.org")
		n.Mail.TLS = tls
		l.apply(n)
		l.after(0)
		l.world.waits = []notifications.Wait{
			l.wait("1125-a", plan.StatusPlanned, "it waits to be approved, or started: deletes 1 VM"),
		}
		l.after(0)
		l.after(4 * time.Minute)
		l.world.waits = append(l.world.waits, l.wait("1125-b", plan.StatusFailed, "it is failed: no route to host"))
		l.world.questions = []notifications.Question{{
			ID: "d1", Hook: "cmdb", Phase: "before.drain", Plan: "1125-c", Cluster: "demo", Node: "w1", Since: l.now,
		}}
		l.after(30 * time.Second)
		count(t, "in the window", server, 0)
		l.after(time.Minute)
		got := count(t, "after the window", server, 2)
		if got[0].To[0] != "ann@example.org" || got[1].To[0] != "bob@example.org" || len(got[0].To) != 1 {
			t.Errorf("mails go to %v and %v", got[0].To, got[1].To)
		}
		head, text := read(t, got[0])
		if s := head.Get("Subject"); s != "[director director.test] waits for a person: 2, failed: 1" {
			t.Errorf("the subject is %q", s)
		}
		for _, want := range []string{
			"Plan 1125-a (cluster.upgrade of cluster demo): it waits to be approved, or started: deletes 1 VM",
			"https://director.test/plans/1125-a", "it is failed: no route to host", "Notification/oncall",
			"Plan 1125-c waits for an answer to hook cmdb: before.drain of node w1 of cluster demo",
		} {
			if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
				t.Errorf("the text lacks %q:\n%s", want, text)
			}
		}
		l.after(time.Hour)
		count(t, "an hour later", server, 2)
		if m := l.messages(); len(m) != 1 || m[0].State != director.NotificationSent || len(m[0].Items) != 3 ||
			!strings.HasPrefix(head.Get("Message-ID"), "<"+m[0].ID+"@") {
			t.Errorf("the outbox has %+v", m)
		}
	}
}

func TestWhatIsOverIsNotTold(t *testing.T) {
	t.Parallel()
	l := open(t)
	server := l.smtp(mailtest.Options{User: "director", Password: password})
	l.apply(l.mails(server, "ann@example.org"))
	late := notifications.Backup{Cluster: "demo", Late: true, Newest: l.now.Add(-30 * time.Hour)}
	l.world.backups = []notifications.Backup{late}
	l.world.waits = []notifications.Wait{l.wait("p1", plan.StatusPlanned, "it waits to be started")}
	l.after(0)
	l.world.waits = nil // somebody has started it
	l.after(6 * time.Minute)
	got := count(t, "after the window", server, 1)
	if _, text := read(t, got[0]); strings.Contains(text, "p1") ||
		!strings.Contains(text, "backup of cluster demo is") {
		t.Errorf("it tells:\n%s", text)
	}
	for range 5 { // what comes and goes is told once
		l.world.backups = nil
		l.after(6 * time.Minute)
		l.world.backups = []notifications.Backup{late}
		l.after(time.Minute)
	}
	count(t, "while it comes and goes", server, 1)
	l.world.backups = nil
	l.after(2 * time.Minute)
	l.after(2 * time.Hour)
	l.world.backups = []notifications.Backup{late}
	l.after(2 * time.Minute)
	l.after(6 * time.Minute)
	count(t, "hours later", server, 2)
}

// Runs of schedules that failed, and backups of the director that are late, are told with what they are about.
func TestSchedulesAreTold(t *testing.T) {
	t.Parallel()
	l := open(t)
	server := l.smtp(mailtest.Options{User: "director", Password: password})
	l.apply(l.mails(server, "ann@example.org"))
	l.world.schedules = []notifications.Schedule{
		{Name: "well", Job: "prune", Succeeded: l.now},
		{
			Name: "nightly", Job: "backup", Failed: l.now, Problem: "the disk is full", Late: true,
			Succeeded: l.now.Add(-72 * time.Hour),
		},
		{Name: "look", Job: "drift", Failed: l.now, Problem: "lab does not answer"},
		{Name: "fresh", Job: "backup", Late: true},
	}
	l.after(0)
	l.after(6 * time.Minute)
	_, text := read(t, count(t, "after the window", server, 1)[0])
	text = strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		"The run of schedule nightly (job backup) at 2026-03-02 10:00 UTC failed: the disk is full",
		"The backup of the director is late: the last of schedule nightly that succeeded was at 2026-02-27 10:00 UTC",
		"The run of schedule look (job drift) at 2026-03-02 10:00 UTC failed: lab does not answer",
		"Schedule fresh has made no backup of the director yet", "https://director.test/schedules",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "well") {
		t.Errorf("a run that succeeded is told:\n%s", text)
	}
	about := map[string]int{}
	for _, i := range l.messages()[0].Items {
		about[i.About]++
	}
	if about[model.AboutBackups] != 3 || about[model.AboutFailures] != 1 {
		t.Errorf("they are about %v", about)
	}
	l.after(2 * time.Hour)
	count(t, "two hours later", server, 1)
}

func TestQuietTimes(t *testing.T) {
	t.Parallel()
	l := open(t)
	server := l.smtp(mailtest.Options{User: "director", Password: password})
	n := l.mails(server, "ann@example.org")
	n.Quiet = []model.QuietTime{{From: "11:00", To: "07:00", Zone: "Europe/Berlin"}} // from 10:00 UTC
	l.apply(n)
	for _, id := range []string{"p1", "p2", "p3"} {
		l.world.waits = append(l.world.waits, l.wait(id, plan.StatusFailed, "it is failed: "+id))
		l.after(time.Hour)
	}
	l.world.waits = l.world.waits[1:]
	l.after(16*time.Hour + 50*time.Minute) // 05:50 UTC
	count(t, "in the quiet time", server, 0)
	l.after(11 * time.Minute)
	got := count(t, "after the quiet time", server, 1)
	if _, text := read(t, got[0]); strings.Contains(text, "p1") || !strings.Contains(text, "p2") ||
		!strings.Contains(text, "p3") {
		t.Errorf("the summary is:\n%s", text)
	}
}

// A message that is not received stays due under its id until it is, whatever is the matter.
func TestServersThatDoNotTakeIt(t *testing.T) {
	t.Parallel()
	other := webhooktest.NewAuthority(t)
	for name, c := range map[string]struct {
		options mailtest.Options
		change  func(*lab, *model.Notification)
		problem string
	}{
		"it is away":        {change: func(_ *lab, n *model.Notification) { n.Mail.Port = 1 }, problem: "connect"},
		"a wrong authority": {change: func(_ *lab, n *model.Notification) { n.Mail.CA = other.PEM }, problem: "tls"},
		"a wrong name": {
			change:  func(_ *lab, n *model.Notification) { n.Mail.Server = "localhost" },
			problem: "tls",
		},
		"it may not lead there": {
			change: func(_ *lab, n *model.Notification) { n.Mail.Allow = nil }, problem: "not allowed",
		},
		"a refused log-in": {
			change:  func(l *lab, _ *model.Notification) { l.accounts.password = "wrong-one" },
			problem: "auth",
		},
		"a refused sender": {
			change:  func(_ *lab, n *model.Notification) { n.Mail.From = "x@example.org" },
			problem: "550",
		},
		"a refused recipient": {
			change:  func(_ *lab, n *model.Notification) { n.Mail.To = []string{"y@example.org"} },
			problem: "550",
		},
		"a recipient for later": {change: func(_ *lab, n *model.Notification) {
			n.Mail.To = []string{"ann@example.org", "z@example.org"}
		}, problem: "450"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			server := l.smtp(mailtest.Options{User: "director", Password: password, Refuse: map[string]int{
				"x@example.org": 550, "y@example.org": 550, "z@example.org": 450,
			}})
			good := l.mails(server, "ann@example.org")
			bad := l.mails(server, "ann@example.org")
			c.change(l, &bad)
			l.apply(bad)
			l.world.waits = []notifications.Wait{l.wait("p1", plan.StatusFailed, "it is failed: x")}
			l.after(0)
			l.after(6 * time.Minute)
			m := l.messages()
			if len(m) != 1 || m[0].State != director.NotificationDue || !strings.Contains(m[0].Problem, c.problem) ||
				strings.Contains(m[0].Problem, l.accounts.password) {
				t.Fatalf("the outbox has %+v", m)
			}
			l.after(10 * time.Second)
			if m := l.messages(); m[0].Attempts != 1 {
				t.Errorf("it was tried %d times within 10 s", m[0].Attempts)
			}
			before := len(server.Got()) // one recipient may have it
			l.accounts.password = password
			l.apply(good)
			l.after(time.Minute)
			count(t, "after the document was corrected", server, 1)
			after := l.messages()
			if len(after) != 1 || after[0].ID != m[0].ID || after[0].State != director.NotificationSent || before > 1 {
				t.Errorf("the outbox has %+v", after)
			}
		})
	}
}

// A text of a plan cannot become a header, another mail or a command.
func TestTextsThatLookLikeHeaders(t *testing.T) {
	t.Parallel()
	l := open(t)
	server := l.smtp(mailtest.Options{User: "director", Password: password})
	l.apply(l.mails(server, "ann@example.org"))
	l.world.waits = []notifications.Wait{
		l.wait("p1", plan.StatusFailed,
			"it is failed:\r\nBcc: eve@example.org\r\n\r\n.\r\nMAIL FROM:<eve@example.org>"),
	}
	l.after(0)
	l.after(6 * time.Minute)
	got := count(t, "one failure", server, 1)
	head, text := read(t, got[0])
	if head.Get("Bcc") != "" || len(got[0].To) != 1 || got[0].From != "director@example.org" ||
		head.Get("Auto-Submitted") != "auto-generated" ||
		head.Get("List-Id") != "<oncall.notifications.director.test>" {
		t.Errorf("the mail is %+v", got[0])
	}
	if !strings.Contains(strings.Join(strings.Fields(text), " "), "it is failed: Bcc: eve@example.org . MAIL FROM") {
		t.Errorf("the text is\n%s", text)
	}
}

func TestNoStorm(t *testing.T) {
	t.Parallel()
	l := open(t)
	server := l.smtp(mailtest.Options{User: "director", Password: password})
	l.apply(l.mails(server, "ann@example.org"))
	for range 60 { // a failure each 10 seconds
		l.world.waits = append(l.world.waits,
			l.wait("p"+string(rune('A'+len(l.world.waits))), plan.StatusFailed, "it is failed"))
		l.after(10 * time.Second)
	}
	if n := len(server.Got()); n > 2 {
		t.Errorf("there are %d mails in 10 minutes", n)
	}
	l.after(6 * time.Minute)
	told := 0
	for _, m := range l.messages() {
		if told += len(m.Items) + m.More; len(m.Items) > 30 {
			t.Errorf("a message lists %d things", len(m.Items))
		}
	}
	if told != 60 {
		t.Errorf("%d of 60 failures are told", told)
	}
}

// Of several directors one tells, and another one does so after it is gone.
func TestOneDirectorTells(t *testing.T) {
	t.Parallel()
	l := open(t)
	server := l.smtp(mailtest.Options{User: "director", Password: password})
	l.apply(l.mails(server, "ann@example.org"))
	two := l.another("two")
	l.world.waits = []notifications.Wait{l.wait("p1", plan.StatusFailed, "it is failed")}
	l.after(0)
	l.now = l.now.Add(time.Minute)
	if err := two.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.now = l.now.Add(5 * time.Minute) // the first one is gone
	if err := two.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.after(0)
	count(t, "after both have looked", server, 1)
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	l := open(t)
	status := http.StatusServiceUnavailable
	e := webhooktest.Start(t, "127.0.0.1:0", l.authority, false, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
	})
	n := model.Notification{Webhook: &model.NotificationWebhook{URL: e.URL, CA: l.authority.PEM, Allow: loopback}}
	n.About, n.Select.Clusters = []string{model.AboutFailures}, []string{"demo"}
	l.apply(n)
	elsewhere := l.wait("p3", plan.StatusFailed, "it is failed")
	elsewhere.Cluster = "other"
	l.world.waits = []notifications.Wait{
		l.wait("p1", plan.StatusFailed, "it is failed"), l.wait("p2", plan.StatusPlanned, "it waits"), elsewhere,
	}
	l.after(0)
	l.after(6 * time.Minute)
	status = http.StatusOK
	l.after(time.Minute)
	got := e.Got()
	if len(got) != 2 || got[0].ID != got[1].ID {
		t.Fatalf("the endpoint got %+v", got)
	}
	keys, err := l.s.Keys(t.Context(), "ann", "oncall", false)
	if err != nil || webhook.Verify(keys[0].Public, got[1].Header, got[1].Body, l.now) != nil {
		t.Errorf("the signature is not that of %+v, %v", keys, err)
	}
	var event struct {
		Type string
		Data struct {
			Notification string
			Items        []struct{ About, Cluster, Text, URL string }
		}
	}
	if err := json.Unmarshal(got[1].Body, &event); err != nil {
		t.Fatal(err)
	}
	if i := event.Data.Items; event.Type != "io.github.director-kaas.notification" || len(i) != 1 ||
		i[0].URL != "https://director.test/plans/p1" || i[0].About != "failures" || i[0].Cluster != "demo" {
		t.Errorf("the event is %s", got[1].Body)
	}
	status = http.StatusGone
	l.world.waits = append(l.world.waits, l.wait("p4", plan.StatusFailed, "it is failed"))
	for range 4 {
		l.after(10 * time.Minute)
	}
	if views, err := l.s.List(t.Context()); len(e.Got()) != 3 || err != nil || !views[0].Gone {
		t.Errorf("an endpoint that is gone got %d requests; %+v, %v", len(e.Got()), views, err)
	}
	status = http.StatusOK
	if m, err := l.s.Test(t.Context(), "ann", "oncall"); err != nil || m.State != director.NotificationSent {
		t.Errorf("the test: %+v, %v", m, err)
	}
	l.after(time.Second)
	if got := e.Got(); len(got) != 5 || got[4].ID != got[2].ID {
		t.Errorf("after the test the endpoint has %d requests", len(got))
	}
}

func TestCertificatesAndDrills(t *testing.T) {
	t.Parallel()
	l := open(t)
	server := l.smtp(mailtest.Options{User: "director", Password: password})
	n := l.mails(server, "ann@example.org")
	n.Within = model.Duration(5 * 24 * time.Hour)
	l.apply(n)
	day := 24 * time.Hour
	at := func(node string, left time.Duration) director.Certificate {
		return director.Certificate{Cluster: "demo", Node: node, Name: "apiserver", Ends: l.now.Add(left)}
	}
	ca := at("m1", 4*day)
	ca.Name, ca.CA, ca.Source = "ca", true, director.CertificateFile
	l.world.certs = []director.Certificate{ca, at("m1", 4*day), at("m2", 4*day+time.Hour), at("m3", 6*day)}
	l.world.backups = []notifications.Backup{{
		Cluster: "demo", Drill: "p9", Problem: "the hash differs",
		DrillLate: true,
	}}
	l.after(0)
	l.after(6 * time.Minute)
	count(t, "four days before", server, 1)
	l.world.certs = l.world.certs[:3]
	for range 5 {
		l.after(day)
		l.after(6 * time.Minute)
	}
	got := count(t, "after all ends", server, 3)
	for i, want := range []string{
		"2 certificates of cluster demo end on one day: apiserver on m1 ends first, at 2026-03-06 10:00 UTC",
		"2 certificates of cluster demo end on one day: apiserver on m1 ends first, at 2026-03-06 10:00 UTC",
		"2 certificates of cluster demo end on one day: apiserver on m1 has ended first, at 2026-03-06 10:00 UTC",
	} {
		_, text := read(t, got[i])
		text = strings.Join(strings.Fields(text), " ")
		authority := []string{
			"The cluster authority of cluster demo ends at 2026-03-06 10:00 UTC; change it: directorctl rotate " +
				"cluster-ca demo",
			"The cluster authority of cluster demo ends at 2026-03-06 10:00 UTC; change it: directorctl rotate " +
				"cluster-ca demo",
			"The cluster authority of cluster demo has ended at 2026-03-06 10:00 UTC; change it: directorctl " +
				"certs rotate " +
				"demo --cold",
		}[i]
		if !strings.Contains(text, authority) {
			t.Errorf("mail %d is %s, want %s", i, text, authority)
		}
		if !strings.Contains(text, want) || !strings.Contains(text, "https://director.test/certificates?cluster=demo") {
			t.Errorf("mail %d is %s", i, text)
		}
		if first := strings.Contains(text, "The restore drill of cluster demo failed: the hash differs") &&
			strings.Contains(text, "No restore drill of cluster demo has succeeded yet"); first != (i == 0) {
			t.Errorf("mail %d is %s", i, text)
		}
	}
}
