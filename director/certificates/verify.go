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
		rotate := "directorctl certs rotate " + c.Cluster
		if c.CA || c.Source == director.CertificateAPI || c.Cluster == "" {
			rotate = "renew it before its end"
		}
		switch left := c.Ends.Sub(now); {
		case left <= 0 && c.Cluster != "" && !c.CA && c.Source != director.CertificateAPI:
			add(rotate+" --cold", "ended on %s", c.Ends.Format(time.RFC3339))
		case left <= 0:
			add(rotate, "ended on %s", c.Ends.Format(time.RFC3339))
		case c.Begins.After(now):
			add("compare the clocks of the node and the director", "begins on %s only", c.Begins.Format(time.RFC3339))
		case left < Soon && left < c.Ends.Sub(c.Begins)/2:
			add(rotate, "ends on %s", c.Ends.Format(time.RFC3339))
		}
		switch file, known := filed[at{c.ClusterUID, c.Node, c.Name}]; {
		case c.Stale():
			add("see whether the machine is up", "was not seen since %s: %s", c.Seen.Format(time.RFC3339), c.Problem)
		case c.Problem != "":
			add("see whose machine or which clock it is", "%s", c.Problem)
		case c.Source == director.CertificateTLS && known && file.Fingerprint != c.Fingerprint:
			add(rotate, "the one that is served is not the one in %s", file.Place)
		}
	}
	return out
}
