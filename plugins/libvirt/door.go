package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/libvirturi"
)

// Doors are what connection URIs may lead to. The director's configuration says so, never a document.
type Doors struct {
	Files    confine.Dirs     // of keys and certificates
	Sockets  confine.Dirs     // of further libvirt daemons on the director's own machine
	Networks confine.Networks // addresses that hosts may have
}

// door is the connection URI of a host after it was checked.
type door struct {
	uri  libvirturi.URI
	to   Doors
	test bool // libvirt's test driver, whose URI is raw
	raw  string
}

// door checks the URI once more: what libvirt does with one that is wrong, it does with the director's rights.
func (c Config) door(uri string) (*door, error) {
	if c.testDriver && strings.HasPrefix(uri, "test:") {
		return &door{test: true, raw: uri}, nil
	}
	u, err := libvirturi.Parse(uri)
	if err != nil {
		return nil, err
	}
	if key, name := u.Files(); name != "" {
		if err := c.Doors.Files.Check(name); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if u.Socket != "" {
		if err := c.Doors.Sockets.Check(u.Socket); err != nil {
			return nil, fmt.Errorf("socket: %w", err)
		}
	}
	return &door{uri: u, to: c.Doors}, nil
}

// remote tells whether the URI leads to another machine, where a connection may end without a word.
func (d *door) remote() bool { return d.uri.Remote() }

// lookup is how long a name may take to be resolved.
const lookup = 10 * time.Second

// reachable refuses a host whose name leads to an address that is not allowed. libvirt resolves the name again by
// itself: SSH and TLS compare it with the host's key or certificate, so an address cannot take its place.
func (d *door) reachable(op, host string) error {
	if !d.remote() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookup)
	defer cancel()
	switch _, err := d.to.Networks.Resolve(ctx, d.uri.Host); {
	case errors.Is(err, confine.ErrAddress):
		return director.Errorf(director.KindInvalid, op, "the director may not connect to host %s: %w", host, err).
			WithHint(confine.NetworksHint)
	case err != nil:
		return director.Errorf(
			director.KindUnavailable, op, "the name %s of host %s cannot be resolved: %w", d.uri.Host, host, err,
		).
			WithHint("correct spec.libvirt.hosts of the Provider, or the director's name servers")
	}
	return nil
}

// open returns the URI for libvirt, right before it connects. Symbolic links are followed now: they may have changed
// since.
func (d *door) open(op, host string) (string, error) {
	if d.test {
		return d.raw, nil
	}
	u := d.uri
	for _, f := range []struct {
		in   confine.Dirs
		name *string
		what string
	}{{d.to.Files, &u.KeyFile, "key"}, {d.to.Files, &u.PKIPath, "directory of certificates"}} {
		if *f.name == "" {
			continue
		}
		if _, err := f.in.Find(*f.name); errors.Is(err, confine.ErrOutside) {
			return "", director.Errorf(
				director.KindInvalid, op, "the %s of host %s is not allowed: %s", f.what, host, err,
			).
				WithHint("put it into a directory of providerFiles in the director's configuration")
		} else if err != nil {
			return "", director.Errorf(
				director.KindInvalid, op, "the %s %s of host %s cannot be read", f.what, *f.name, host,
			).
				WithHint(
					"put it there on the director, readable by the director alone; or correct spec.libvirt.hosts of " +
						"the Provider",
				)
		}
	}
	return u.String(), d.reachable(op, host)
}
