package daemon

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

// followEvery is how often a director looks whether another one has changed their authority.
const followEvery = 5 * time.Second

// secretAuthority is the name that the directors' authority is sealed with.
const secretAuthority = "own-authority"

// commonAuthority is the authority of the directors on the database.
type commonAuthority struct {
	db       *store.Store
	box      *seal.Box
	instance string
}

// Load implements certificates.Common.
func (c commonAuthority) Load(ctx context.Context) (pki.Succession, string, error) {
	revision, sealed, err := c.db.OwnAuthority(ctx)
	if err != nil || revision == "" {
		return pki.Succession{}, "", err
	}
	plain, err := c.box.Unseal(c.db.DirectorID(), secretAuthority, sealed)
	if err != nil {
		return pki.Succession{}, "", err
	}
	now, err := pki.DecodeSuccession(plain)
	return now, revision, err
}

// Save implements certificates.Common.
func (c commonAuthority) Save(ctx context.Context, former string, next pki.Succession) error {
	plain, err := next.Encode()
	if err != nil {
		return err
	}
	sealed, err := c.box.Seal(c.db.DirectorID(), secretAuthority, plain)
	if err != nil {
		return err
	}
	older, err := pki.ParseCert(next.CA)
	if err != nil {
		return err
	}
	return c.db.PutOwnAuthority(ctx, former, next.Revision(), client.Fingerprint(older), sealed)
}

// Followed implements certificates.Common.
func (c commonAuthority) Followed(ctx context.Context, revision string) error {
	return c.db.FollowAuthority(ctx, c.instance, revision)
}

// Followers implements certificates.Common.
func (c commonAuthority) Followers(ctx context.Context, revision string) ([]certificates.Follower, error) {
	all, err := c.db.Followers(ctx, revision)
	var out []certificates.Follower
	for _, i := range all {
		out = append(out, certificates.Follower{Name: i.Host + " (" + i.ID + ")", Follows: i.Follows})
	}
	return out, err
}

// ownAuthority changes that of the director itself, and of all directors on its database.
func (b *boot) ownAuthority() *certificates.OwnAuthority {
	o := &certificates.OwnAuthority{Server: b.server, Machines: certificateStore{b.db}.Machines, Log: b.log}
	if b.cfg.Database != "" {
		o.Common = commonAuthority{b.db, b.box, b.instance}
	}
	if b.env.Connect == nil { // there is nothing to read on nodes that only pretend
		o.Read = b.env.SSH().Read
	}
	return o
}
