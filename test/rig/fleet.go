package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/director-kaas/kaas/test/loopback"
)

// Fleet is directors on one database, set up as docs/operate/high-availability.md says. The address that they have in
// common is 127.0.0.1, where somebody may put a balancer; they listen on the same ports of 127.0.0.2, 127.0.0.3 and so
// on.
type Fleet struct {
	Dir       string // everything that the fleet makes
	API       string // the common addresses
	Registry  string
	Directors []*Rig
}

// sharedDirs are what directors have in common beside the database. Links to one directory play the part of NFS.
var sharedDirs = []string{"registry", "runs", "playbooks"}

// NewFleet writes the configurations of n directors; plays is YAML of how pretended playbooks go.
func NewFleet(bin, dir string, n int, database, databasePassword, plays string) (*Fleet, error) {
	f := &Fleet{Dir: dir}
	var err error
	if f.API, err = commonAddress(n); err != nil {
		return nil, err
	}
	if f.Registry, err = commonAddress(n); err != nil {
		return nil, err
	}
	secret := filepath.Join(dir, "db.password")
	if err := os.WriteFile(secret, []byte(databasePassword), 0o600); err != nil {
		return nil, err
	}
	for i := range n {
		r := &Rig{Bin: bin, Dir: filepath.Join(dir, fmt.Sprintf("director%d", i+1)), Listen: member(f.API, i)}
		for _, name := range sharedDirs {
			there := filepath.Join(dir, "shared", name)
			if err := errors.Join(
				os.MkdirAll(there, 0o700), os.MkdirAll(r.State(), 0o700),
				os.Symlink(there, filepath.Join(r.State(), name)),
			); err != nil {
				return nil, err
			}
		}
		if err := r.configure(member(
			f.Registry, i,
		), fmt.Sprintf("database: %q\ndatabasePasswordFile: %s\nforks: 50\nsimulation: {worlds: %s, plays: %s}",
			database, secret, filepath.Join(dir, "shared", "worlds"), plays)); err != nil {
			return nil, err
		}
		f.Directors = append(f.Directors, r)
	}
	return f, nil
}

// commonAddress returns an address on 127.0.0.1 whose port is free there and for the n directors.
func commonAddress(n int) (string, error) {
	for {
		free, err := loopback.Free()
		if err != nil {
			return "", err
		}
		addr := free.String()
		var taken error
		for i := range n {
			l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", member(addr, i))
			if err != nil {
				taken = err
				continue
			}
			taken = errors.Join(taken, l.Close())
		}
		if taken == nil {
			return addr, nil
		}
	}
}

// member returns the address of the i-th director that belongs to a common one.
func member(common string, i int) string {
	_, port, _ := strings.Cut(common, ":")
	return fmt.Sprintf("127.0.0.%d:%s", i+2, port)
}

// Start starts the first director, gives the others what they must have in common with it, and starts them.
func (f *Fleet) Start(ctx context.Context) error {
	first := f.Directors[0]
	if err := errors.Join(first.Start(), first.Ready(ctx)); err != nil {
		return err
	}
	for _, r := range f.Directors[1:] {
		for _, name := range []string{"sealing.key", "tls/ca.crt", "tls/ca.key"} {
			text, err := os.ReadFile(first.Seen(name))
			if err == nil {
				err = errors.Join(
					os.MkdirAll(filepath.Dir(r.Seen(name)), 0o700), os.WriteFile(r.Seen(name), text, 0o600),
				)
			}
			if err != nil {
				return err
			}
		}
		if err := errors.Join(r.Start(), r.Ready(ctx)); err != nil {
			return err
		}
	}
	return nil
}
