// Package bucket reaches buckets of servers that speak S3, and says in the director's words what is wrong with them.
package bucket

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// Place is a bucket and how one gets into it.
type Place struct {
	URL, Bucket, Prefix, Region string
	CA                          string // certificates in PEM; those of the system if empty
	Key                         string // id of the access key
	Secret                      director.Secret
	// Dial connects to the server. It is nil for a server at any address: then the place must come from the
	// director's configuration, not from a document.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// stall is how long a connection may move no byte. How long a whole transfer takes is not limited.
const stall = 2 * time.Minute

// Client speaks to the server of a place. Safe for concurrent use.
type Client struct {
	*minio.Client

	transport *http.Transport
}

// Close closes the connections that no request uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Open returns a client of the place's server. Nothing is sent yet. Errors: invalid for what is no address or no
// certificate; caField is what the error calls the place's CA.
func Open(p Place, caField string) (*Client, error) {
	const op = "bucket.open"
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "the address of the bucket cannot be read")
	}
	roots := (*x509.CertPool)(nil)
	if p.CA != "" {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(p.CA)) {
			return nil, director.Errorf(director.KindInvalid, op, "%s holds no certificate", caField)
		}
	}
	dial := p.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &moving{Conn: c}, nil
		},
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout: 30 * time.Second,
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(p.Key, p.Secret.Reveal(), ""), Secure: true, Region: p.Region,
		BucketLookup: minio.BucketLookupPath, MaxRetries: 3, Transport: transport,
	})
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "the bucket cannot be used: %s", err)
	}
	return &Client{client, transport}, nil
}

// moving is a connection that ends when it moves no byte in either direction for stall.
type moving struct{ net.Conn }

func (m *moving) Read(p []byte) (int, error) {
	_ = m.SetDeadline(time.Now().Add(stall)) // a connection without deadlines has no way to set one
	return m.Conn.Read(p)
}

func (m *moving) Write(p []byte) (int, error) {
	_ = m.SetDeadline(time.Now().Add(stall)) // of a read that waits meanwhile, too
	return m.Conn.Write(p)
}

// Name returns the name that an object has in the bucket.
func (p Place) Name(name string) string { return path.Join(p.Prefix, name) }

// Words are how a place is called, and what people do about it.
type Words struct {
	What    string // such as: the backup target
	Address string // hint for an address that is not allowed
	Bucket  string // hint for a bucket that is not there
	Key     string // hint for a key that is refused, after what the key must be allowed to do
	Room    string // hint for a bucket that is full
	Reach   string // hint for all else
}

// Explain says what went wrong with the place. Errors: not_found for an object that is not there, exhausted for a full
// bucket, invalid for an address that is not allowed, unavailable for the rest; the error of ctx if it has ended.
func (p Place) Explain(ctx context.Context, op string, w Words, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	where := w.What + " " + p.URL + "/" + p.Bucket
	if errors.Is(err, confine.ErrAddress) {
		return director.Errorf(director.KindInvalid, op, "%s: %s", where, err).WithHint("%s", w.Address)
	}
	switch r := minio.ToErrorResponse(err); {
	case r.Code == "NoSuchBucket":
		return director.Errorf(director.KindUnavailable, op, "%s has no such bucket", where).WithHint("%s", w.Bucket)
	case r.Code == "NoSuchKey" || r.Code == "NoSuchUpload":
		return director.Errorf(director.KindNotFound, op, "%s does not have it", where)
	case slices.Contains([]string{
		"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed",
	}, r.Code) || r.StatusCode == http.StatusForbidden:
		return director.Errorf(
			director.KindUnavailable, op, "%s does not let the director in: %s %s", where, r.Code, r.Message,
		).
			WithHint("check the key and what it may do (put, get, list, delete), and the clocks; then: %s", w.Key)
	case r.StatusCode == http.StatusInsufficientStorage || strings.Contains(r.Code, "StorageFull") ||
		strings.Contains(r.Code, "QuotaExceeded"):
		return director.Errorf(director.KindExhausted, op, "%s is full", where).WithHint("%s", w.Room)
	}
	return director.Errorf(director.KindUnavailable, op, "%s does not work: %s", where, err).WithHint("%s", w.Reach)
}
