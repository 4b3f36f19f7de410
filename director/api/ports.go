package api

import (
	"context"
	"io"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/audit"
	"github.com/director-kaas/kaas/director/chain"
	"github.com/director-kaas/kaas/director/clusters"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/issuer"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/ldap"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/nodes"
	"github.com/director-kaas/kaas/director/people"
	"github.com/director-kaas/kaas/director/phases"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
)

// Ports are what the API offers except for authentication, by resource. Each must be set. All methods return
// *director.Error and are safe for concurrent use. actor is the name of the user who asks, for the audit trail. Lists
// return at most Page.Limit items and the place to continue from, which is nil at the end; what is empty in a query
// does not narrow them, and an order that a list does not know is invalid.
type Ports struct {
	Documents     Documents
	Drafts        Drafts
	Previews      Previews
	Clusters      Clusters
	Fleet         Fleet
	Waits         Waits
	Logs          Logs
	Nodes         Nodes
	Shells        Shells
	Planning      Planning
	Archives      Archives
	Journal       Journal
	Phases        Phases
	Access        Access
	Scopes        Scopes
	Schedules     Schedules
	Campaigns     Campaigns
	Hooks         Hooks
	Notifications Notifications
	Images        Images
	Releases      Releases
	Mirrors       Mirrors
	Stock         Stock
	Ledger        Ledger
	Disks         Disks
	Backups       Backups
	Certificates  Certificates
	Providers     Providers
	Capacity      Capacity
	Users         Users
	Trail         Trail
	People        People
	Issuer        Issuer
	Consuls       Consuls
	Appliance     Appliance
	Authorities   Authorities
	OwnAuthority  OwnAuthority
	Directors     Directors
}

// Issuer is what the API offers of the director as the issuer of tokens.
type Issuer interface {
	// Documents returns the discovery document and the key set.
	Documents(ctx context.Context) (discovery, jwks []byte, err error)
	// ClusterToken returns a token for the API of a cluster; not_found for one that the actor may not see.
	ClusterToken(ctx context.Context, a director.Actor, cluster string) (issuer.Token, error)
	// Site is the director's address for browsers.
	Site() string
	// BeginBrowser keeps a program that has opened a browser, and returns its id.
	BeginBrowser(ctx context.Context, b issuer.BrowserRequest) (id string, err error)
	// BeginDevice keeps a program that polls.
	BeginDevice(ctx context.Context, host, address string) (issuer.Device, error)
	// Asking returns the program of the id, and AskingWith the one that shows the code; not_found if none waits.
	Asking(ctx context.Context, id string) (issuer.Asking, error)
	AskingWith(ctx context.Context, userCode string) (issuer.Asking, error)
	// Answer lets the program in as the actor or refuses it, once, and returns where the browser continues.
	Answer(ctx context.Context, a director.Actor, id string, allow bool) (p issuer.Asking, back string, err error)
	// Redeem returns who has let in the program that has opened a browser; Poll is for one that polls.
	Redeem(ctx context.Context, code, verifier, redirect string) (issuer.Allowed, error)
	Poll(ctx context.Context, code string) (issuer.Allowed, error)
}

// Scopes tells what clusters and plans belong to. Errors: not_found.
type Scopes interface {
	ClusterScope(ctx context.Context, name string) (director.Object, error)
	PlanScope(ctx context.Context, id string) (director.Object, error)
}

// People is what the API offers of directories with people.
type People interface {
	// Test goes through all stages of asking the directory and says how each went, also for one person.
	Test(ctx context.Context, provider, name string) ([]ldap.Finding, error)
	// Choices returns the providers where people log in with a browser, in their order.
	Choices(ctx context.Context) ([]people.Choice, error)
	// Begin returns where a browser goes to log in, and what it has to show when it comes back.
	Begin(ctx context.Context, provider, next string) (to string, keep director.Secret, err error)
	// Finish returns who comes back with a browser, once.
	Finish(ctx context.Context, kept director.Secret, a people.Answer) (people.Arrival, error)
}

// Trail is what the API offers of the audit trail.
type Trail interface {
	// List lists entries; the order is by id.
	List(ctx context.Context, q audit.Query, p director.Page) ([]chain.Entry, *director.Place, error)
	// Verify reads the whole trail that is in the database; exhausted while another verification runs.
	Verify(ctx context.Context) (chain.Result, error)
	// Key returns what verifies the trail without the director.
	Key() chain.Key
	// Export returns a function that writes the entries of the time, one a line, and a checkpoint at their end.
	Export(
		ctx context.Context, actor string, from, until time.Time,
	) (write func(ctx context.Context, w io.Writer) error, err error)
}

// Users is what the API offers of users and their sessions.
type Users interface {
	// List lists users whose names begin with the prefix; the usual order is by name.
	List(ctx context.Context, prefix string, p director.Page) ([]director.User, *director.Place, error)
	// Get returns one user, or not_found.
	Get(ctx context.Context, name string) (director.User, error)
	// Create makes a user with a one-time password; conflict if there is one of the name.
	Create(ctx context.Context, actor, name string, role director.UserRole) (director.User, identity.OneTime, error)
	// CreateService makes a service account, which has no password; conflict if there is a user of the name.
	CreateService(ctx context.Context, actor, name string, role director.UserRole) (director.User, error)
	// Reset gives a user a new one-time password and ends all sessions.
	Reset(ctx context.Context, actor, name string) (director.User, identity.OneTime, error)
	// Disable ends all sessions and refuses new ones; conflict for the last admin.
	Disable(ctx context.Context, actor, name string) (director.User, error)
	// Enable lets the user log in again.
	Enable(ctx context.Context, actor, name string) (director.User, error)
	// SetRole gives the user another role; conflict for the last admin.
	SetRole(ctx context.Context, actor, name string, role director.UserRole) (director.User, error)
	// Delete removes the user with all sessions; conflict for the last admin.
	Delete(ctx context.Context, actor, name string) error
	// Sessions lists the sessions of the user that have not ended.
	Sessions(ctx context.Context, name string) ([]director.Token, error)
	// Revoke ends one session of the user, or is not_found.
	Revoke(ctx context.Context, actor, name, id string) error
	// CreateToken makes an API token and returns it this once: the actor's own one, or one of a service account.
	CreateToken(
		ctx context.Context, actor director.Actor, user string, n identity.NewToken,
	) (director.Secret, director.Token, error)
	// Tokens lists the API tokens of the user that have not ended.
	Tokens(ctx context.Context, name string) ([]director.Token, error)
	// RevokeToken ends one API token of the user, or is not_found.
	RevokeToken(ctx context.Context, actor, name, id string) error
}

// Documents is what the API offers of documents.
type Documents interface {
	// ListDocuments lists documents of one kind; the usual order is by name.
	ListDocuments(ctx context.Context, q documents.Query) ([]model.Stored, *director.Place, error)
	// Document returns one stored document, or not_found.
	Document(ctx context.Context, ref model.Ref) (model.Stored, error)
	// ApplyIf stores the documents in text (YAML stream or JSON), all or none. dryRun reports what it would do. A
	// condition is for a single document: it is stored if it fulfils it at that moment, and stale otherwise.
	ApplyIf(
		ctx context.Context, by documents.Author, text []byte, source string, dryRun bool, c documents.Condition,
	) ([]model.Change, error)
	// DeleteDocumentIf removes a document that nothing uses if it fulfils the condition at that moment, and stale
	// otherwise; conflict names what uses it. A Cluster that has machines is refused with the hint to plan its
	// deletion.
	DeleteDocumentIf(ctx context.Context, actor string, ref model.Ref, c documents.Condition) error
}

// Clusters is what the API offers of clusters as the database has them.
type Clusters interface {
	// ListClusters lists clusters in one of clusters.Orders.
	ListClusters(ctx context.Context, q clusters.Query) ([]clusters.View, *director.Place, error)
	// CountedClusters is ListClusters and CountClusters in one.
	CountedClusters(ctx context.Context, q clusters.Query) ([]clusters.View, *director.Place, clusters.Facets, error)
	// CountClusters counts the clusters that the query leaves, on all pages.
	CountClusters(ctx context.Context, q clusters.Query) (clusters.Facets, error)
	// ClusterView is the state of one cluster, or not_found.
	ClusterView(ctx context.Context, name string) (clusters.View, error)
}

// Nodes is what the API offers of the nodes of clusters.
type Nodes interface {
	// Nodes returns the nodes of the cluster as its API, its ledger and its hypervisor show them.
	Nodes(ctx context.Context, cluster string) (nodes.View, error)
	// Rehearse tells what a drain of the node would move away, and what would block it. Nothing is changed.
	Rehearse(ctx context.Context, cluster, node string, may kube.DrainLimits) ([]kube.Eviction, error)
	// RehearseDrains does so for the drains of the plan that have not ended.
	RehearseDrains(ctx context.Context, plan string) (nodes.Drains, error)
	// Console returns at most so many bytes of the end of what the node's VM has printed on its serial console.
	Console(ctx context.Context, cluster, node string, most int) (string, error)
}

// Planning is what the API offers of making plans and moving them.
type Planning interface {
	// MakePlan freezes a plan for the cluster; without an operation the director chooses what brings it to its model. A
	// plan without steps means that nothing is to be done.
	MakePlan(ctx context.Context, actor, cluster string, r plan.Request) (plan.View, error)
	// PlanAgain makes a plan that was not started again from what it was asked for; conflict for any other.
	PlanAgain(ctx context.Context, actor, id string) (plan.View, error)
	// StartPlan starts a planned plan if hash is its hash and the world has not moved; conflict says what has.
	StartPlan(ctx context.Context, actor, id, hash string) (plan.View, error)
	// MovePlan does to a plan that exists what the verb says; conflict if the plan does not allow it now.
	MovePlan(ctx context.Context, actor, id string, m planning.Move) (plan.View, error)
	// Check returns everything that a plan for the request would be refused for. Nothing is stored.
	Check(ctx context.Context, cluster string, r plan.Request) (planning.CheckView, error)
}

// Archives is what the API offers of all that is known of a plan, for support.
type Archives interface {
	// Archive returns a function that writes all that is known of a plan, without secrets, as a tar.gz.
	Archive(ctx context.Context, actor, id string) (func(io.Writer) error, error)
}

// Journal is what the API offers of plans and of what happens: their states, events and logs, and the stream of the
// whole director.
type Journal interface {
	// ListPlans lists plans; the usual order is the newest first.
	ListPlans(ctx context.Context, q journal.Query) ([]plan.Item, *director.Place, error)
	// Plan returns one plan with its state.
	Plan(ctx context.Context, id string) (plan.View, error)
	// Progress returns the status of the plan and the number of its last event, which costs little for a plan of any
	// size.
	Progress(ctx context.Context, id string) (plan.Status, int64, error)
	// Events returns the events of a plan with Seq > after, waiting up to wait for the first one if there is none yet.
	Events(ctx context.Context, id string, after int64, wait time.Duration) ([]plan.Event, error)
	// SearchEvents returns the events of a plan that fit, in order, and the number up to which the journal was looked
	// through.
	SearchEvents(ctx context.Context, id string, q journal.EventQuery) ([]plan.Event, int64, error)
	// StepLog opens the log of a step's attempt (0: the latest) from a byte offset: JSON lines. It ends where the file
	// ends now.
	StepLog(ctx context.Context, id, step string, attempt int, offset int64) (io.ReadCloser, error)
	// Stream returns the part of the director's stream that the query asks for, waiting up to wait if there is nothing
	// yet.
	Stream(ctx context.Context, q director.StreamQuery, wait time.Duration) (director.StreamPage, error)
}

// Phases is what the API offers an outer orchestrator.
type Phases interface {
	// AskPhase takes a task of an outer plan under the caller's id, once: the same id with the same request returns the
	// same task, moved on as far as it goes now; with another request it is a conflict. A task that cannot
	// begin is a conflict too, and is not kept.
	AskPhase(ctx context.Context, actor, id string, r director.PhaseRequest) (phases.View, error)
	// Phase returns the task, moved on as far as it goes now, or not_found.
	Phase(ctx context.Context, id string) (phases.View, error)
}

// Access is what the API hands out for work on a cluster outside of the director.
type Access interface {
	// UserKubeconfig returns the kubeconfig for everyone, which holds no secret.
	UserKubeconfig(ctx context.Context, cluster string) ([]byte, error)
	// BreakGlass mints a kubeconfig that the cluster accepts whatever its RBAC says.
	BreakGlass(ctx context.Context, actor, cluster string, ttl time.Duration) ([]byte, error)
	// RevokeKubeconfigs ends all that Kubeconfig has minted for the cluster.
	RevokeKubeconfigs(ctx context.Context, actor, cluster string) error
	// Kubeconfig mints a kubeconfig for an administrator, with a client certificate of its own.
	Kubeconfig(ctx context.Context, actor, cluster string, ttl time.Duration) ([]byte, error)
	// Inventory renders what a run would get, without secrets: path -> content.
	Inventory(ctx context.Context, cluster string) (map[string][]byte, error)
	// ExportInventory is Inventory with the cluster's secrets and an SSH key with a certificate that is good for that
	// long; zero lets the director choose.
	ExportInventory(ctx context.Context, actor, cluster string, life time.Duration) (map[string][]byte, error)
}
