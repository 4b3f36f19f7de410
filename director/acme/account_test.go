package acme

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/confine"
)

// signed is a request as ACME has them.
type signed struct {
	Protected string `json:"protected"`
	Payload   string `json:"payload"`
	Signature string `json:"signature"`
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(plain, into)
	}
	if err != nil {
		t.Errorf("%q: %v", text, err)
	}
}

// A server that gives accounts to known clients alone gets a proof of the key that it gave out, and its refusal is told
// without what would harm a terminal.
func TestAccountIsBound(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef0123456789abcdef")
	requests := make(chan signed, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Replay-Nonce", "nonce")
		switch base := "https://" + r.Host; r.URL.Path {
		case "/directory":
			_, _ = fmt.Fprintf(w, `{"newNonce":"%s/nonce","newAccount":"%s/account","newOrder":"%s/order"}`,
				base, base, base)
		case "/account":
			var s signed
			if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
				t.Error(err)
			}
			requests <- s
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `{"type":"urn:ietf:params:acme:error:unauthorized","detail":"not\u001b[31m %s"}`,
				strings.Repeat("known ", 1000))
		}
	}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	m, err := Open(Config{
		Directory: server.URL + "/directory", Roots: roots, Email: "admins@example.org", Names: []string{pageName},
		KeyID: "client-7", Key: key, Networks: confine.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Dir: t.TempDir(),
		Now: time.Now, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Tick(t.Context())
	var account struct {
		Contact []string `json:"contact"`
		Binding signed   `json:"externalAccountBinding"`
	}
	var head struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
		URL       string `json:"url"`
	}
	decode(t, (<-requests).Payload, &account)
	decode(t, account.Binding.Protected, &head)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(account.Binding.Protected + "." + account.Binding.Payload))
	if head.Algorithm != "HS256" || head.KeyID != "client-7" || head.URL != server.URL+"/account" ||
		account.Binding.Signature != base64.RawURLEncoding.EncodeToString(mac.Sum(nil)) {
		t.Errorf("the account is bound by %+v %+v", head, account.Binding)
	}
	if len(account.Contact) != 1 || account.Contact[0] != "mailto:admins@example.org" {
		t.Errorf("the contact is %v", account.Contact)
	}
	p := m.State().Problem
	if !strings.Contains(p, "has refused: not") || strings.ContainsRune(p, '\x1b') || len(p) > mostWords+3 ||
		m.wait != waitRefused {
		t.Errorf("%q, again after %s", p, m.wait)
	}
}
