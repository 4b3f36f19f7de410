// Package api is the director's HTTP interface: typed operations under /api/v1 with an OpenAPI 3.1 description made
// from the same types, problem+json for every error, bearer tokens, and streams of events. It decides nothing: what is
// behind Ports does the work and Auth says who may.
package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// Auth is what the API asks of director/auth. All methods return *director.Error and are safe for concurrent use.
type Auth interface {
	// Login returns a new token for the user with the password, or unauthenticated.
	Login(ctx context.Context, l auth.Login) (director.Secret, director.Actor, error)
	// Authenticate returns whose token it is, or unauthenticated. It is a use of the token.
	Authenticate(ctx context.Context, token director.Secret) (director.Actor, error)
	// Recheck is Authenticate without being a use of the token.
	Recheck(ctx context.Context, token director.Secret) (director.Actor, error)
	// LoginPerson is Login for a person whose identity provider says who it is. admitted is called before there is a
	// token.
	LoginPerson(
		ctx context.Context, l auth.Login, u director.User, admitted func(context.Context) error,
	) (director.Secret, director.Actor, error)
	// LetIn returns a new token for a program that a person has let in, in the session with that hash.
	LetIn(ctx context.Context, l auth.Login, session string) (director.Secret, director.Actor, error)
	// Logout ends the actor's token.
	Logout(ctx context.Context, a director.Actor) error
	// Confirm returns nil if the password is the actor's own, or invalid.
	Confirm(ctx context.Context, a director.Actor, password director.Secret) error
	// ChangePassword replaces the actor's password and ends the user's other sessions.
	ChangePassword(ctx context.Context, a director.Actor, current, next director.Secret) error
}

// Config is what New needs. Ports, Auth and Log must be set.
type Config struct {
	Ports
	Auth Auth
	Log  *slog.Logger
	// Audit records attempts; nil means that they are not recorded.
	Audit Audit

	Settings wire.Settings
	Version  string // of the director
	Commit   string
	// Keys keeps requests with an Idempotency-Key; nil means that keys are not looked at.
	Keys Keys
	// Ready checks what the director needs to work, for /readyz; nil means that all is well always.
	Ready func(context.Context) []Check
	// Metrics answers /metrics; nil means that there are none.
	Metrics http.Handler
	// Manual answers /docs, to anyone: it holds no secrets, and who cannot log in needs it most. Nil means that there
	// is none.
	Manual http.Handler
	// MetricsToken is the bearer token that Metrics asks for.
	MetricsToken director.Secret
	// Observer is told of requests; nil means that none is.
	Observer Observer
	// Stopping ends the streams when it is done, so that a shutdown need not wait for them; nil means never.
	Stopping context.Context
	// Held tells that no changes are taken now, because they might be lost; nil means never.
	Held func() bool
	// HandedOver tells that Held lasts: another director has the clusters; nil means never.
	HandedOver func() bool
	// Streams is how many streams of events may be open at once; 0 means defaultStreams.
	Streams int
	// Proxies are trusted to say in X-Forwarded-For who asks; nil means that the address of the connection counts.
	Proxies []netip.Prefix
	// Logins let users in, also elsewhere; nil means that only the API does.
	Logins *Logins
	// Now is the clock of the login limit; nil means time.Now.
	Now func() time.Time
	// Recheck is how often the token behind an open stream is looked at; 0 means 10 seconds.
	Recheck time.Duration
	// Console answers what a browser asks for outside of the API, to anyone: a page that does nothing without a
	// session. Nil means that there is none.
	Console Console
}

// maxDocuments bounds the body of an apply; all other bodies are bounded to maxBody.
const (
	maxDocuments = 4 << 20
	maxBody      = 64 << 10
)

// defaultStreams is more than a director has watchers, and few enough for its memory and its file descriptors.
const defaultStreams = 256

// recheckEvery bounds how long a stream outlives its token.
const recheckEvery = 10 * time.Second

type server struct {
	Config
	logins      *Logins
	limit       *loginLimit // of logins
	crossOrigin *http.CrossOriginProtection
	streams     chan struct{} // holds an entry for each open stream
	offered     []Operation
}

// Operation is an operation of the API with what it needs.
type Operation struct {
	ID, Method, Path, Summary string
	// Action is what the actor must be allowed to do; empty for what is open to everyone. Kind is what it is about;
	// empty for the kind in the path.
	Action director.Action
	Kind   string
	// Some says that the operation is about all objects that the actor may do it on, and not about one.
	Some bool
}

// documentRoutes are the operations on documents and on the files of images.
type documentRoutes struct{ *server }

// clusterRoutes are the operations on clusters and what belongs to them.
type clusterRoutes struct{ *server }

// accessRoutes are the operations on what opens a cluster: authorities, certificates, kubeconfigs and shells.
type accessRoutes struct{ *server }

// providerRoutes are the operations on providers, and on the VMs, disks and networks that are on them.
type providerRoutes struct{ *server }

// planRoutes are the operations on plans, on outer plans' phases and on schedules.
type planRoutes struct{ *server }

// frameworkOnce guards huma's package variable for errors, which is the same for all servers of a process.
var frameworkOnce sync.Once

// New returns the handler of the whole API.
func New(c Config) http.Handler {
	_, handler, _ := build(c)
	return handler
}

// Operations returns every operation of the API, in the order of their registration.
func Operations() []Operation {
	s, _, _ := build(Config{Log: slog.New(slog.DiscardHandler)})
	return s.offered
}

// OpenAPI returns the description of the API as YAML, the same for the same version.
func OpenAPI(version string) ([]byte, error) {
	_, _, api := build(Config{Log: slog.New(slog.DiscardHandler), Version: version})
	return api.OpenAPI().YAML()
}

func build(c Config) (*server, http.Handler, huma.API) {
	if c.Stopping == nil {
		c.Stopping = context.Background()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Recheck == 0 {
		c.Recheck = recheckEvery
	}
	c.Streams = cmp.Or(c.Streams, defaultStreams)
	frameworkOnce.Do(setFramework)
	logins := c.Logins.or(c)
	s := &server{
		Config: c, logins: logins, limit: logins.limit, crossOrigin: http.NewCrossOriginProtection(),
		streams: make(chan struct{}, c.Streams),
	}
	engine := s.engine()
	api := humagin.NewWithGroup(engine, engine.Group(wire.Prefix), description(c.Version))
	documents, clusters, plans := &documentRoutes{s}, &clusterRoutes{s}, &planRoutes{s}
	access, providers := &accessRoutes{s}, &providerRoutes{s}
	s.accounts().operations(api)
	s.auditTrail(api)
	documents.documents(api)
	documents.preview(api)
	documents.schemas(api)
	clusters.clusters(api)
	clusters.fleet(api)
	plans.plans(api)
	plans.rollups(api)
	plans.logWindows(api)
	plans.phases(api)
	s.events(api)
	s.stream(api)
	plans.schedules(api)
	plans.campaigns(api)
	plans.hooks(api)
	plans.notifications(api)
	documents.images(api)
	documents.releases(api)
	documents.mirrors(api)
	documents.projects(api)
	documents.appliance(api)
	providers.disks(api)
	access.certificates(api)
	clusters.backups(api)
	providers.ledger(api)
	providers.providers(api)
	clusters.consuls(api)
	access.authorities(api)
	clusters.directors(api)
	access.ownAuthority(api)
	providers.capacity(api)
	providers.networks(api)
	completeDescription(api)
	return s, engine, api
}

// setFramework sets what gin and huma hold in global variables.
func setFramework() {
	gin.SetMode(gin.ReleaseMode)
	huma.NewErrorWithContext = frameworkProblem
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return frameworkProblem(nil, status, msg, errs...)
	}
}

// engine routes everything that is not an operation of the API: the probes, the manual and unknown paths.
func (s *server) engine() *gin.Engine {
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	engine.ContextWithFallback = true
	_ = engine.SetTrustedProxies(nil) // clientAddress looks at them; nil never fails
	engine.Use(s.accessLog, s.recovery, s.accounts().sameOrigin)
	s.probes(engine)
	s.accounts().authorizationServer(engine)
	if s.Manual != nil {
		engine.Match([]string{http.MethodGet, http.MethodHead}, "/docs", gin.WrapH(s.Manual))
		engine.Match([]string{http.MethodGet, http.MethodHead}, "/docs/*page", gin.WrapH(s.Manual))
	}
	engine.NoRoute(func(g *gin.Context) {
		g.Status(http.StatusOK) // gin has set 404 for the handler that answers here
		if s.showConsole(g.Writer, g.Request) {
			return
		}
		s.abort(g, director.Errorf(director.KindNotFound, "api.route", "there is nothing at %s", g.Request.URL.Path))
	})
	engine.NoMethod(func(g *gin.Context) {
		p := newProblem(director.KindNotFound, http.StatusMethodNotAllowed)
		p.Detail, p.RequestID = g.Request.Method+" is not offered here", requestID(g.Request.Context())
		s.abort(g, p)
	})
	return engine
}

// Console is the web console.
type Console interface {
	// Asset answers with the file that the path names. It returns false, and answers nothing, if there is none.
	Asset(w http.ResponseWriter, r *http.Request) bool
	// Page answers with the page that shows what the path names.
	Page(w http.ResponseWriter, r *http.Request)
}

// showConsole answers what a browser asks for outside of the API. It returns false if the request is for no such thing.
func (s *server) showConsole(w http.ResponseWriter, r *http.Request) bool {
	if s.Console == nil || (r.Method != http.MethodGet && r.Method != http.MethodHead) ||
		strings.HasPrefix(r.URL.Path, wire.Prefix+"/") {
		return false
	}
	if s.Console.Asset(w, r) {
		return true
	}
	if strings.HasPrefix(r.URL.Path, "/assets/") || !wantsPage(r.Header.Get("Accept")) {
		return false
	}
	s.Console.Page(w, r)
	return true
}

// wantsPage reports whether a person looks at the answer, by the Accept header.
func wantsPage(accept string) bool { return strings.Contains(accept, "text/html") }

// notNullable sets a default of the library, which has it for the whole process.
var notNullable sync.Once

// description is what the OpenAPI document says of the API as a whole.
func description(version string) huma.Config {
	conf := huma.DefaultConfig("Director", version)
	conf.Info.Description = "Makes and runs Kubernetes clusters on virtual machines. Every error is an " +
		"application/problem+json body; its " +
		"kind says what it is and its hint what to do next. Slow verbs answer 202 with the place of the plan, whose " +
		"events can be followed. An answer in JSON to a GET has an ETag, up to 4 MiB; with it in If-None-Match, " +
		"the answer is 304 while nothing has changed."
	conf.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	conf.Servers = []*huma.Server{{URL: wire.Prefix}}
	conf.OpenAPIPath = "/openapi"
	conf.DocsPath, conf.SchemasPath = "", "" // the page that huma would serve loads its code from elsewhere
	conf.CreateHooks = nil
	conf.RejectUnknownQueryParameters = true
	// Lists are never null: see wire.Marshal.
	notNullable.Do(func() { huma.DefaultArrayNullable = false })
	written := conf.Formats["application/json"]
	written.Marshal = wire.MarshalWrite
	conf.Formats = map[string]huma.Format{"application/json": written, "json": written}
	// bodies hold problems too
	conf.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[problem](), reflect.TypeFor[wire.Problem]())
	conf.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		bearer: {Type: "http", Scheme: "bearer", Description: "The token of a login, or an API token."},
		cookie: {Type: "apiKey", In: "cookie", Name: SessionCookie, Description: "The session of a browser."},
	}
	return conf
}

// The names of the ways to show a token.
const (
	bearer = "bearer"
	cookie = "cookie"
)

// patientOperations ask what may be slow, or read all of something, while their caller waits: hypervisors, clusters,
// other servers, the whole trail, a backup, a bundle.
var patientOperations = []string{
	"make-plan", "check-cluster", "preview", "verify-audit", "verify-certificates", "test-provider", "get-capacity",
	"list-vms", "audit-vms", "list-disks", "test-identity-provider", "test-consul", "test-certificate-authority",
	"verify-backup", "reread-backup-target", "verify-release",
}

// operation registers a typed operation. action "" leaves it open to all. kind says what the action is about; the name
// of the object is in the path. Who may not is refused before the request is looked at.
func operation[I, O any](
	s *server, api huma.API, op huma.Operation, action director.Action, kind string,
	handler func(context.Context, director.Actor, *I) (*O, error),
) {
	s.offered = append(s.offered, Operation{
		ID: op.OperationID, Method: op.Method, Path: op.Path, Summary: op.Summary, Action: action, Kind: kind,
		Some: isOfSome(op),
	})
	if action != "" {
		op.Security = []map[string][]string{{bearer: {}}, {cookie: {}}}
		op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden)
		op.Middlewares = append(op.Middlewares, s.named(op.OperationID), s.authenticate, s.authorize(action, kind, op))
		if slices.Contains(patientOperations, op.OperationID) {
			op.Middlewares = append(op.Middlewares, patient)
		}
	}
	if op.Method == http.MethodGet {
		op.Middlewares = append(op.Middlewares, tagged)
	}
	if _, ok := any(new(I)).(interface{ isList() }); ok {
		op.Middlewares = append(op.Middlewares, first)
	}
	if f, ok := op.Metadata[metaAgain].(again); ok {
		op.Middlewares = append(op.Middlewares, s.once(f))
	}
	if op.MaxBodyBytes == 0 {
		op.MaxBodyBytes = maxBody
	}
	op.BodyReadTimeout = 30 * time.Second
	op.Errors = append(op.Errors, http.StatusUnprocessableEntity)
	huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, actorOf(ctx), in)
		if err != nil {
			if op.Method != http.MethodGet && action != "" {
				s.attempted(ctx, err)
			}
			return nil, s.problem(ctx, err)
		}
		return out, nil
	})
}

// problem renders err for the caller and logs it, once: what the caller can mend at Info, what only we can at Error.
func (s *server) problem(ctx context.Context, err error) *problem {
	p := problemOf(ctx, err)
	level := slog.LevelInfo
	if p.Status >= http.StatusInternalServerError {
		level = slog.LevelError
	}
	s.Log.LogAttrs(
		ctx, level, "request refused", slog.String("request_id", requestID(ctx)), slog.String("kind", p.Kind),
		slog.Any("err", err),
	)
	return p
}

// abort writes a problem outside of huma's operations.
func (s *server) abort(g *gin.Context, err error) {
	p := problemOf(g.Request.Context(), err)
	for k, v := range p.GetHeaders() {
		g.Writer.Header()[k] = v
	}
	g.Header("Content-Type", p.ContentType(""))
	g.AbortWithStatusJSON(p.Status, p.Problem)
}

// authenticate lets a request through only with a good token.
func (s *server) authenticate(ctx huma.Context, next func(huma.Context)) {
	token := tokenOf(humagin.Unwrap(ctx).Request)
	actor, err := s.Auth.Authenticate(ctx.Context(), token)
	if err != nil {
		s.attempted(ctx.Context(), err)
		_ = s.problem(ctx.Context(), err) // for the log
		s.abort(humagin.Unwrap(ctx), err)
		return
	}
	n := note(ctx.Context())
	n.user, n.token = actor.User, token
	next(huma.WithValue(ctx, actorKey{}, actor))
}

// The kinds of objects that are no documents, or are more than their document.
const (
	kindPlan    = "Plan"
	kindCluster = string(model.KindCluster)
)

func bearerToken(header string) director.Secret {
	const scheme = "bearer "
	if len(header) > len(scheme) && equalFold(header[:len(scheme)], scheme) {
		return director.Secret(header[len(scheme):])
	}
	return ""
}

func equalFold(a, b string) bool {
	for i := range len(b) {
		c := a[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != b[i] {
			return false
		}
	}
	return true
}

type actorKey struct{}

func actorOf(ctx context.Context) director.Actor {
	a, _ := ctx.Value(actorKey{}).(director.Actor)
	return a
}

// recovery turns a panic into an internal problem, with the stack in the log.
func (s *server) recovery(g *gin.Context) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(v)
		}
		ctx := g.Request.Context()
		s.Log.ErrorContext(
			ctx, "handler panicked", "request_id", requestID(ctx), "panic", v, "stack", string(debug.Stack()),
		)
		if !g.Writer.Written() {
			s.abort(g, director.Errorf(director.KindInternal, "api.panic", "something went wrong inside the director").
				WithHint("look for the request id in the director's log"))
		}
	}()
	g.Next()
}

func goVersion() string { return runtime.Version() }
