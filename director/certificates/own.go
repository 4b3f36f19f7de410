package certificates

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
)

// trustScript prints the authorities of all registries that containerd on the node trusts.
const trustScript = `cat /etc/containerd/certs.d/*/ca.crt 2>/dev/null || true`

// OwnAuthority changes the authority of the director itself, which signs the certificate of its API and its registry.
// How far a change is is read from the certificates: the director's, and those on nodes. It is safe for concurrent use.
type OwnAuthority struct {
	Server *pki.Server
	// Machines returns the machines of all clusters.
	Machines func(context.Context) ([]director.Machine, error)
	// Read runs the script as root on the machine and returns what it printed; nil where no machine can be read.
	Read func(ctx context.Context, m director.Machine, script string) (string, error)
	// Common is what directors with one database have of it; nil for a director that has its database alone.
	Common Common
	Log    *slog.Logger

	changing sync.Mutex
}

// Common is the authority of the directors on one database. All of them follow it.
type Common interface {
	// Load returns the succession, and its revision; "" if there is none yet.
	Load(ctx context.Context) (now pki.Succession, revision string, err error)
	// Save replaces the one of the revision former; conflict if that is not there any more.
	Save(ctx context.Context, former string, next pki.Succession) error
	// Followed notes that this director has taken the revision.
	Followed(ctx context.Context, revision string) error
	// Followers returns the living directors, and which of them have.
	Followers(ctx context.Context, revision string) ([]Follower, error)
}

// Follower is a director on the database, and whether it has taken the stage.
type Follower struct {
	Name    string
	Follows bool
}

// OwnState is how far the change of the director's authority is.
type OwnState struct {
	Stage       pki.Stage
	Authorities []pki.Trusted     // the newest last
	PEM         string            // of all of them
	Certificate *x509.Certificate // of the director, which one of them has signed
	// Behind are nodes that trust the former authority and not the next one, or do not say what they trust.
	Behind []Behind
	// Directors are those on this database, once one of them has begun a change.
	Directors []Follower
}

// Waiting names the directors that have not taken the stage yet.
func (s OwnState) Waiting() []string {
	var names []string
	for _, d := range s.Directors {
		if !d.Follows {
			names = append(names, d.Name)
		}
	}
	return names
}

// Behind is a node that may not trust the next authority.
type Behind struct{ Cluster, Node, Why string }

// State returns how far the change is. With look, all nodes are asked what they trust.
func (o *OwnAuthority) State(ctx context.Context, look bool) (OwnState, error) {
	s := OwnState{Stage: o.Server.Stage(), PEM: o.Server.CA(), Certificate: o.Server.Leaf()}
	var err error
	if s.Authorities, err = o.Server.Authorities(); err != nil {
		return s, err
	}
	if s.Directors, err = o.followers(ctx); err != nil || !look || len(s.Authorities) < 2 {
		return s, err
	}
	s.Behind, err = o.behind(ctx, s.Authorities)
	return s, err
}

func (o *OwnAuthority) followers(ctx context.Context) ([]Follower, error) {
	if o.Common == nil {
		return nil, nil
	}
	_, revision, err := o.Common.Load(ctx)
	if err != nil || revision == "" {
		return nil, err
	}
	return o.Common.Followers(ctx, revision)
}

// Follow takes what another director has made of the common authority, and says so. Call it every few seconds.
func (o *OwnAuthority) Follow(ctx context.Context) error {
	o.changing.Lock()
	defer o.changing.Unlock()
	return o.follow(ctx)
}

func (o *OwnAuthority) follow(ctx context.Context) error {
	if o.Common == nil {
		return nil
	}
	now, revision, err := o.Common.Load(ctx)
	if err != nil || revision == "" {
		return err
	}
	if own, err := o.Server.Succession(); err != nil || own != now {
		if err := o.Server.Follow(now); err != nil {
			return err
		}
		o.Log.InfoContext(ctx, "follows the other directors' authority", "stage", string(o.Server.Stage()))
	}
	return o.Common.Followed(ctx, revision)
}

// Change brings the change to the stage: to trust and to use, and to none, which drops the former authority. A stage
// that the change is in already is no error. The two last stages are refused while nodes are behind, unless forced, and
// while other directors on the database are. Errors: conflict, with what to do first.
func (o *OwnAuthority) Change(ctx context.Context, to pki.Stage, force bool) (OwnState, error) {
	const op = "certificates.own_authority"
	o.changing.Lock()
	defer o.changing.Unlock()
	if err := o.follow(ctx); err != nil {
		return OwnState{}, err
	}
	now, err := o.State(ctx, to != pki.StageTrust && !force)
	if err != nil {
		return now, err
	}
	if now.Stage == to {
		return now, nil
	}
	if waiting := now.Waiting(); len(waiting) > 0 {
		return now, director.Errorf(
			director.KindConflict, op, "directors on this database have not followed yet: %s",
			strings.Join(waiting, ", "),
		).WithHint(
			"a director follows within seconds: try again. One of an older version does not: upgrade it, or stop it",
		)
	}
	if len(now.Behind) > 0 {
		return now, late(op, now.Behind)
	}
	next, err := o.Server.Next(to)
	if err != nil {
		return now, err
	}
	if err := o.take(ctx, next); err != nil {
		return now, err
	}
	o.Log.InfoContext(ctx, "the change of the director's authority is in another stage", "stage", string(to))
	return o.State(ctx, false)
}

// take makes the succession the common one before it is this director's.
func (o *OwnAuthority) take(ctx context.Context, next pki.Succession) error {
	if o.Common == nil {
		return o.Server.Follow(next)
	}
	_, former, err := o.Common.Load(ctx)
	if err == nil {
		err = o.Common.Save(ctx, former, next)
	}
	if err != nil {
		return err
	}
	return o.follow(ctx)
}

// mostNamed is how many nodes an error names; it counts the others.
const mostNamed = 10

func late(op string, behind []Behind) error {
	var names, clusters []string
	for _, b := range behind {
		names = append(names, b.Node+" ("+b.Why+")")
		if !slices.Contains(clusters, b.Cluster) {
			clusters = append(clusters, b.Cluster)
		}
	}
	more := ""
	if n := len(names) - mostNamed; n > 0 {
		more, names = fmt.Sprintf(" and %d more", n), names[:mostNamed]
	}
	return director.Errorf(
		director.KindConflict, op, "nodes may not trust the next authority: %s%s", strings.Join(names, ", "), more,
	).WithHint(
		"give it to them: directorctl rotate pull-password %s. A node that stays away pulls no images afterwards: "+
			"to leave it behind, use --force", clusters[0],
	)
}

// behind asks all nodes what they trust.
func (o *OwnAuthority) behind(ctx context.Context, all []pki.Trusted) ([]Behind, error) {
	machines, err := o.Machines(ctx)
	if err != nil || o.Read == nil {
		return nil, err
	}
	machines = slices.DeleteFunc(machines, func(m director.Machine) bool { return !m.Deleted.IsZero() || !member(m) })
	why := make([]string, len(machines))
	slots := make(chan struct{}, lookers)
	var asked sync.WaitGroup
	for i, m := range machines {
		slots <- struct{}{}
		asked.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, lookLimit)
			defer cancel()
			why[i] = o.lacks(ctx, m, all)
		})
	}
	asked.Wait()
	var out []Behind
	for i, m := range machines {
		if why[i] != "" {
			out = append(out, Behind{m.Cluster, m.Name, why[i]})
		}
	}
	slices.SortFunc(out, func(a, b Behind) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node))
	})
	return out, ctx.Err()
}

// lacks says why the node may not trust the newest authority, or "". A node that trusts none of them pulls elsewhere.
func (o *OwnAuthority) lacks(ctx context.Context, m director.Machine, all []pki.Trusted) string {
	out, err := o.Read(ctx, m, trustScript)
	if err != nil {
		return "does not say: " + line(err.Error())
	}
	has := func(a pki.Trusted) bool { return strings.Contains(out, strings.TrimSpace(a.PEM)) }
	if has(all[len(all)-1]) || !slices.ContainsFunc(all, has) {
		return ""
	}
	return "trusts the former one alone"
}
