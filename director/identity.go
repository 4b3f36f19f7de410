package director

import (
	"slices"
	"time"
)

// UserRole is what a user is to the director.
type UserRole string

// The roles of users.
const (
	RoleAdmin UserRole = "admin" // runs infrastructure and clusters
	// RoleOperator sees all but users, and makes, approves and runs plans, schedules and phases.
	RoleOperator UserRole = "operator"
	RoleUser     UserRole = "user"    // sees clusters and their plans
	RoleAuditor  UserRole = "auditor" // sees everything, users and their sessions too, and changes nothing
	RoleNone     UserRole = "none"    // may do what grants say, and nothing else
)

// UserRoles returns every role in a fixed order.
func UserRoles() []UserRole {
	return []UserRole{RoleAdmin, RoleOperator, RoleUser, RoleAuditor, RoleNone}
}

// User is a local user.
type User struct {
	Name         string
	UID          string // no other user ever has it, also not one of the same name; the store sets it
	Role         UserRole
	PasswordHash string    // never leaves auth and store
	MustChange   bool      // until the password is changed, only that is allowed
	PasswordSet  time.Time // zero for passwords of older directors
	Service      bool      // a program's account: it has no password, and API tokens alone
	Provider     string    // IdentityProvider that keeps the person; empty for local users
	Subject      string    // who the person is to an OpenID Connect provider, which never changes
	Groups       []string  // of the person, as spec.roles of the provider names them
	FullName     string    // as the provider has it
	Checked      time.Time // when the provider last confirmed the person
	Disabled     time.Time // since when the user may do nothing; zero for enabled
	LastLogin    time.Time
	Created      time.Time
	Updated      time.Time
}

// UserEdit is a change of a user in one transaction. What is left in it is stored.
type UserEdit struct {
	User      User
	LastAdmin bool     // no other admin is enabled and can log in
	Grants    []string // the Grants that name the user
	Delete    bool     // remove the user with all tokens
	EndTokens bool     // end the user's tokens
	Keep      string   // hash of a token that EndTokens leaves; empty for none
	KeepAPI   bool     // EndTokens leaves API tokens

	// Actor and Action are for the audit trail. Nothing is audited without an action.
	Actor, Action string
}

// Confirm notes what the user's identity provider says of the person now. A change of the role is audited.
func (e *UserEdit) Confirm(now User) {
	if e.User.Role != now.Role {
		e.Actor = "IdentityProvider/" + now.Provider
		e.Action = "change role from " + string(e.User.Role) + " to " + string(now.Role)
		e.User.Updated = now.Updated
	}
	if !slices.Equal(e.User.Groups, now.Groups) {
		e.User.Updated = now.Updated
	}
	e.User.Role, e.User.FullName, e.User.Checked = now.Role, now.FullName, now.Checked
	e.User.Groups, e.User.Subject = now.Groups, now.Subject
}

// TokenKind is who holds a token.
type TokenKind string

// The kinds of tokens.
const (
	TokenLogin   TokenKind = "login"   // a program that a person logged in with
	TokenBrowser TokenKind = "browser" // a browser, as a cookie
	TokenAPI     TokenKind = "api"     // a program that acts on its own
)

// TokenScope narrows what a token can be used for. It never adds to what the user may do.
type TokenScope string

// The scopes of tokens.
const (
	ScopeAll    TokenScope = "all"    // all that the user may do, except for the user's account with API tokens
	ScopeRead   TokenScope = "read"   // see what the user may see
	ScopePhases TokenScope = "phases" // ask for phases of an outer plan, and see them
)

// TokenScopes returns every scope in a fixed order.
func TokenScopes() []TokenScope { return []TokenScope{ScopeAll, ScopeRead, ScopePhases} }

// Token is a bearer token as it is kept.
type Token struct {
	Hash    string // hex SHA-256 of the token; its identity
	User    string
	Kind    TokenKind
	Name    string // of an API token; unique for the user
	Scope   TokenScope
	Created time.Time
	Expires time.Time     // the latest end
	Idle    time.Duration // the token ends so long after its last use; 0 for never
	Address string        // from where it was asked for
	Used    time.Time     // roughly; zero for never
	Entered time.Time     // when the person proved who they are; zero for when it was created
}

// ID names the token to people. It tells nothing about the token itself.
func (t Token) ID() string { return t.Hash[:min(len(t.Hash), 16)] }

// Ends returns when the token ends if it is not used again.
func (t Token) Ends() time.Time {
	if t.Idle == 0 {
		return t.Expires
	}
	last := t.Created
	if t.Used.After(last) {
		last = t.Used
	}
	if idle := last.Add(t.Idle); idle.Before(t.Expires) {
		return idle
	}
	return t.Expires
}

// Actor is an authenticated user.
type Actor struct {
	User       string
	Role       UserRole
	Kind       TokenKind // of the token that was shown
	Scope      TokenScope
	MustChange bool      // the password must be changed first
	Expires    time.Time // of the token that was shown
	TokenHash  string    // of the token that was shown
	Grants     []Granted // what the role does not give
}

// Granted is a role that a Grant gives, and where: in a project, on a cluster, or on the whole director with neither.
type Granted struct {
	Role             UserRole
	Project, Cluster string
}

// Visible is a part of the clusters and what belongs to them: the clusters of these projects, and these clusters.
type Visible struct{ Projects, Clusters []string }

// Action is what an actor wants to do.
type Action string

// The actions.
const (
	ActSelf       Action = "self"       // see oneself, end the token that is shown
	ActAccount    Action = "account"    // change the own password, manage the own sessions and tokens
	ActRead       Action = "read"       // see documents, clusters, plans, events and logs
	ActApply      Action = "apply"      // store documents, also as a dry run
	ActDelete     Action = "delete"     // remove documents
	ActPlan       Action = "plan"       // make plans
	ActRun        Action = "run"        // start, cancel, retry and discard plans
	ActKubeconfig Action = "kubeconfig" // mint an administrator's kubeconfig
	ActToken      Action = "token"      // get a token for the API of a cluster, as oneself
	ActInventory  Action = "inventory"  // see what playbooks are given
	ActSecrets    Action = "secrets"    // see the secrets that playbooks are given
	ActLedger     Action = "ledger"     // adopt and reclaim VMs
	// ActCredentials is to set and delete the credentials of providers.
	ActCredentials Action = "credentials"
	ActUsers       Action = "users" // create, change and delete users, and end their sessions
)

// Actions returns every action in a fixed order.
func Actions() []Action {
	return []Action{
		ActSelf, ActAccount, ActRead, ActApply, ActDelete, ActPlan, ActRun, ActKubeconfig, ActToken, ActInventory,
		ActSecrets, ActLedger, ActCredentials, ActUsers,
	}
}

// Object is what an action is about. An empty name means all.
type Object struct {
	Kind string // Cluster, Plan, or another kind of document
	Name string

	// Cluster and Project are to what a cluster or a plan belongs; both are empty as long as no one has looked.
	Cluster, Project string
}
