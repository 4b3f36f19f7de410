package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

// stateOpener opens what a director keeps: its directory, its database, its seals and its identity.
type stateOpener struct{ *Daemon }

func (d *Daemon) state() stateOpener { return stateOpener{d} }

// openStore opens the database of the configuration.
func (d stateOpener) openStore(ctx context.Context) (*store.Store, error) {
	if d.cfg.Database == "" {
		return store.Open(ctx, d.path("director.db"), d.log)
	}
	p, err := d.cfg.Postgres()
	if err != nil {
		return nil, err
	}
	return store.OpenPostgres(ctx, p, d.log)
}

// Postgres returns how the configuration's database is reached. Errors: invalid if the password cannot be read.
func (c Config) Postgres() (store.Postgres, error) {
	p := store.Postgres{URL: c.Database}
	if f := c.DatabasePasswordFile; f != "" {
		text, err := os.ReadFile(f)
		if err != nil {
			return p, director.Errorf(director.KindInvalid, "daemon.config", "databasePasswordFile: %w", err).
				WithHint("write the password of the database's user into the file, readable by the director alone")
		}
		p.Password = director.Secret(strings.TrimRight(string(text), "\r\n"))
	}
	return p, nil
}

// metaKey is under which name the database keeps the public half of the sealing key that it was written with.
const metaKey = "sealing_key"

// openSeal opens the sealing key and proves that it belongs to the database. A key is made only for a database that has
// none.
func (d stateOpener) openSeal(ctx context.Context, db *store.Store) (*seal.Box, error) {
	path := d.path("sealing.key")
	want, err := db.Meta(ctx, metaKey)
	if err != nil {
		return nil, err
	}
	hint := "copy sealing.key from the state directory of a director that uses this database, or from its backup; " +
		"its public key is " + want
	box, err := seal.Open(path, want == "")
	if director.KindOf(err) == director.KindNotFound {
		return nil, director.Errorf(
			director.KindNotFound, "daemon.seal",
			"there is no sealing key %s, and this database was written with one: %w", path, err,
		).
			WithHint("%s", hint)
	}
	if err != nil {
		return nil, err
	}
	if want == "" {
		if want, err = db.EnsureMeta(ctx, metaKey, box.Public()); err != nil {
			return nil, err
		}
	}
	if box.Public() == want {
		return box, nil
	}
	return nil, director.Errorf(
		director.KindConflict, "daemon.seal", "the sealing key %s is not the one that this database was written with",
		path,
	).
		WithHint("%s", hint)
}

// openIdentity opens the director's TLS identity, or makes it. Directors that share a database have one authority:
// nodes and users trust no other. One that others have changed meanwhile is taken before anything is served.
func (d stateOpener) openIdentity(ctx context.Context, db *store.Store, box *seal.Box) (*pki.Server, error) {
	shared, known := d.cfg.Database != "", ""
	const hint = "copy tls/ca.crt and tls/ca.key from the state directory of a director that uses this database. To " +
		"change the authority of all of them, " +
		"stop every director and let the database forget it: DELETE FROM meta WHERE name = '" + store.MetaAuthority +
		"'; DELETE FROM own_authority"
	if shared {
		var err error
		if known, err = db.Meta(ctx, store.MetaAuthority); err != nil {
			return nil, err
		}
		if _, err := os.Stat(d.path("tls", "ca.crt")); known != "" && errors.Is(err, fs.ErrNotExist) {
			return nil, director.Errorf(
				director.KindNotFound, "daemon.tls",
				"there is no %s, and the directors on this database have an authority already", d.path("tls", "ca.crt"),
			).
				WithHint("%s", hint)
		}
	}
	ips := []netip.Addr{d.cfg.Address, netip.MustParseAddr("127.0.0.1")}
	for _, listen := range []string{d.cfg.Listen, d.cfg.RegistryListen, d.cfg.PeerAddress} {
		if ip, ok := listenIP(listen); ok && !slices.Contains(ips, ip) {
			ips = append(ips, ip)
		}
	}
	identity, err := pki.EnsureServer(d.path("tls"), append([]string{"localhost", "director"}, d.cfg.Names...), ips)
	if err != nil || !shared {
		return identity, err
	}
	if now, revision, err := (commonAuthority{db: db, box: box}).Load(ctx); err != nil {
		return nil, err
	} else if revision != "" {
		return identity, identity.Follow(now)
	}
	ca, err := pki.ParseCert(identity.CA())
	if err != nil {
		return nil, err
	}
	ours := client.Fingerprint(ca)
	if known, err = db.EnsureMeta(ctx, store.MetaAuthority, ours); err != nil {
		return nil, err
	}
	if known != ours {
		return nil, director.Errorf(
			director.KindConflict, "daemon.tls", "%s is not the authority of the other directors on this database",
			identity.CAFile(),
		).
			WithHint("%s", hint)
	}
	return identity, nil
}

// listenIP returns the address that a director listens on, if it is a certain one.
func listenIP(listen string) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(host)
	return ip, err == nil && !ip.IsUnspecified()
}

// localAddress returns the address that packets to the other one leave from. It sends none.
func localAddress(other netip.Addr) (netip.Addr, bool) {
	if !other.IsValid() || other.IsUnspecified() { // both would lead to loopback
		return netip.Addr{}, false
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(other, 9)))
	if err != nil {
		return netip.Addr{}, false
	}
	defer func() { _ = c.Close() }()
	local := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
	return local, !local.IsUnspecified()
}

// instanceID returns the id of the state directory, which is made at the first start. A copy of the directory on
// another machine gets an id of its own: two directors with one id would take each other for dead.
func (d stateOpener) instanceID() (id, host string, err error) {
	if host, err = os.Hostname(); err != nil {
		return "", "", director.Errorf(director.KindInternal, "daemon.instance", "the machine has no name: %w", err).
			WithHint("set one with hostnamectl")
	}
	path := d.path("instance")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", director.Errorf(
			director.KindInternal, "daemon.instance", "the instance's id cannot be read: %w", err,
		)
	}
	place := host + " " + filepath.Clean(d.cfg.StateDir)
	if known, where, ok := strings.Cut(strings.TrimSuffix(string(text), "\n"), " "); ok && where == place {
		return known, host, nil
	}
	b := make([]byte, 6)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	id = "i" + hex.EncodeToString(b)
	if err := os.WriteFile(path, []byte(id+" "+place+"\n"), 0o600); err != nil {
		return "", "", director.Errorf(
			director.KindInternal, "daemon.instance", "the instance's id cannot be written: %w", err,
		).
			WithHint("check the space and the permissions of %s", d.cfg.StateDir)
	}
	return id, host, nil
}

// signRuns writes this director's name next to the run logs and returns the other names there: directors on one
// database may share the directory. It returns nil for a single director.
func (d stateOpener) signRuns(instance string) (logsOf func(instance string) bool, err error) {
	if d.cfg.Database == "" {
		return nil, nil
	}
	sign := func(instance string) string { return d.path("runs", instance+".director") }
	if err := os.WriteFile(sign(instance), nil, 0o600); err != nil {
		return nil, director.Errorf(director.KindInternal, "daemon.runs", "the run logs cannot be written: %w", err).
			WithHint("check the space and the permissions of %s", d.path("runs"))
	}
	return func(instance string) bool {
		_, err := os.Stat(sign(instance))
		return !errors.Is(err, fs.ErrNotExist)
	}, nil
}
