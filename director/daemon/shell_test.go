package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

// shells opens shells on nodes of a simulated cluster.
type shells struct {
	api    *client.Client
	server string
	http   *http.Client
	token  string
}

func openShells(t *testing.T, most int) shells {
	t.Helper()
	c := simulating(t, threeHosts)
	c.NodeShells = most
	d, api := created(t, c)
	ca, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	s := shells{api: api, server: "https://" + d.Addr().String()}
	s.http = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}}
	anonymous, err := client.New(client.Config{Server: s.server, CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(anonymous.Close)
	session, err := anonymous.Login(t.Context(), "admin", "correct horse battery")
	if err != nil {
		t.Fatal(err)
	}
	s.token = session.Token
	return s
}

// dial asks for a shell with the headers, and returns the status of the answer too.
func (s shells) dial(t *testing.T, node, query string, headers map[string]string) (*websocket.Conn, int) {
	t.Helper()
	h := http.Header{"Authorization": {"Bearer " + s.token}}
	for k, v := range headers {
		h.Set(k, v)
	}
	conn, answer, err := websocket.Dial(
		t.Context(), s.server+"/api/v1/clusters/demo/nodes/"+node+"/shell?"+query,
		&websocket.DialOptions{HTTPClient: s.http, HTTPHeader: h},
	)
	if err != nil {
		if answer == nil {
			t.Fatal(err)
		}
		return nil, answer.StatusCode
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn, answer.StatusCode
}

// shows reads what the shell shows until the word comes, or its end.
func shows(t *testing.T, conn *websocket.Conn, word string) (shown string, end wire.ShellEnd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for word == "" || !strings.Contains(shown, word) {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", shown, err)
		}
		if kind == websocket.MessageText {
			if err := json.Unmarshal(data, &end); err != nil {
				t.Fatal(err)
			}
			return shown, end
		}
		shown += string(data)
	}
	return shown, end
}

func press(t *testing.T, conn *websocket.Conn, kind websocket.MessageType, text string) {
	t.Helper()
	if err := conn.Write(t.Context(), kind, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// A shell shows what is typed, and who had it is in the audit trail. There are no more than allowed.
func TestShellOnANode(t *testing.T) {
	t.Parallel()
	s := openShells(t, 1)
	conn, _ := s.dial(t, "demo-w-1", "reason=a+look&cols=100&rows=30", nil)
	shows(t, conn, "demo-w-1 only pretends")
	press(t, conn, websocket.MessageText, `{"cols": 90, "rows": 20}`)
	press(t, conn, websocket.MessageBinary, "uptime\r")
	shows(t, conn, "uptime")
	second, _ := s.dial(t, "demo-w-1", "reason=another", nil)
	if _, end := shows(t, second, ""); end.Problem == nil || end.Problem.Kind != string(director.KindExhausted) {
		t.Errorf("a second shell: %+v", end)
	}
	press(t, conn, websocket.MessageBinary, "exit\r")
	if _, end := shows(t, conn, ""); end.Ended != "the shell has ended" {
		t.Errorf("the end: %+v", end)
	}
	third, _ := s.dial(t, "demo-w-1", "reason=again", nil)
	shows(t, third, "only pretends")
	if err := third.CloseNow(); err != nil { // the person has gone
		t.Error(err)
	}
	s.audited(
		t, "open shell on demo-w-1: a look", "end shell on demo-w-1 after", "open shell on demo-w-1: again",
		"the connection was cut",
	)
}

// A shell ends soon after the session that opened it.
func TestShellEndsWithItsSession(t *testing.T) {
	t.Parallel()
	s := openShells(t, 1)
	conn, _ := s.dial(t, "demo-w-1", "reason=x", nil)
	shows(t, conn, "only pretends")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server+"/api/v1/logout", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	answer, err := s.http.Do(req)
	if err != nil || answer.StatusCode != http.StatusNoContent {
		t.Fatalf("the logout: %v, %v", answer, err)
	}
	_ = answer.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for err == nil {
		_, _, err = conn.Read(ctx)
	}
	if ctx.Err() != nil {
		t.Error("the shell is open a minute after its session has ended")
	}
	s.audited(t, "end shell on demo-w-1")
}

// audited waits until the trail has all of the words.
func (s shells) audited(t *testing.T, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		entries, err := s.api.AuditTrail(ctx, client.AuditFilter{})
		if err != nil {
			t.Fatalf("%v: not in the trail: %v", words, err)
		}
		text, err := json.Marshal(entries)
		if err != nil {
			t.Fatal(err)
		}
		for len(words) > 0 && strings.Contains(string(text), words[0]) {
			words = words[1:]
		}
		if len(words) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not in the trail: %v\n%s", words, text)
		case <-tick.C:
		}
	}
}

func TestShellsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := openShells(t, 2)
	for name, tt := range map[string]struct {
		node, query string
		headers     map[string]string
		status      int
		kind        director.Kind // in the last message
	}{
		"a page of another site": {
			"demo-w-1", "reason=x", map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden, "",
		},
		"no such token": {
			"demo-w-1", "reason=x", map[string]string{"Authorization": "Bearer x"}, http.StatusUnauthorized, "",
		},
		"no node":           {"demo-w-9", "reason=x", nil, http.StatusSwitchingProtocols, director.KindNotFound},
		"no reason":         {"demo-w-1", "reason=+", nil, http.StatusSwitchingProtocols, director.KindInvalid},
		"a reason of lines": {"demo-w-1", "reason=a%0ab", nil, http.StatusSwitchingProtocols, director.KindInvalid},
		"no such size":      {"demo-w-1", "reason=x&cols=0", nil, http.StatusUnprocessableEntity, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn, status := s.dial(t, tt.node, tt.query, tt.headers)
			if status != tt.status {
				t.Fatalf("the status is %d, want %d", status, tt.status)
			}
			if conn == nil {
				return
			}
			if _, end := shows(t, conn, ""); end.Problem == nil || end.Problem.Kind != string(tt.kind) {
				t.Errorf("%+v, want %s", end, tt.kind)
			}
		})
	}
}

func TestShellsAreOffUnlessConfigured(t *testing.T) {
	t.Parallel()
	s := openShells(t, 0)
	conn, _ := s.dial(t, "demo-w-1", "reason=x", nil)
	if _, end := shows(t, conn, ""); end.Problem == nil || !strings.Contains(end.Problem.Hint, "nodeShells") {
		t.Errorf("%+v", end)
	}
}
