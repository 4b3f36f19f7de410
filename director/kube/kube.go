// Package kube looks at clusters through their API: is it up, which nodes are ready, is what should run running. It
// changes nothing, and it never waits: a step asks once and comes again later.
package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/director-kaas/kaas/director"
)

// requestTimeout bounds one request. An API server on a busy, emulated machine is slow, and not down.
const requestTimeout = 30 * time.Second

// Client talks to the API server of one cluster. Safe for concurrent use.
type Client struct {
	api    kubernetes.Interface
	http   *http.Client
	server string
}

// Connect returns a client for the current context of a kubeconfig. It does not talk to the server. The kubeconfig must
// carry everything inside: one that names files or programs is refused, since it may come from elsewhere. Proxies of
// the environment are not used. Errors: invalid.
func Connect(kubeconfig []byte) (*Client, error) {
	const op = "kube.connect"
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		// The decoder's error is left out: it may quote a key.
		return nil, director.Errorf(director.KindInvalid, op, "the kubeconfig cannot be read")
	}
	var fields []director.Field
	for name, c := range raw.Clusters {
		if c.CertificateAuthority != "" {
			fields = append(fields, director.Field{
				Path: "clusters." + name, Msg: "names a file", Hint: "use certificate-authority-data",
			})
		}
	}
	for name, u := range raw.AuthInfos {
		if u.ClientCertificate != "" || u.ClientKey != "" || u.TokenFile != "" {
			fields = append(fields, director.Field{
				Path: "users." + name, Msg: "names a file", Hint: "use client-certificate-data and client-key-data",
			})
		}
		if u.Exec != nil || u.AuthProvider != nil {
			fields = append(fields, director.Field{
				Path: "users." + name, Msg: "names a program", Hint: "use a certificate or a token",
			})
		}
	}
	if err := director.Invalid(op, "the kubeconfig depends on something outside of it", fields); err != nil {
		return nil, err
	}

	cfg, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "the kubeconfig cannot be used: %w", err)
	}
	cfg.UserAgent = "kaas-director"
	cfg.Timeout = requestTimeout
	cfg.QPS, cfg.Burst = 50, 100
	cfg.WarningHandler = rest.NoWarnings{}
	if cfg.Proxy == nil {
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "the kubeconfig cannot be used: %w", err)
	}
	api, err := kubernetes.NewForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "the kubeconfig cannot be used: %w", err)
	}
	return &Client{api: api, http: hc, server: cfg.Host}, nil
}

// Close closes the idle connections. The client can be used again.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Server returns the URL of the API server.
func (c *Client) Server() string { return c.server }

// Healthz returns nil when the API server says that it is ready, and otherwise unavailable, naming the checks that fail
// where the server tells them.
func (c *Client) Healthz(ctx context.Context) error {
	const op = "kube.healthz"
	body, err := c.api.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
	if err == nil {
		return nil
	}
	if failing := failingChecks(body); failing != "" {
		return director.Errorf(director.KindUnavailable, op, "the API server at %s is not ready: %s", c.server, failing)
	}
	return c.failed(op, err)
}

// Version returns the version of the API server, such as v1.37.2.
func (c *Client) Version(ctx context.Context) (string, error) {
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	body, err := c.api.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", c.failed("kube.version", err)
	}
	if err := decode(body, &v); err != nil || v.GitVersion == "" {
		return "", director.Errorf(
			director.KindUnavailable, "kube.version", "what answers at %s is no API server", c.server,
		)
	}
	return v.GitVersion, nil
}

// failed turns an error of client-go into one of ours.
func (c *Client) failed(op string, err error) error {
	e := &director.Error{Kind: director.KindUnavailable, Op: op, Err: err}
	switch {
	case isTLS(err):
		e.Kind = director.KindUnauthenticated
		e.Msg = "the API server at " + c.server +
			" shows a certificate that this cluster's authority does not vouch for"
		e.Hint = "see which machine has that address, whether its certificates were renewed by another authority, " +
			"and its clock"
	case isRejectedCert(err), apierrors.IsUnauthorized(err):
		e.Kind = director.KindUnauthenticated
		e.Msg = "the API server at " + c.server + " does not accept the director's credentials"
		e.Hint = "the certificate may have expired, or the cluster was created again with another authority"
	case apierrors.IsForbidden(err):
		e.Kind = director.KindForbidden
		e.Msg = "the API server at " + c.server + " does not allow this to the director"
		e.Hint = "the director's user must be in the group system:masters"
	case apierrors.IsNotFound(err):
		e.Kind = director.KindNotFound
		e.Msg = "the API server at " + c.server + " does not have it"
	case errors.Is(err, context.Canceled):
		e.Msg = "the question to the API server at " + c.server + " was called off"
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), isTimeout(err):
		e.Msg = "the API server at " + c.server + " did not answer in time"
		e.Hint = "check that the masters are up and reachable from here, and how busy they are"
	default:
		e.Msg = "the API server at " + c.server + " cannot be asked"
		e.Hint = "check that the masters are up and reachable from here"
	}
	return e
}

// isTLS reports whether we refused the server's certificate.
func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok
}

// isRejectedCert reports whether the server refused ours during the handshake.
func isRejectedCert(err error) bool {
	_, ok := errors.AsType[tls.AlertError](err)
	return ok
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}
