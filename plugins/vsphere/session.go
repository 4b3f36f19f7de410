package vsphere

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// userAgent is what vCenter's list of sessions shows.
const userAgent = "kaas-director"

// refusedFor is how long the same account is not tried again after vCenter has refused it: accounts are locked after a
// few wrong passwords.
const refusedFor = time.Minute

// conn is the one session that everything of a back end shares. It logs in at its first use, stays alive while it is
// idle, and logs in again when vCenter has forgotten it. What it calls may be done twice only in the sense that a call
// which vCenter refused as not authenticated has not been carried out.
type conn struct {
	cfg Config
	url *url.URL
	log *slog.Logger
	now func() time.Time

	turn chan struct{} // holds one token: logging in is for one at a time
	stop context.CancelFunc
	idle sync.WaitGroup

	mu      sync.Mutex
	soap    *soap.Client
	vim     *vim25.Client
	logins  int    // how often a session was made
	account string // of the session
	closed  bool
	refusal *refusal

	around func(soap.RoundTripper) soap.RoundTripper // seam for tests: what is between us and vCenter
}

// refusal remembers that vCenter did not take an account.
type refusal struct {
	user     string
	password director.Secret
	until    time.Time
	err      error
}

func newConn(cfg Config, u *url.URL) *conn {
	c := &conn{
		cfg: cfg, url: u, log: cfg.Log.With("backend", "vsphere", "vcenter", u.Host), now: time.Now,
		turn:   make(chan struct{}, 1),
		around: func(rt soap.RoundTripper) soap.RoundTripper { return rt },
	}
	c.turn <- struct{}{}
	return c
}

// client returns a client with a session. Errors say why there is none: see errors.go.
func (c *conn) client(ctx context.Context, op string) (*vim25.Client, error) {
	if err := interrupted(ctx, op); err != nil {
		return nil, err
	}
	c.mu.Lock()
	vim, closed, logins := c.vim, c.closed, c.logins
	c.mu.Unlock()
	if closed {
		return nil, director.Errorf(director.KindUnavailable, op, "the connection to %s was closed", c.url.Host)
	}
	if vim != nil {
		return vim, nil
	}
	if err := c.login(ctx, op, logins); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.vim, nil
}

// login makes a session, unless others have made one since the caller looked at logins.
func (c *conn) login(ctx context.Context, op string, seen int) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return interrupted(ctx, op)
	}
	defer func() { c.turn <- struct{}{} }()
	c.mu.Lock()
	done, closed, vim := c.logins != seen, c.closed, c.vim
	c.mu.Unlock()
	if done {
		return nil
	}
	if closed {
		return director.Errorf(director.KindUnavailable, op, "the connection to %s was closed", c.url.Host)
	}
	user, password, err := c.cfg.Credentials(ctx)
	if err != nil {
		return err
	}
	if r := c.refusal; r != nil && r.user == user && r.password == password && c.now().Before(r.until) {
		return r.err
	}
	if vim == nil {
		if vim, err = c.dial(ctx, op); err != nil {
			return err
		}
	}
	// The plain transport is asked, since c's own would try to log in again.
	manager := session.NewManager(&vim25.Client{
		Client: vim.Client, ServiceContent: vim.ServiceContent, RoundTripper: c.around(vim.Client),
	})
	if err := manager.Login(ctx, url.UserPassword(user, password.Reveal())); err != nil {
		err = c.loginError(ctx, op, user, err)
		if director.KindOf(err) == director.KindInvalid {
			c.refusal = &refusal{user, password, c.now().Add(refusedFor), err}
		}
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // meanwhile
		return errors.Join(
			director.Errorf(director.KindUnavailable, op, "the connection to %s was closed", c.url.Host),
			manager.Logout(context.WithoutCancel(ctx)),
		)
	}
	c.refusal = nil
	c.account = user
	c.logins++
	if c.logins > 1 {
		c.log.InfoContext(ctx, "session lost, logged in again", "user", user)
	}
	if c.vim == nil {
		c.soap, c.vim = vim.Client, vim
		c.keepAlive()
	}
	return nil
}

// dial reaches the service and looks whether it is a vCenter.
func (c *conn) dial(ctx context.Context, op string) (*vim25.Client, error) {
	s := soap.NewClient(c.url, false)
	s.UserAgent = userAgent
	c.confine(s)
	if c.cfg.CAFile != "" {
		pool, err := c.authorities(op)
		if err != nil {
			return nil, err
		}
		s.DefaultTransport().TLSClientConfig.RootCAs = pool
	}
	if c.cfg.Thumbprint != "" {
		s.SetThumbprint(c.url.Host, colons(c.cfg.Thumbprint))
	}
	vim, err := vim25.NewClient(ctx, s)
	if err != nil {
		return nil, c.dialError(ctx, op, err)
	}
	if !vim.IsVC() {
		return nil, director.Errorf(
			director.KindInvalid, op, "%s is %s and no vCenter", c.url.Host, vim.ServiceContent.About.FullName,
		).
			WithHint("name the vCenter that manages the host in spec.vsphere.url; clones need it")
	}
	vim.RoundTripper = &guard{c, c.around(s)}
	return vim, nil
}

// mostAuthorities is the size that a file with certificates may have.
const mostAuthorities = 1 << 20

// authorities reads the certificates of caFile. What is in another file is neither read nor told.
func (c *conn) authorities(op string) (*x509.CertPool, error) {
	f, err := c.cfg.Files.Open(c.cfg.CAFile)
	if errors.Is(err, confine.ErrOutside) {
		return nil, director.Errorf(director.KindInvalid, op, "spec.vsphere.caFile is not allowed: %s", err).
			WithHint("move it there, or name its directory in providerFiles of the director's configuration")
	}
	pool := x509.NewCertPool()
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, mostAuthorities))
		_ = f.Close()
	}
	if err != nil || !pool.AppendCertsFromPEM(text) {
		return nil, director.Errorf(director.KindInvalid, op, "the certificates in %s cannot be read", c.cfg.CAFile).
			WithHint("caFile names a file with certificates in PEM form")
	}
	return pool, nil
}

// user returns the account of the session, as vCenter calls it.
func (c *conn) user(ctx context.Context, op string) (string, error) {
	vim, err := c.client(ctx, op)
	if err != nil {
		return "", err
	}
	s, err := session.NewManager(vim).UserSession(ctx)
	if err != nil || s == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.account, nil // the name that was given will do
	}
	return s.UserName, nil
}

// keepAlive asks for the time once in a while until the connection is closed: vCenter ends sessions that are idle for
// half an hour.
func (c *conn) keepAlive() {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	vim := c.vim
	c.idle.Go(func() {
		t := time.NewTicker(c.cfg.KeepAlive)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if _, err := methods.GetCurrentTime(ctx, vim); err != nil && ctx.Err() == nil {
					c.log.WarnContext(ctx, "vcenter did not answer a sign of life", "err", err)
				}
			}
		}
	})
}

// close ends the session. Idempotent.
func (c *conn) close() error {
	c.mu.Lock()
	vim, stop, was := c.vim, c.stop, c.closed
	c.closed = true
	c.mu.Unlock()
	if was || vim == nil {
		return nil
	}
	stop()
	c.idle.Wait()
	defer c.soap.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	manager := session.NewManager(&vim25.Client{
		Client: vim.Client, ServiceContent: vim.ServiceContent, RoundTripper: c.around(vim.Client),
	})
	if err := manager.Logout(ctx); err != nil && !isLost(err) {
		return director.Errorf(director.KindUnavailable, "vsphere.close", "cannot log out of %s: %w", c.url.Host, err)
	}
	return nil
}

// guard logs in again when vCenter no longer knows the session, and then repeats the call.
type guard struct {
	conn  *conn
	inner soap.RoundTripper
}

// RoundTrip implements soap.RoundTripper.
func (g *guard) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	g.conn.mu.Lock()
	seen := g.conn.logins
	g.conn.mu.Unlock()
	err := g.inner.RoundTrip(ctx, req, res)
	if !isLost(err) && (err != nil || !isBlind(res)) {
		return err
	}
	if err := g.conn.login(ctx, "vsphere.login", seen); err != nil {
		return err
	}
	reflect.ValueOf(res).Elem().SetZero() // it holds the fault
	return g.inner.RoundTrip(ctx, req, res)
}

// isLost tells whether vCenter does not know the session.
func isLost(err error) bool { return hasFault[types.NotAuthenticated](err) }

// isBlind tells whether the properties that were asked for are missing because vCenter does not know the session:
// reading is no fault then.
func isBlind(res soap.HasFault) bool {
	var objects []types.ObjectContent
	switch body := res.(type) {
	case *methods.RetrievePropertiesExBody:
		if body.Res != nil && body.Res.Returnval != nil {
			objects = body.Res.Returnval.Objects
		}
	case *methods.RetrievePropertiesBody:
		if body.Res != nil {
			objects = body.Res.Returnval
		}
	}
	for _, o := range objects {
		for _, m := range o.MissingSet {
			if _, lost := plain(m.Fault.Fault).(types.NotAuthenticated); lost {
				return true
			}
		}
	}
	return false
}

// colons writes a fingerprint as vCenter does: upper case with colons.
func colons(fingerprint string) string {
	hex := strings.ToUpper(strings.ReplaceAll(fingerprint, ":", ""))
	var parts []string
	for len(hex) > 1 {
		parts, hex = append(parts, hex[:2]), hex[2:]
	}
	return strings.Join(parts, ":")
}

// fingerprint returns the SHA-256 of the certificate that the service shows, to be compared by a person; it says
// nothing about trust.
func (c *conn) fingerprint(ctx context.Context) string {
	address := c.url.Host
	if c.url.Port() == "" {
		address = net.JoinHostPort(c.url.Hostname(), "443")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	t, err := c.handshake(ctx, "tcp", address, &tls.Config{InsecureSkipVerify: true}) // nothing is sent
	if err != nil {
		return ""
	}
	defer t.Close()
	return soap.ThumbprintSHA256(t.ConnectionState().PeerCertificates[0])
}
