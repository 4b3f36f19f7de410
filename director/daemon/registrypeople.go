package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/audit"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/registry"
	"github.com/director-kaas/kaas/director/store"
)

// What the audit trail calls what people do in the registry.
const (
	actPushImage   = "push-image"
	actDeleteImage = "delete-image"
)

// apiToken is what API tokens begin with, and how long they are. A password like this is taken for one.
const (
	apiToken      = "kaas_api_"
	apiTokenBytes = len(apiToken) + 43
)

// mostEntered bounds how many people are remembered.
const mostEntered = 4096

// registryPeople says what people may do in the registry, and implements registry.People. A password is looked at once:
// its session counts for the requests that follow, so the rules of sessions hold, and what ends one ends the access.
type registryPeople struct {
	db    *store.Store
	nodes *pulls
	door  atomic.Pointer[door] // nil before people may log in

	key      [sha256.Size]byte // of what is remembered instead of passwords
	entering singleflight.Group
	mu       sync.Mutex
	sessions *simplelru.LRU[[sha256.Size]byte, director.Secret]
}

// door is how people get in.
type door struct {
	auth   *auth.Service
	logins *api.Logins
	trail  *audit.Service
}

func newRegistryPeople(db *store.Store, nodes *pulls) *registryPeople {
	p := &registryPeople{db: db, nodes: nodes}
	_, _ = rand.Read(p.key[:])                                                             // never fails
	p.sessions, _ = simplelru.NewLRU[[sha256.Size]byte, director.Secret](mostEntered, nil) // fails for no size alone
	return p
}

// Enter implements registry.People.
func (p *registryPeople) Enter(ctx context.Context, name string, password director.Secret) (registry.Person, error) {
	const op = "registry.enter"
	in := p.door.Load()
	if in == nil {
		return registry.Person{}, director.Errorf(director.KindUnavailable, op, "the director is starting")
	}
	if node, ok := p.nodes.answer(ctx, name, pullsFor); ok && node.allowed { // a cluster with a wrong password
		return registry.Person{}, director.Errorf(director.KindUnauthenticated, op, "the password is wrong")
	}
	a, err := p.actor(ctx, in, strings.ToLower(name), password)
	if err != nil {
		return registry.Person{}, err
	}
	if a.MustChange {
		return registry.Person{}, director.Errorf(
			director.KindUnauthenticated, op, "the one-time password must be changed first",
		)
	}
	return registry.Person{
		Name: a.User, Releases: auth.CanSome(a, director.ActRead, string(model.KindRelease)),
		May: func(ctx context.Context, project string) (registry.Rights, error) { return p.may(ctx, a, project) },
	}, nil
}

// actor returns who shows a password, or an API token instead of one.
func (p *registryPeople) actor(
	ctx context.Context, in *door, name string, password director.Secret,
) (director.Actor, error) {
	if text := password.Reveal(); strings.HasPrefix(text, apiToken) && len(text) == apiTokenBytes {
		a, err := in.auth.Authenticate(ctx, password)
		if err == nil && a.User != name {
			err = director.Errorf(director.KindUnauthenticated, "registry.enter", "the token is of another user")
		}
		return a, err
	}
	mac := hmac.New(sha256.New, p.key[:])
	_, _ = mac.Write([]byte(name + "\x00" + password.Reveal())) // never fails
	key := [sha256.Size]byte(mac.Sum(nil))
	p.mu.Lock()
	session, known := p.sessions.Get(key)
	p.mu.Unlock()
	if known {
		a, err := in.auth.Authenticate(ctx, session)
		if director.KindOf(err) != director.KindUnauthenticated {
			return a, err
		}
	}
	// A client sends many requests at once: they share one login.
	got, err, _ := p.entering.Do(string(key[:]), func() (any, error) {
		ctx := context.WithoutCancel(ctx)
		session, a, err := in.logins.Enter(ctx, auth.Login{
			User: name, Password: password, Address: director.OriginOf(ctx).Address,
		}, in.trail)
		if err == nil {
			p.mu.Lock()
			p.sessions.Add(key, session)
			p.mu.Unlock()
		}
		return a, err
	})
	a, _ := got.(director.Actor)
	return a, err
}

// may says what the actor may do with the images of the project: who sees the project or one of its clusters pulls, and
// who may run plans for all of its clusters pushes.
func (p *registryPeople) may(ctx context.Context, a director.Actor, project string) (registry.Rights, error) {
	all := director.Object{Kind: string(model.KindCluster), Project: project}
	out := registry.Rights{
		Pull: auth.Can(a, director.ActRead, all), Push: auth.Can(a, director.ActRun, all),
	}
	for _, g := range a.Grants {
		if out.Pull || g.Cluster == "" {
			continue
		}
		cluster, err := p.db.ClusterScope(ctx, g.Cluster)
		if err != nil && director.KindOf(err) != director.KindNotFound {
			return registry.Rights{}, err
		}
		out.Pull = err == nil && cluster.Project == project && auth.Can(a, director.ActRead, cluster)
	}
	return out, nil
}

// Project implements registry.People.
func (p *registryPeople) Project(ctx context.Context, name string) (registry.Project, error) {
	doc, err := p.db.Document(ctx, model.Ref{Kind: model.KindProject, Name: name})
	if err != nil {
		return registry.Project{}, err
	}
	return imagesOf(doc), nil
}

func imagesOf(doc model.Stored) registry.Project {
	return registry.Project{UID: doc.UID, Images: int64(doc.Project.Quota.Images)}
}

// Projects implements registry.People.
func (p *registryPeople) Projects(ctx context.Context) (map[string]registry.Project, error) {
	docs, err := p.db.Documents(ctx, model.KindProject)
	out := make(map[string]registry.Project, len(docs))
	for _, doc := range docs {
		out[doc.Metadata.Name] = imagesOf(doc)
	}
	return out, err
}

// ProjectOf implements registry.People.
func (p *registryPeople) ProjectOf(ctx context.Context, user string) (string, error) {
	return p.db.ProjectOfCluster(ctx, user)
}

// Record implements registry.People.
func (p *registryPeople) Record(ctx context.Context, d registry.Deed) error {
	at := audit.Attempt{Actor: d.Person, Action: actDeleteImage, Object: "Image/" + d.Repository, Err: d.Err}
	if d.Push {
		at.Action = actPushImage
	}
	if d.Err == nil {
		at.Detail = strings.TrimSpace(d.Image + " " + d.Digest)
	}
	in := p.door.Load()
	if in == nil {
		return director.Errorf(director.KindUnavailable, "registry.record", "the director is starting")
	}
	return in.trail.Attempt(ctx, at)
}
