// Package issuer makes the director an OpenID Connect issuer: for the API servers of clusters, which accept its tokens
// as persons, and for directorctl, which logs people in with a browser.
//
// A token for a cluster is a JSON Web Token that lives for ten minutes. API servers verify it alone, with the public
// keys that they were given, so it works while the director is down and cannot be revoked.
package issuer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// Path is where the issuer is, below the director's address for browsers. The others are below it.
const (
	Path          = "/oidc"
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/keys"
	AuthorizePath = "/authorize"
	TokenPath     = "/token"
	DevicePath    = "/device"
)

// tokenLife is how long an API server accepts a token. It bounds how long a person who may do nothing any more can
// still use a cluster.
const tokenLife = 10 * time.Minute

// Algorithm signs tokens. Kubernetes accepts it, and no Edwards curve.
const Algorithm = jose.ES256

// Store keeps keys and users. All methods are safe for concurrent use and return *director.Error.
type Store interface {
	IssuerKeys(ctx context.Context) ([]store.IssuerKey, error)
	EditIssuerKeys(
		ctx context.Context, now time.Time, actor string,
		edit func(have []store.IssuerKey) (add []store.NewIssuerKey, remove []string, err error),
	) error
	Secret(ctx context.Context, owner, name string) ([]byte, error)
	GetUser(ctx context.Context, name string) (director.User, error)
	EditUser(ctx context.Context, name string, edit func(*director.UserEdit) error) error
	AddLoginRequest(ctx context.Context, r store.LoginRequest) error
	EditLoginRequest(ctx context.Context, k store.LoginKey, edit func(*store.LoginRequest) error) error
	ClusterScope(ctx context.Context, name string) (director.Object, error)
	Document(ctx context.Context, ref model.Ref) (model.Stored, error)
}

// Sealer keeps the private keys. seal.Box implements it.
type Sealer interface {
	Seal(owner, name string, plain []byte) ([]byte, error)
	Unseal(owner, name string, sealed []byte) ([]byte, error)
}

// Config is what New needs. All fields must be set, apart from KeyLife.
type Config struct {
	Store   Store
	Sealer  Sealer
	URL     string        // of the director, for browsers
	KeyLife time.Duration // how long a key signs; 0 means 30 days
	Now     func() time.Time
}

// Service issues tokens. It is safe for concurrent use.
type Service struct {
	Config

	mu      sync.Mutex
	signers map[string]jose.Signer // by the id of the key
}

// New returns the service. Before its first use, Tick makes the keys.
func New(c Config) *Service {
	if c.KeyLife == 0 {
		c.KeyLife = keyLife
	}
	return &Service{Config: c, signers: map[string]jose.Signer{}}
}

// Issuer is the URL that tokens name.
func (s *Service) Issuer() string { return s.URL + Path }

// Site is the director's address for browsers.
func (s *Service) Site() string { return s.URL }

// Audience is for whom the tokens of a cluster are.
func Audience(clusterUID string) string { return "kaas:" + clusterUID }

// Group is the name of the group that everyone with the role on a cluster is in there.
func Group(role director.UserRole) string { return "role:" + string(role) }

// Discovery is what the discovery document says.
type Discovery struct {
	Issuer        string   `json:"issuer"`
	Authorize     string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Device        string   `json:"device_authorization_endpoint"`
	Keys          string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	Subjects      []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	Claims        []string `json:"claims_supported"`
	Grants        []string `json:"grant_types_supported"`
	Challenges    []string `json:"code_challenge_methods_supported"`
	ClientAuth    []string `json:"token_endpoint_auth_methods_supported"`
	NamesItself   bool     `json:"authorization_response_iss_parameter_supported"`
}

func (s *Service) discovery() Discovery {
	return Discovery{
		Issuer: s.Issuer(), Keys: s.Issuer() + KeysPath, ResponseTypes: []string{"code"}, Subjects: []string{"public"},
		Algorithms: []string{string(Algorithm)}, Authorize: s.Issuer() + AuthorizePath, Token: s.Issuer() + TokenPath,
		Device: s.Issuer() + DevicePath,
		Grants: []string{"authorization_code", "urn:ietf:params:oauth:grant-type:device_code"}, NamesItself: true,
		Challenges: []string{"S256"}, ClientAuth: []string{"none"},
		Claims: []string{"iss", "sub", "aud", "iat", "nbf", "exp", "jti", "preferred_username", "groups"},
	}
}

// Documents returns the discovery document and the key set, as the director serves them and as the masters of clusters
// do. Both stay the same until keys change.
func (s *Service) Documents(ctx context.Context) (discovery, jwks []byte, err error) {
	keys, err := s.Store.IssuerKeys(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(keys) == 0 {
		if err := s.Tick(ctx); err != nil {
			return nil, nil, err
		}
		if keys, err = s.Store.IssuerKeys(ctx); err != nil {
			return nil, nil, err
		}
	}
	set := jose.JSONWebKeySet{Keys: make([]jose.JSONWebKey, len(keys))}
	for i, k := range keys {
		if err := json.Unmarshal(k.Public, &set.Keys[i]); err != nil {
			return nil, nil, director.Errorf(
				director.KindInternal, "issuer.documents", "the signing key %s cannot be read: %w", k.ID, err,
			)
		}
	}
	if discovery, err = json.Marshal(s.discovery()); err == nil {
		jwks, err = json.Marshal(set)
	}
	if err != nil {
		return nil, nil, director.Errorf(director.KindInternal, "issuer.documents", "encoding: %w", err)
	}
	return discovery, jwks, nil
}

// Token is a token for the API of a cluster.
type Token struct {
	Text    director.Secret
	Expires time.Time
}

// claims are what a token says beyond what every token says.
type claims struct {
	UserName string   `json:"preferred_username"`
	Groups   []string `json:"groups"`
}

// ClusterToken returns a token for the actor that the API servers of the cluster accept. Its groups are the roles that
// the actor has there now. Errors: not_found for a cluster that there is not, or that the actor may not see.
func (s *Service) ClusterToken(ctx context.Context, a director.Actor, cluster string) (Token, error) {
	const op = "issuer.token"
	scope, err := s.Store.ClusterScope(ctx, cluster)
	if err != nil && director.KindOf(err) != director.KindNotFound {
		return Token{}, err
	}
	roles := auth.RolesOn(a, scope)
	if err != nil || len(roles) == 0 {
		return Token{}, director.Errorf(director.KindNotFound, op, "there is no cluster %s that you may see", cluster).
			WithHint("directorctl whoami shows what you may do")
	}
	doc, err := s.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster})
	if err != nil {
		return Token{}, err
	}
	u, err := s.user(ctx, a.User)
	if err != nil {
		return Token{}, err
	}
	signer, err := s.signer(ctx)
	if err != nil {
		return Token{}, err
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	now := s.Now().UTC().Truncate(time.Second)
	more := claims{UserName: u.Name}
	for _, r := range roles {
		more.Groups = append(more.Groups, Group(r))
	}
	t := Token{Expires: now.Add(tokenLife)}
	text, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: s.Issuer(), Subject: u.UID, Audience: jwt.Audience{Audience(doc.UID)}, ID: hex.EncodeToString(id),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now.Add(-leeway)),
		Expiry: jwt.NewNumericDate(t.Expires),
	}).Claims(more).Serialize()
	if err != nil {
		return Token{}, director.Errorf(director.KindInternal, op, "the token cannot be signed: %w", err)
	}
	t.Text = director.Secret(text)
	return t, nil
}

// leeway is how far the clocks of masters may be behind.
const leeway = time.Minute

// user returns the user with the uid. One that an older director has added has none until here.
func (s *Service) user(ctx context.Context, name string) (director.User, error) {
	u, err := s.Store.GetUser(ctx, name)
	if err != nil || u.UID != "" {
		return u, err
	}
	if err := s.Store.EditUser(ctx, name, func(*director.UserEdit) error { return nil }); err != nil {
		return u, err
	}
	return s.Store.GetUser(ctx, name)
}
