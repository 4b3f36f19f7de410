package issuer_test

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/issuer"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

const url = "https://director.test:8443"

type world struct {
	db      *store.Store
	issuer  *issuer.Service
	cluster model.Stored

	mu  sync.Mutex
	now time.Time
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{now: time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)}
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	db, err := store.Open(t.Context(), filepath.Join(dir, "director.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	box, err := seal.Open(filepath.Join(dir, "sealing.key"), true)
	if err != nil {
		t.Fatal(err)
	}
	w.db = db
	w.issuer = issuer.New(issuer.Config{Store: db, Sealer: box, URL: url, Now: w.clock})
	if err := db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.PutDocument(model.Document{
			Kind: model.KindCluster, Metadata: model.Metadata{Name: "shop"}, Cluster: &model.Cluster{Project: "web"},
		}, "test", w.now)
	}); err != nil {
		t.Fatal(err)
	}
	if w.cluster, err = db.Document(t.Context(), model.Ref{Kind: model.KindCluster, Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ann", "bob"} {
		u := director.User{Name: name, Role: director.RoleOperator, Created: w.now, Updated: w.now}
		if err := db.AddUser(t.Context(), u, "test"); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func actor(name string, role director.UserRole, grants ...director.Granted) director.Actor {
	return director.Actor{User: name, Role: role, Scope: director.ScopeAll, Grants: grants}
}

// keys are the key set as an API server has it.
func (w *world) keys(t *testing.T) *oidc.StaticKeySet {
	t.Helper()
	_, text, err := w.issuer.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	out := &oidc.StaticKeySet{}
	for _, k := range set.Keys {
		if !k.IsPublic() || k.Algorithm != "ES256" || k.Use != "sig" {
			t.Errorf("key %+v", k)
		}
		out.PublicKeys = append(out.PublicKeys, k.Key.(crypto.PublicKey))
	}
	return out
}

type said struct {
	UserName string   `json:"preferred_username"`
	Groups   []string `json:"groups"`
}

// verify is what an API server of the cluster does: Kubernetes uses the same library.
func (w *world) verify(ctx context.Context, keys oidc.KeySet, uid, text string) (*oidc.IDToken, said, error) {
	token, err := oidc.NewVerifier(url+"/oidc", keys, &oidc.Config{
		ClientID: "kaas:" + uid, SupportedSigningAlgs: []string{"ES256"}, Now: w.clock,
	}).Verify(ctx, text)
	var c said
	if err == nil {
		err = token.Claims(&c)
	}
	return token, c, err
}

// A token names the user for all time, the cluster alone, and the roles that the user has there.
func TestClusterToken(t *testing.T) {
	t.Parallel()
	w := setup(t)
	grant := func(role director.UserRole, project, cluster string) director.Granted {
		return director.Granted{Role: role, Project: project, Cluster: cluster}
	}
	for _, c := range []struct {
		name string
		a    director.Actor
		want []string
	}{
		{"an administrator", actor("ann", director.RoleAdmin), []string{"role:admin"}},
		{
			"by the own role and a grant", actor("ann", director.RoleAuditor, grant("operator", "web", "")),
			[]string{"role:operator", "role:auditor"},
		},
		{"by grants for the project and the cluster", actor("bob", director.RoleNone, grant("user", "web", ""),
			grant("admin", "", "shop")), []string{"role:admin", "role:user"}},
		{
			"of a grant for the whole director", actor("bob", director.RoleNone, grant("operator", "", "")),
			[]string{"role:operator"},
		},
		{"not of another project or cluster", actor("bob", director.RoleUser, grant("admin", "other", ""),
			grant("admin", "", "other")), []string{"role:user"}},
	} {
		token, err := w.issuer.ClusterToken(t.Context(), c.a, "shop")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, claims, err := w.verify(t.Context(), w.keys(t), w.cluster.UID, token.Text.Reveal())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		u, err := w.db.GetUser(t.Context(), c.a.User)
		if err != nil || u.UID == "" || got.Subject != u.UID || claims.UserName != c.a.User {
			t.Errorf("%s: subject %q, user %+v, %v", c.name, got.Subject, u, err)
		}
		if diff := cmp.Diff(c.want, claims.Groups); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if d := got.Expiry.Sub(w.now); d != 10*time.Minute || !token.Expires.Equal(got.Expiry) {
			t.Errorf("%s: lives for %s", c.name, d)
		}
		if _, _, err := w.verify(t.Context(), w.keys(t), "u-of-another", token.Text.Reveal()); err == nil {
			t.Errorf("%s: another cluster accepts it", c.name)
		}
	}
}

// Who may not see a cluster is told the same as of one that does not exist.
func TestNoToken(t *testing.T) {
	t.Parallel()
	w := setup(t)
	once := actor("ann", director.RoleAdmin)
	once.MustChange = true
	read := actor("ann", director.RoleAdmin)
	read.Scope = director.ScopeRead
	stranger := actor("ann", director.RoleNone, director.Granted{Role: director.RoleAdmin, Cluster: "other"})
	for name, a := range map[string]director.Actor{
		"no right": stranger, "one-time password": once,
		"read token": read,
	} {
		_, here := w.issuer.ClusterToken(t.Context(), a, "shop")
		_, gone := w.issuer.ClusterToken(t.Context(), a, "nope")
		if director.KindOf(here) != director.KindNotFound ||
			strings.ReplaceAll(here.Error(), "shop", "nope") != gone.Error() {
			t.Errorf("%s: %v, and %v for one that does not exist", name, here, gone)
		}
	}
}

// A user of the name of one who was deleted is another subject.
func TestSubjects(t *testing.T) {
	t.Parallel()
	w := setup(t)
	subject := func() string {
		token, err := w.issuer.ClusterToken(t.Context(), actor("ann", director.RoleAdmin), "shop")
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := w.verify(t.Context(), w.keys(t), w.cluster.UID, token.Text.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		return got.Subject
	}
	first := subject()
	if again := subject(); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if err := w.db.DeleteUser(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	// As an older director adds a user: without a uid.
	if err := w.db.PutUser(t.Context(), director.User{Name: "ann", Role: director.RoleAdmin}); err != nil {
		t.Fatal(err)
	}
	if next := subject(); next == first || next == "" || next != subject() {
		t.Errorf("%s, then %s", first, next)
	}
}

// A key is published at least a day before its first token, and until its last token has ended.
func TestRotation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	seen := map[string]time.Time{} // since when a key is published
	var signers []string
	look := func() {
		if err := w.issuer.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		have, err := w.db.IssuerKeys(t.Context())
		if err != nil || len(have) < 2 || len(have) > 3 {
			t.Fatalf("%d keys, %v", len(have), err)
		}
		for _, k := range have {
			if _, ok := seen[k.ID]; !ok {
				seen[k.ID] = w.clock()
			}
		}
		token, err := w.issuer.ClusterToken(t.Context(), actor("ann", director.RoleAdmin), "shop")
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := jose.ParseSigned(token.Text.Reveal(), []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		id := parsed.Signatures[0].Header.KeyID
		if !slices.Contains(signers, id) {
			signers = append(signers, id)
			if ahead := w.clock().Sub(seen[id]); len(signers) > 1 && ahead < 24*time.Hour {
				t.Errorf("key %s was published %s before its first token", id, ahead)
			}
		}
		w.later(10*time.Minute - time.Second)
		if _, _, err := w.verify(t.Context(), w.keys(t), w.cluster.UID, token.Text.Reveal()); err != nil {
			t.Errorf("at its end: %v", err)
		}
		w.later(2 * time.Second)
		if _, _, err := w.verify(t.Context(), w.keys(t), w.cluster.UID, token.Text.Reveal()); err == nil {
			t.Error("accepted after its end")
		}
	}
	for range 100 * 24 / 5 {
		look()
		w.later(5*time.Hour - 10*time.Minute)
	}
	if len(signers) != 4 {
		t.Errorf("%d keys in 100 days", len(signers))
	}
	w.later(90 * 24 * time.Hour) // the director was switched off
	look()
	w.later(time.Hour)
	look()
	if err := w.issuer.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Two directors that rotate at once make one key.
func TestRotationRace(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := w.issuer.Tick(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if have, err := w.db.IssuerKeys(t.Context()); err != nil || len(have) != 2 {
		t.Errorf("%d keys, %v", len(have), err)
	}
}

// The documents are the same until keys change, hold public keys alone, and the private ones are sealed.
func TestDocuments(t *testing.T) {
	t.Parallel()
	w := setup(t)
	discovery, keys, err := w.issuer.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var d issuer.Discovery
	if err := json.Unmarshal(discovery, &d); err != nil || d.Issuer != url+"/oidc" || d.Keys != url+"/oidc/keys" {
		t.Errorf("%s, %v", discovery, err)
	}
	if strings.Contains(string(keys), `"d":`) {
		t.Errorf("a private key: %s", keys)
	}
	w.later(time.Hour)
	again, same, err := w.issuer.Documents(t.Context())
	if err != nil || !bytes.Equal(discovery, again) || !bytes.Equal(keys, same) {
		t.Errorf("they changed: %v", err)
	}
	have, err := w.db.IssuerKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range have {
		sealed, err := w.db.Secret(t.Context(), store.IssuerOwner, k.ID)
		if err != nil || !bytes.HasPrefix(sealed, []byte("age-encryption.org/v1")) {
			t.Errorf("%.30q, %v", sealed, err)
		}
	}
}
