package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/test/loopback"
)

// listen serves TLS on loopback with the pair until the test ends.
func listen(t *testing.T, pair Pair, clients string) string {
	t.Helper()
	cert, err := tls.X509KeyPair([]byte(pair.Cert), []byte(pair.Key.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if clients != "" {
		conf.ClientAuth, conf.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		conf.ClientCAs.AppendCertsFromPEM([]byte(clients))
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
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
			_ = c.(*tls.Conn).HandshakeContext(t.Context())
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// What a server shows is seen whatever its dates are, and whether or not it takes the client.
func TestServing(t *testing.T) {
	t.Parallel()
	ca, other := mustCA(t, "cluster"), mustCA(t, "other")
	local := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	good, err := ServerCert(ca, nil, local, 48*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := serverCert(ca, nil, local, time.Minute, time.Now().Add(-time.Minute*30))
	if err != nil {
		t.Fatal(err)
	}
	client, err := ClientCert(other, "director", nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		show, as Pair
		clients  string
		ca       string
		want     director.Kind
	}{
		"valid":                        {show: good, ca: ca.Cert},
		"ended":                        {show: ended, ca: ca.Cert},
		"nobody asked whose it is":     {show: good},
		"wants a client and gets it":   {show: good, ca: ca.Cert, clients: other.Cert, as: client},
		"wants a client and gets none": {show: good, ca: ca.Cert, clients: other.Cert},
		"of another authority":         {show: good, ca: other.Cert, want: director.KindConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Serving(t.Context(), listen(t, tt.show, tt.clients), tt.ca, tt.as)
			if tt.want != "" {
				if director.KindOf(err) != tt.want {
					t.Fatalf("error %v, want %s", err, tt.want)
				}
				return
			}
			want, perr := ParseCert(tt.show.Cert)
			if err != nil || perr != nil || !got.Equal(want) {
				t.Fatalf("got %v, %v, %v", got, err, perr)
			}
			if !Signed(ca.Cert, got) || Signed(other.Cert, got) {
				t.Error("it is not known who signed it")
			}
		})
	}
	nobody := loopback.FreeFor(t).String()
	if _, err := Serving(t.Context(), nobody, ca.Cert, Pair{}); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("nobody listens: %v", err)
	}
}
