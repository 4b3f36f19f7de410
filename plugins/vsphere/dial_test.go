package vsphere

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/soap"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// The director connects to no address that its configuration does not allow, whatever the name is: nothing reaches the
// listener.
func TestAddressesThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for name, networks := range map[string]confine.Networks{
		"private": confine.Private(), "all": {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		"none": nil,
	} {
		for _, host := range []string{
			"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "169.254.169.254", "[::ffff:169.254.169.254]",
		} {
			f := fixture{cfg: Config{
				URL:        "https://" + net.JoinHostPort(strings.Trim(host, "[]"), port),
				Thumbprint: strings.Repeat("AB:", 31) + "AB", Datacenter: "DC", Cluster: "C", Datastores: []string{"d"},
				Networks: networks,
			}}
			f.cfg.Credentials = func(context.Context) (string, director.Secret, error) { return account, password, nil }
			b := f.open(t)
			_, err := b.List(t.Context(), hypervisor.Filter{Director: "d"})
			if text := fmt.Sprintf(
				"%v (%s)", err, director.HintOf(err),
			); director.KindOf(err) != director.KindInvalid || !strings.Contains(text, "providerNetworks") ||
				!strings.Contains(text, host) {
				t.Errorf("%s, %s: %s", name, host, text)
			}
			if got := b.conn.fingerprint(t.Context()); got != "" {
				t.Errorf("%s, %s: it shows the certificate %s", name, host, got)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := l.(*net.TCPListener).SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if c, err := l.Accept(); err == nil {
		t.Errorf("there was a connection from %s", c.RemoteAddr())
	}
}

// What vCenter names as the host for an image, or redirects to, is looked at like vCenter itself.
func TestSecondConnectionsAreConfined(t *testing.T) {
	t.Parallel()
	second := httptest.NewUnstartedServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a connection came") }),
	)
	other, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	second.Listener = other
	second.StartTLS()
	defer second.Close()
	redirects := httptest.NewTLSServer(
		http.RedirectHandler("http://"+other.Addr().String(), http.StatusTemporaryRedirect),
	)
	defer redirects.Close()

	f := newFixture(t)
	f.cfg.Networks = confine.Networks{netip.MustParsePrefix("127.0.0.1/32")}
	b := f.open(t)
	defer b.Close()
	vim, err := b.conn.client(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	vim.SetThumbprint(other.Addr().String(), soap.ThumbprintSHA256(second.Certificate()))
	vim.SetThumbprint(strings.TrimPrefix(redirects.URL, "https://"), soap.ThumbprintSHA256(redirects.Certificate()))
	for _, to := range []string{"https://" + other.Addr().String(), "http://" + other.Addr().String(), redirects.URL} {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		err = vim.Upload(t.Context(), strings.NewReader(
			"disk",
		), u, &soap.Upload{Method: http.MethodPost, ContentLength: 4})
		if text := fmt.Sprint(err); !strings.Contains(text, "127.0.0.2 is an address that is not allowed") {
			t.Errorf("%s: %v", to, err)
		}
	}
}
