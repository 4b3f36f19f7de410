package daemon

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/imagestore"
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
	client   *peers.Client
}

// openPeers prepares them.
func (d *Daemon) openPeers(db *store.Store, box *seal.Box, identity *pki.Server, instance string) (peerCalls, error) {
	if d.cfg.Database == "" {
		return peerCalls{}, nil
	}
	key, err := box.Derive("peers")
	if err != nil {
		return peerCalls{}, err
	}
	trust := func() *tls.Config { // their authority may change
		return &tls.Config{RootCAs: identity.Roots(), ServerName: peerName, MinVersion: tls.VersionTLS13}
	}
	client := peers.NewClient(key, db, trust, time.Now)
	return peerCalls{key, instance, client, client}, nil
}

// answering is the handler of the API with the answers to peers, if there may be any.
func (p peerCalls) answering(api http.Handler, logs *journal.Service, uploads peers.Uploads) http.Handler {
	if p.ask == nil {
		return api
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle(peers.Path, peers.NewHandler(p.key, p.instance, logs.Local(), time.Now))
	mux.Handle(peers.UploadPath, peers.NewUploadHandler(p.key, p.instance, uploads, time.Now))
	return mux
}

// fetcher returns what brings an upload here from another director that has it; nil without peers.
func (p peerCalls) fetcher(db *store.Store, files *imagestore.Store) func(ctx context.Context, id string) error {
	if p.client == nil {
		return nil
	}
	return func(ctx context.Context, id string) error {
		all, err := db.Instances(ctx)
		if err != nil {
			return err
		}
		err = director.Errorf(director.KindNotFound, "daemon.fetch", "no director has the upload %.64s", id)
		for _, i := range all {
			if i.ID == p.instance {
				continue
			}
			if ferr := p.fetch(ctx, files, i.ID, id); ferr == nil {
				return nil
			} else if director.KindOf(ferr) != director.KindNotFound {
				err = ferr
			}
		}
		return err
	}
}

// fetch brings the upload here, or the rest of it, from the director with the instance.
func (p peerCalls) fetch(ctx context.Context, files *imagestore.Store, instance, id string) error {
	have, err := files.Upload(id)
	if err != nil && director.KindOf(err) != director.KindNotFound {
		return err
	}
	body, size, err := p.client.Upload(ctx, instance, id, have.Offset)
	if err != nil {
		return err
	}
	defer body.Close()
	begun, err := files.Begin(ctx, imagestore.Request{
		Name: "director-upgrade.tar", Size: size, SHA256: id, By: "director " + instance, Release: true,
	})
	if err != nil {
		return err
	}
	_, err = files.Write(ctx, begun.ID, have.Offset, body)
	return err
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
