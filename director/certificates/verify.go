package certificates

import (
	"context"
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Finding is something about a certificate that needs a person.
type Finding struct {
	director.Certificate
	What string // what is wrong
	Next string // what to do about it
}

// Soon is how long before its end a certificate is a finding.
const Soon = 30 * 24 * time.Hour

// Verify looks at the certificates of the cluster, or of all clusters and the director, and returns what is wrong with
// them and how many it knows; exhausted while another verification runs.
func (i *Inventory) Verify(ctx context.Context, q director.CertificateQuery) ([]Finding, int, error) {
	if !i.verifying.TryLock() {
		return nil, 0, director.Errorf(
			director.KindExhausted, "certificates.verify", "another verification of certificates runs",
		).WithHint("wait for it and ask again")
	}
	defer i.verifying.Unlock()
	if err := i.Look(ctx, q.Cluster); err != nil {
		return nil, 0, err
	}
	list, _, err := i.Store.Certificates(ctx, q, director.Page{})
	if err != nil {
		return nil, 0, err
	}
	return findings(list, i.Now()), len(list), nil
}

// renewal says what renews the certificate, or replaces an authority, before its end or after it.
func renewal(c director.Certificate, ended bool) string {
	authority := c.Rotation()
	switch {
	case c.Cluster == "" && c.Name == director.CertificateACME:
		return "see in the director's log why it was not renewed"
	case c.Cluster == "" && c.Name == director.CertificateOwnCA:
		return "change it before its end: directorctl ca director trust"
	case c.Cluster == "" || c.Source == director.CertificateAPI || c.CA && authority == "":
		return "renew it before its end"
	case ended:
		return "directorctl certs rotate " + c.Cluster + " --cold"
	case c.CA:
		return "directorctl rotate " + authority + " " + c.Cluster
	}
	return "directorctl certs rotate " + c.Cluster
}

// stranger says what to do about a certificate that the cluster's authority has not signed.
func stranger(c director.Certificate) string {
	next := "see whose machine or which clock it is"
	if c.Node == "" {
		return next
	}
	return next + "; a node that was away while the authority was changed joins again: directorctl node rejoin " +
		c.Cluster + " " + c.Node
}

func findings(list []director.Certificate, now time.Time) []Finding {
	type at struct{ cluster, node, name string }
	filed := map[at]director.Certificate{}
	for _, c := range list {
		if c.Source == director.CertificateFile && !c.Stale() {
			filed[at{c.ClusterUID, c.Node, c.Name}] = c
		}
	}
	var out []Finding
	for _, c := range list {
		add := func(next, what string, args ...any) {
			out = append(out, Finding{c, fmt.Sprintf(what, args...), next})
		}
		rotate := renewal(c, false)
		switch left := c.Ends.Sub(now); {
		case left <= 0:
			add(renewal(c, true), "ended on %s", c.Ends.Format(time.RFC3339))
		case c.Begins.After(now):
			add("compare the clocks of the node and the director", "begins on %s only", c.Begins.Format(time.RFC3339))
		case c.EndsWithin(Soon, now) && left < c.Ends.Sub(c.Begins)/2:
			add(rotate, "ends on %s", c.Ends.Format(time.RFC3339))
		}
		switch file, known := filed[at{c.ClusterUID, c.Node, c.Name}]; {
		case c.Stale():
			add("see whether the machine is up", "was not seen since %s: %s", c.Seen.Format(time.RFC3339), c.Problem)
		case c.Problem != "" && c.Cluster == "":
			add("see acme in the director's configuration, and the director's log", "%s", c.Problem)
		case c.Problem != "":
			add(stranger(c), "%s", c.Problem)
		case c.Source == director.CertificateTLS && known && file.Fingerprint != c.Fingerprint:
			add(rotate, "the one that is served is not the one in %s", file.Place)
		}
	}
	return out
}
