package vsphere

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/vmware/govmomi/vim25/soap"
)

// confine lets the client connect to allowed addresses alone: each is looked at after its name was resolved and before
// anything is sent. Images go to ESXi hosts and files to datastores through the same transport, and so do redirections.
// There is no proxy, which would resolve names by itself.
func (c *conn) confine(s *soap.Client) {
	t := s.DefaultTransport()
	t.Proxy = nil
	t.DialContext = c.cfg.Networks.Dialer().DialContext
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		trusted, err := c.handshake(ctx, network, address, t.TLSClientConfig)
		if err == nil {
			return trusted, nil
		}
		pin := s.Thumbprint(address)
		if pin == "" || !soap.IsCertificateUntrusted(err) {
			return nil, err
		}
		// the pin is what is trusted
		pinned, err := c.handshake(ctx, network, address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return nil, err
		}
		if soap.ThumbprintSHA256(pinned.ConnectionState().PeerCertificates[0]) != pin {
			_ = pinned.Close()
			return nil, fmt.Errorf("host %q thumbprint does not match %q", address, pin)
		}
		return pinned, nil
	}
}

// handshake connects to an allowed address.
func (c *conn) handshake(ctx context.Context, network, address string, config *tls.Config) (*tls.Conn, error) {
	d := tls.Dialer{NetDialer: c.cfg.Networks.Dialer(), Config: config}
	plain, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return plain.(*tls.Conn), nil
}
