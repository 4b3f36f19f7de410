package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

var update = flag.Bool("update", false, "write golden files and generated documents")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryOperationNeedsAToken walks the API's own description.
func TestEveryOperationNeedsAToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	open := map[string]bool{
		"/login": true, "/session": true, "/session/providers": true,
		"/session/begin/{provider}": true, "/session/callback": true, "/healthz": true, "/readyz": true,
		"/version": true,
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Security []map[string][]string `json:"security"`
		} `json:"paths"`
	}
	good := b.token
	b.token = ""
	b.do(t, http.MethodGet, "/openapi.json", "", http.StatusOK, &doc)
	if len(doc.Paths) < 15 {
		t.Fatalf("only %d paths are described", len(doc.Paths))
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			if open[path] {
				continue
			}
			at := strings.NewReplacer("{kind}", "Cluster", "{name}", "demo", "{id}", "p0001").Replace(path)
			for name, token := range map[string]string{
				"none": "", "wrong": "kaas_wrong", "almost": good[:len(good)-1],
			} {
				var header []string
				if token != "" {
					header = []string{"Authorization", "Bearer " + token}
				}
				resp := b.send(t, strings.ToUpper(method), at, "", header...)
				p := problemOf(t, resp)
				if p.Status != http.StatusUnauthorized || p.Kind != string(director.KindUnauthenticated) ||
					p.Hint == "" {
					t.Errorf("%s %s with token %s: %+v", method, path, name, p)
				}
				if resp.Header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s %s: no WWW-Authenticate", method, path)
				}
			}
		}
	}
	if strings.Contains(b.log.String(), good) || strings.Contains(b.log.String(), password) {
		t.Error("a secret is in the log")
	}
}

func TestRolesAndOneTimePasswords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "")
	admin, err := b.users.GetUser(t.Context(), "admin")
	if err != nil {
		t.Fatal(err)
	}
	user := admin
	user.Name, user.Role = "ursula", director.RoleUser
	fresh := admin
	fresh.Name, fresh.MustChange = "fred", true
	for _, u := range []director.User{user, fresh} {
		if err := b.users.PutUser(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	login := func(name string) {
		var s wire.Session
		b.do(t, http.MethodPost, "/login", `{"user":"`+name+`","password":"`+password+`"}`, http.StatusOK, &s)
		b.token = s.Token
	}
	login("ursula")
	b.do(t, http.MethodGet, "/clusters/demo", "", http.StatusOK, nil)
	b.do(t, http.MethodGet, "/plans", "", http.StatusOK, nil)
	for _, c := range [][2]string{
		{"POST", "/apply"},
		{"GET", "/documents/Provider"},
		{"POST", "/clusters/demo/plans"},
		{"DELETE", "/documents/Cluster/demo"},
		{"POST", "/clusters/demo/kubeconfig"},
		{"GET", "/clusters/demo/inventory"},
		{"POST", "/clusters/demo/inventory"},
		{"POST", "/plans/p0001/cancel"},
	} {
		if p := problemOf(t, b.send(t, c[0], c[1], "")); p.Kind != string(director.KindForbidden) {
			t.Errorf("%s %s as user: %+v", c[0], c[1], p)
		}
	}
	login("fred")
	if p := problemOf(
		t, b.send(t, http.MethodGet, "/clusters", ""),
	); p.Kind != string(director.KindForbidden) || !strings.Contains(p.Hint, "directorctl password") {
		t.Errorf("with a one-time password: %+v", p)
	}
	var me wire.Me
	b.do(t, http.MethodGet, "/me", "", http.StatusOK, &me)
	if !me.MustChangePassword {
		t.Errorf("%+v", me)
	}
	b.do(
		t, http.MethodPost, "/password", `{"current":"`+password+`","new":"another horse battery"}`,
		http.StatusNoContent, nil,
	)
	b.do(t, http.MethodGet, "/clusters", "", http.StatusOK, nil)
	b.do(t, http.MethodPost, "/logout", "", http.StatusNoContent, nil)
	if p := problemOf(t, b.send(t, http.MethodGet, "/me", "")); p.Status != http.StatusUnauthorized {
		t.Errorf("after the logout: %+v", p)
	}
}

// A token alone exports no secrets, and is no way to try passwords.
func TestExportNeedsThePassword(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "")
	if p := problemOf(
		t, b.send(t, http.MethodGet, "/clusters/demo/inventory?secrets=true", ""),
	); p.Kind != string(director.KindInvalid) {
		t.Errorf("in the URL: %+v", p)
	}
	b.do(t, http.MethodGet, "/clusters/demo/inventory", "", http.StatusOK, nil)
	var got wire.Inventory
	b.do(t, http.MethodPost, "/clusters/demo/inventory", `{"password":"`+password+`"}`, http.StatusOK, &got)
	if got.Files["secrets.json"] == "" {
		t.Errorf("with the password: %v", got.Files)
	}
	for range 5 {
		if p := problemOf(
			t, b.send(t, http.MethodPost, "/clusters/demo/inventory", `{"password":"wrong"}`),
		); p.Kind != string(director.KindInvalid) {
			t.Fatalf("with another password: %+v", p)
		}
	}
	if p := problemOf(
		t, b.send(t, http.MethodPost, "/clusters/demo/inventory", `{"password":"`+password+`"}`),
	); p.Status != http.StatusTooManyRequests {
		t.Errorf("after five of them: %+v", p)
	}
}

func TestLoginsAreLimited(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var mu sync.Mutex
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
	b := setup(t, func(c *api.Config) { c.Now = now })
	wrong := func(user string) *http.Response {
		return b.send(t, http.MethodPost, "/login", `{"user":"`+user+`","password":"wrong"}`)
	}
	for range 5 {
		if resp := wrong("admin"); resp.StatusCode != http.StatusUnauthorized {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	resp := wrong("admin")
	p := problemOf(t, resp)
	if p.Status != http.StatusTooManyRequests || p.Kind != string(director.KindExhausted) ||
		resp.Header.Get("Retry-After") != "10" {
		t.Fatalf("%+v, Retry-After %q", p, resp.Header.Get("Retry-After"))
	}
	// The right password is not tried either, and other users are not held back.
	right := `{"user":"admin","password":"` + password + `"}`
	if resp := b.send(t, http.MethodPost, "/login", right); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", resp.StatusCode)
	}
	if resp := wrong("other"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("another user: status %d", resp.StatusCode)
	}
	mu.Lock()
	at = at.Add(10 * time.Second)
	mu.Unlock()
	for range 10 { // and a success is forgotten
		b.do(t, http.MethodPost, "/login", right, http.StatusOK, nil)
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var applied wire.Applied
	b.do(t, http.MethodPost, "/apply?dry_run=true", cluster, http.StatusOK, &applied)
	want := wire.Applied{DryRun: true, Changes: []wire.Change{{Kind: "Cluster", Name: "demo", Action: "created"}}}
	if diff := cmp.Diff(want, applied); diff != "" {
		t.Error(diff)
	}
	b.do(t, http.MethodGet, "/documents/Cluster/demo", "", http.StatusNotFound, nil)
	b.apply(t, "")
	var list wire.Documents
	b.do(t, http.MethodGet, "/documents/Cluster", "", http.StatusOK, &list)
	if len(list.Items) != 1 || list.Items[0].UpdatedBy != "admin" || list.Items[0].Generation != 1 {
		t.Fatalf("%+v", list)
	}
	// What comes out goes in again unchanged, in both forms.
	resp := b.send(t, http.MethodGet, "/documents/Cluster/demo", "", "Accept", "application/yaml")
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get("Content-Type") != "application/yaml" {
		t.Fatalf("%v, %s", err, resp.Header.Get("Content-Type"))
	}
	for _, form := range []string{string(text), string(list.Items[0].Document)} {
		b.do(t, http.MethodPost, "/apply", form, http.StatusOK, &applied)
		if applied.Changes[0].Action != "unchanged" {
			t.Errorf("applied again: %+v\n%s", applied, form)
		}
	}
	b.do(t, http.MethodDelete, "/documents/Cluster/demo", "", http.StatusNoContent, nil)
	b.do(t, http.MethodGet, "/documents/Cluster/demo", "", http.StatusNotFound, nil)
}

func TestPlansAndEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "")
	resp := b.send(t, http.MethodPost, "/clusters/demo/plans", "")
	var p wire.Plan
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	if loc := resp.Header.Get("Location"); loc != wire.Prefix+"/plans/"+p.ID {
		t.Errorf("Location %q", loc)
	}
	if bad := problemOf(
		t, b.send(t, http.MethodPost, "/plans/"+p.ID+"/start", `{"hash":"other"}`),
	); bad.Kind != string(director.KindConflict) {
		t.Errorf("start by a wrong hash: %+v", bad)
	}
	if p.Steps == nil || len(p.Steps) > 0 || p.StepsTotal == 0 {
		t.Errorf("the answer that a plan is made has its steps: %+v", p)
	}
	b.do(t, http.MethodGet, "/plans/"+p.ID, "", http.StatusOK, &p)
	var begun wire.Plan
	b.do(t, http.MethodPost, "/plans/"+p.ID+"/start", `{"hash":"`+p.Hash+`"}`, http.StatusAccepted, &begun)
	if len(p.Steps) == 0 || begun.ID != p.ID || begun.StepsTotal != p.StepsTotal || begun.Steps == nil ||
		len(begun.Steps) > 0 {
		t.Errorf("a verb answers with the plan without its %d steps: %+v", len(p.Steps), begun)
	}
	var events wire.Events
	b.do(t, http.MethodGet, "/plans/"+p.ID+"/events?after=2&wait=1", "", http.StatusOK, &events)
	if !events.Ended || events.Status != "done" || events.Items[0].Seq != 3 ||
		events.Last != events.Items[len(events.Items)-1].Seq {
		t.Errorf("%+v", events)
	}
	var lines bytes.Buffer
	log := b.send(t, http.MethodGet, "/plans/"+p.ID+"/log?step=ansible.play/verify&offset=3", "")
	if _, err := lines.ReadFrom(log.Body); err != nil || !strings.HasPrefix(lines.String(), "ime\"") {
		t.Errorf("log from an offset: %q, %v", lines.String(), err)
	}
	b.do(t, http.MethodGet, "/plans/"+p.ID+"/log?step=none/none", "", http.StatusNotFound, nil)
}

func TestArchive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "")
	p := b.start(t)
	resp := b.send(t, http.MethodGet, "/plans/"+p.ID+"/archive", "")
	text, err := io.ReadAll(resp.Body)
	if err != nil || string(text) != "archive of "+p.ID+" for admin\n" ||
		resp.Header.Get("Content-Type") != "application/gzip" ||
		!strings.Contains(resp.Header.Get("Content-Disposition"), "plan-"+p.ID+".tar.gz") {
		t.Errorf("%q, %v, %v", text, resp.Header, err)
	}
	if p := problemOf(
		t, b.send(t, http.MethodGet, "/plans/none/archive", ""),
	); p.Kind != string(director.KindNotFound) {
		t.Errorf("%+v", p)
	}
	user, err := b.users.GetUser(t.Context(), "admin")
	if err != nil {
		t.Fatal(err)
	}
	user.Name, user.Role = "ursula", director.RoleUser
	if err := b.users.PutUser(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	var s wire.Session
	b.do(t, http.MethodPost, "/login", `{"user":"ursula","password":"`+password+`"}`, http.StatusOK, &s)
	b.token = s.Token
	if p := problemOf(
		t, b.send(t, http.MethodGet, "/plans/"+p.ID+"/archive", ""),
	); p.Kind != string(director.KindForbidden) {
		t.Errorf("who may not see inventories gets an archive: %+v", p)
	}
}

// Half an archive does not look like a whole one.
func TestArchiveThatBreaksOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "fail")
	p := b.start(t)
	resp := b.send(t, http.MethodGet, "/plans/"+p.ID+"/archive", "")
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("it ends well: %q", text)
	}
	if !strings.Contains(b.log.String(), "archive broke off") {
		t.Error("the log does not tell")
	}
}

func TestEventStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "hold")
	p := b.start(t)
	open := func(last string) *bufio.Reader {
		header := []string{"Accept", "text/event-stream"}
		if last != "" {
			header = append(header, "Last-Event-ID", last)
		}
		resp := b.send(t, http.MethodGet, "/plans/"+p.ID+"/events", "", header...)
		if ct := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || ct != "text/event-stream" {
			t.Fatalf("%s, %s", resp.Status, ct)
		}
		return bufio.NewReader(resp.Body)
	}
	message := func(r *bufio.Reader) string {
		var text string
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return text + err.Error()
			}
			if line == "\n" {
				return text
			}
			text += line
		}
	}
	stream := open("")
	for _, want := range []string{"id: 1\n", "id: 2\n", "id: 3\n"} {
		if m := message(stream); !strings.HasPrefix(m, want) {
			t.Fatalf("message %q, want %q", m, want)
		}
	}
	b.ops.Release() // while the stream waits
	var last string
	for m := message(stream); ; m = message(stream) {
		if last = m; !strings.HasPrefix(m, "id: ") {
			break
		}
	}
	if last != "event: end\ndata: {\"status\":\"done\"}\n" {
		t.Errorf("the last message is %q", last)
	}
	if m := message(open("4")); !strings.HasPrefix(m, "id: 5\n") {
		t.Errorf("taken up after 4: %q", m)
	}
}

func TestStreamsEndWhenTheServerStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "hold")
	p := b.start(t)
	resp := b.send(t, http.MethodGet, "/plans/"+p.ID+"/events?after=3", "", "Accept", "text/event-stream")
	b.stop()
	if rest, err := io.ReadAll(resp.Body); err != nil || strings.Contains(string(rest), "event: end") {
		t.Errorf("%q, %v: want a clean break that is taken for no end of the plan", rest, err)
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) {
		c.Ready = func(context.Context) []api.Check {
			return []api.Check{
				{Name: "engine"},
				{Name: "disk", Err: errors.New("canary")},
				{
					Name: "database",
					Err:  director.Errorf(director.KindExhausted, "x", "the disk is full").WithHint("make room"),
				},
			}
		}
	})
	b.token = ""
	b.do(t, http.MethodGet, "/healthz", "", http.StatusNoContent, nil)
	var v wire.Version
	b.do(t, http.MethodGet, "/version", "", http.StatusOK, &v)
	if v.Version != "test" || v.Go == "" {
		t.Errorf("%+v", v)
	}
	if p := problemOf(
		t, b.send(t, http.MethodGet, "/readyz", ""),
	); p.Status != http.StatusServiceUnavailable || strings.Contains(p.Detail, "canary") || len(p.Errors) != 2 ||
		p.Errors[1] != (wire.ProblemField{
			Field: "database", Message: "the disk is full", Hint: "make room",
		}) || strings.Contains(p.Errors[0].Message, "canary") {
		t.Errorf("%+v", p)
	}
	root := strings.TrimSuffix(b.url, wire.Prefix)
	for path, status := range map[string]int{
		"/healthz": http.StatusNoContent, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusNotFound,
	} {
		b.url = root
		if resp := b.send(t, http.MethodGet, path, ""); resp.StatusCode != status {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if id := b.send(t, http.MethodGet, "/healthz", "", api.RequestIDHeader, "from-outside_1").Header.Get(
		api.RequestIDHeader,
	); id != "from-outside_1" {
		t.Errorf("a good id became %q", id)
	}
	if id := b.send(t, http.MethodGet, "/healthz", "", api.RequestIDHeader, "with space").Header.Get(
		api.RequestIDHeader,
	); id == "with space" || id == "" {
		t.Errorf("a bad id became %q", id)
	}
}

// TestDescription keeps docs/reference/openapi.yaml as the code is. Run with -update to write it.
func TestDescription(t *testing.T) {
	t.Parallel()
	text, err := api.OpenAPI("v1")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI string `yaml:"openapi"`
	}
	if err := yaml.Unmarshal(text, &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Fatalf("%v, version %q", err, doc.OpenAPI)
	}
	text = append(
		[]byte("# Generated from director/api by: go test ./director/api -update\n# yamllint disable\n---\n"), text...,
	)
	path := filepath.Join("..", "..", "docs", "reference", "openapi.yaml")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("docs/reference/openapi.yaml is not what the code says; run: go test ./director/api -update\n%s", diff)
	}
}

// Documents of every kind are listed and looked for.
func TestKindsOfDocuments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, k := range model.Kinds() {
		b.do(t, http.MethodGet, "/documents/"+string(k), "", http.StatusOK, nil)
		b.do(t, http.MethodGet, "/documents/"+string(k)+"/x", "", http.StatusNotFound, nil)
		b.do(t, http.MethodDelete, "/documents/"+string(k)+"/x", "", http.StatusNotFound, nil)
	}
}
