package daemon

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/peers"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

// peerName is a name in the certificate of every director.
const peerName = "director"

// peerCalls are how directors on one database ask each other for logs. A director that has its database alone has the
// zero value.
type peerCalls struct {
	key      []byte
	instance string
	ask      journal.Peers
}

// openPeers prepares them.
func (d *Daemon) openPeers(
	db *store.Store, box *seal.Box, identity *pki.Server, instance string,
) (peerCalls, error) {
	if d.cfg.Database == "" {
		return peerCalls{}, nil
	}
	key, err := box.Derive("peers")
	if err != nil {
		return peerCalls{}, err
	}
	trust := &tls.Config{RootCAs: identity.Roots(), ServerName: peerName, MinVersion: tls.VersionTLS13}
	return peerCalls{key, instance, peers.NewClient(key, db, trust, time.Now)}, nil
}

// answering is the handler of the API with the answers to peers, if there may be any.
func (p peerCalls) answering(api http.Handler, logs *journal.Service) http.Handler {
	if p.ask == nil {
		return api
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle(peers.Path, peers.NewHandler(p.key, p.instance, logs.Local(), time.Now))
	return mux
}

// advertise tells peers where this director answers: at peerAddress, or where it listens. One that listens everywhere
// is found by the name of its machine.
func (d *Daemon) advertise(ctx context.Context, db *store.Store, host string) {
	if d.cfg.Database == "" {
		return
	}
	address := d.cfg.PeerAddress
	if address == "" {
		at, port, err := net.SplitHostPort(d.addr.String())
		if err != nil {
			return
		}
		if ip, err := netip.ParseAddr(at); err != nil || ip.IsUnspecified() {
			at = host
		}
		address = net.JoinHostPort(at, port)
	}
	db.Advertise(address)
	d.log.InfoContext(ctx, "other directors may ask this one for logs", "address", address)
}
