package webhook_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/webhook"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
)

// block returns the first block of code in the language on the page about hooks.
func block(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operate/hooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```"+language+"\n")
	code, _, closed := strings.Cut(rest, "\n```\n")
	if !ok || !closed {
		t.Fatalf("the page has no code in %s", language)
	}
	return code + "\n"
}

// The receivers of the manual take what is signed, and nothing else. They share no code with what signs.
func TestReceiversOfTheManual(t *testing.T) {
	t.Parallel()
	key, public, err := webhook.NewKey(true)
	if err != nil {
		t.Fatal(err)
	}
	stranger, _, err := webhook.NewKey(true)
	if err != nil {
		t.Fatal(err)
	}
	for language, command := range map[string]func(dir, host, port string) *exec.Cmd{
		"go": func(dir, host, port string) *exec.Cmd {
			built := filepath.Join(dir, "receiver")
			build := exec.CommandContext(t.Context(), "go", "build", "-o", built, filepath.Join(dir, "receiver.go"))
			build.Env = append(os.Environ(), "GOFLAGS=")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return exec.CommandContext(t.Context(), built, host+":"+port, dir+"/cert", dir+"/key", public)
		},
		"python": func(dir, host, port string) *exec.Cmd {
			return exec.CommandContext(
				t.Context(), "python3", filepath.Join(dir, "receiver.python"), host, port, dir+"/cert",
				dir+"/key", public,
			)
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir, a := t.TempDir(), webhooktest.NewAuthority(t)
			cert, private := a.Issue(t, "127.0.0.1")
			for name, text := range map[string][]byte{
				"cert": cert, "key": private, "receiver." + language: []byte(block(t, language)),
			} {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			_, port, _ := net.SplitHostPort(free.Addr().String())
			_ = free.Close()
			cmd := command(dir, "127.0.0.1", port)
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			to := webhook.Endpoint{
				URL: "https://127.0.0.1:" + port + "/", Allow: loopback("127.0.0.1"), Roots: a.Roots(),
				Timeout: 30 * time.Second,
			}
			body, err := webhook.Event{ID: "m1", Data: map[string]string{
				"phase": "before.drain",
				"node":  "n1",
			}}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			good := webhook.Request{ID: "m1", Body: body, Keys: []webhook.Key{stranger, key}, At: time.Now()}
			deadline := time.Now().Add(2 * time.Minute)
			o := to.Send(t.Context(), good)
			for ; o.Status == 0 && time.Now().Before(deadline); o = to.Send(t.Context(), good) { // until it listens
				<-time.After(50 * time.Millisecond)
			}
			if o.Answer.Decision != "continue" {
				t.Errorf("signed by its key: %+v", o)
			}
			bad, old := good, good
			bad.Keys, old.At = []webhook.Key{stranger}, time.Now().Add(-time.Hour)
			for name, r := range map[string]webhook.Request{"by another key": bad, "an hour ago": old} {
				if o := to.Send(t.Context(), r); o.Received || o.Status != 401 {
					t.Errorf("signed %s: %+v", name, o)
				}
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if !strings.Contains(out.String(), "m1 before.drain n1") {
				t.Errorf("it has written %q", out.String())
			}
		})
	}
}
