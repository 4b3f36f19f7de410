package daemon

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/acme"
	"github.com/director-kaas/kaas/director/confine"
)

// ACME is where the certificate for the director's pages is from, besides the director's own.
type ACME struct {
	Directory string `yaml:"directory"` // URL of the ACME server's directory; empty for no server
	// certificates that the server's must be from; those that the machine trusts if empty
	CAFile string   `yaml:"caFile"`
	Email  string   `yaml:"email"` // whom the server writes to; may be empty
	Names  []string `yaml:"names"` // DNS names of the certificate, which lead to the director
	// KeyID and KeyFile name the key by which the server knows whose account it is (external account binding).
	KeyID   string `yaml:"keyID"`
	KeyFile string `yaml:"keyFile"` // holds the key as the server gives it, in base64
	// HTTPListen is an address that the server reaches as port 80 of the names. Names are proved there, by HTTP-01, and
	// not by TLS-ALPN-01 at port 443.
	HTTPListen string `yaml:"httpListen"`
	// Networks are where the server may be; providerNetworks if there are none.
	Networks confine.Networks `yaml:"networks"`
}

const (
	acmeEvery = 2 * time.Second // how often it is looked whether an attempt is due
	acmeNames = 20              // in one certificate
	acmeKey   = 4096            // bytes of KeyFile
)

// dnsName is a DNS name of letters, digits and hyphens. Its last label has a letter: it is no address.
var dnsName = regexp.MustCompile(
	`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`,
)

func (c Config) checkACME(p *problems) {
	a := c.ACME
	if a.Directory == "" {
		if a.CAFile+a.Email+a.KeyID+a.KeyFile+a.HTTPListen != "" || len(a.Names)+len(a.Networks) > 0 {
			p.add("acme.directory", "such as https://ca.example.org/acme/acme/directory", "is missing")
		}
		return
	}
	u, err := url.Parse(a.Directory)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		p.add(
			"acme.directory", "an address with https, such as https://ca.example.org/acme/acme/directory",
			"%q is not the address of an ACME server's directory", a.Directory,
		)
	}
	if m, err := mail.ParseAddress(a.Email); a.Email != "" && (err != nil || m.Address != a.Email) {
		p.add("acme.email", "one address, such as admins@example.org", "%q is not an address for mail", a.Email)
	}
	a.checkNames(p)
	if _, err := a.roots(); err != nil {
		p.add("acme.caFile", "the absolute path of a file with certificates in PEM", "%v", err)
	}
	if (a.KeyID == "") != (a.KeyFile == "") {
		p.add("acme.keyID", "name both or none", "and acme.keyFile belong together")
	} else if _, err := a.key(); err != nil {
		p.add(
			"acme.keyFile",
			"the absolute path of a file with the key that the ACME server gave for acme.keyID, in base64",
			"%v", err,
		)
	}
	if a.HTTPListen != "" {
		_, port, err := net.SplitHostPort(a.HTTPListen)
		if err != nil || port == "" {
			p.add("acme.httpListen", "such as :80 or 10.0.0.5:80", "%q is not an address to listen on", a.HTTPListen)
		}
		if a.HTTPListen == c.Listen || a.HTTPListen == c.RegistryListen {
			p.add("acme.httpListen", "another port, such as :80", "is the same as listen or registryListen")
		}
	} else if ip, ok := listenIP(c.Listen); ok && ip.IsLoopback() && c.Address.IsValid() && !c.Address.IsLoopback() {
		p.add(
			"acme.names", "listen on an address that the ACME server reaches, or name acme.httpListen",
			"cannot be proved, because listen is %s", c.Listen,
		)
	}
	for i, n := range a.Networks {
		if !n.IsValid() || n.Masked() != n {
			p.add(
				fmt.Sprintf("acme.networks[%d]", i), "write a range such as 10.0.0.0/8",
				"%s is not a range of addresses", n,
			)
		}
	}
}

func (a ACME) checkNames(p *problems) {
	if len(a.Names) == 0 || len(a.Names) > acmeNames {
		p.add("acme.names", "the names under which people open the console", "has %d names, not 1 to %d", len(a.Names),
			acmeNames)
	}
	var seen []string
	for i, name := range a.Names {
		at, lower := fmt.Sprintf("acme.names[%d]", i), strings.ToLower(name)
		_, err := netip.ParseAddr(name)
		switch {
		case err == nil:
			p.add(
				at, "name a DNS name: who opens an address gets the director's own certificate", "%s is an address",
				name,
			)
		case strings.HasPrefix(name, "*."):
			p.add(at, "name each name, such as director.example.org", "%q has a wildcard", name)
		case !dnsName.MatchString(name) || len(name) > 253 || lower == "localhost":
			p.add(at, "such as director.example.org", "%q is not a DNS name of the director", name)
		case slices.Contains(seen, lower):
			p.add(at, "leave it out", "%q is there twice", name)
		}
		seen = append(seen, lower)
	}
}

// roots reads CAFile; nil for those that the machine trusts.
func (a ACME) roots() (*x509.CertPool, error) {
	text, err := certificatesIn(a.CAFile)
	if err != nil || text == nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return roots, nil
}

// certificatesIn reads a file of certificates in PEM; nil without a name.
func certificatesIn(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readSmall(file, 1<<20)
	if err != nil {
		return nil, err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return text, nil
}

// key reads KeyFile. Errors hold nothing of it.
func (a ACME) key() ([]byte, error) {
	if a.KeyFile == "" {
		return nil, nil
	}
	text, err := readSmall(a.KeyFile, acmeKey)
	if err != nil {
		return nil, err
	}
	plain := strings.TrimRight(strings.TrimSpace(string(text)), "=")
	plain = strings.NewReplacer("+", "-", "/", "_").Replace(plain)
	key, err := base64.RawURLEncoding.DecodeString(plain)
	if err != nil || len(key) < 16 {
		return nil, fmt.Errorf("%s holds no key in base64", a.KeyFile)
	}
	return key, nil
}

// readSmall reads a regular file with an absolute path.
func readSmall(path string, most int64) ([]byte, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%q is not an absolute path", path)
	}
	i, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !i.Mode().IsRegular() || i.Size() > most:
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, most)
	}
	return os.ReadFile(path)
}

// openACME opens what gets the certificate of the configuration, if there is to be one. It asks no server.
func (d background) openACME() (err error) {
	a := d.cfg.ACME
	if a.Directory == "" {
		return nil
	}
	c := acme.Config{
		Directory: a.Directory, Email: a.Email, Names: a.Names, KeyID: a.KeyID, HTTP: a.HTTPListen != "",
		Networks: a.Networks, Dir: d.path("tls", "acme"), Now: time.Now, Log: d.log,
	}
	if len(c.Networks) == 0 {
		c.Networks = d.cfg.ProviderNetworks
	}
	if c.Roots, err = a.roots(); err != nil {
		return director.Errorf(director.KindInvalid, "daemon.config", "acme.caFile: %w", err)
	}
	if c.Key, err = a.key(); err != nil {
		return director.Errorf(director.KindInvalid, "daemon.config", "acme.keyFile: %w", err)
	}
	d.acme, err = acme.Open(c)
	return err
}

// startACME gets the certificate, and renews it, from now on. The API listens already.
func (d background) startACME(ctx context.Context) error {
	if d.acme == nil {
		return nil
	}
	if err := d.listenHTTP(ctx); err != nil {
		return err
	}
	if _, port, err := net.SplitHostPort(d.cfg.Listen); err == nil && port != "443" && d.cfg.ACME.HTTPListen == "" {
		d.log.WarnContext(
			ctx,
			"the ACME server asks at port 443 of the names; it has to be forwarded to listen, or set acme.httpListen",
			"names", d.cfg.ACME.Names, "listen", d.cfg.Listen,
		)
	}
	d.every(ctx, acmeEvery, "renew the certificate by ACME", func(ctx context.Context) error {
		if !d.acme.Tick(ctx) {
			return nil
		}
		return d.services.inventory.LookAtOwn(ctx)
	})
	return nil
}

// listenHTTP answers the ACME server without TLS, and leads browsers to the pages.
func (d background) listenHTTP(ctx context.Context) error {
	if d.cfg.ACME.HTTPListen == "" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.cfg.ACME.HTTPListen)
	if err != nil {
		return director.Errorf(
			director.KindConflict, "daemon.listen", "the ACME server cannot be answered at %s: %w",
			d.cfg.ACME.HTTPListen, err,
		).WithHint("set acme.httpListen to a free address, or leave it out")
	}
	limit := 10 * time.Second // for all of a request, which has no body
	s := &http.Server{
		Handler: d.acme.Handler(d.cfg.publicURL()), ReadTimeout: limit, ReadHeaderTimeout: limit, WriteTimeout: limit,
		IdleTimeout: limit, MaxHeaderBytes: 16 << 10,
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	d.onStop(func(ctx context.Context) error {
		err := s.Shutdown(ctx)
		if serr := <-done; !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, serr)
		}
		return err
	})
	return nil
}
