package director

import "time"

// UserRole is what a user is to the director.
type UserRole string

// The roles of users.
const (
	RoleAdmin UserRole = "admin" // runs infrastructure and clusters
	// RoleOperator sees all but users, and makes, approves and runs plans, schedules and phases.
	RoleOperator UserRole = "operator"
	RoleUser     UserRole = "user"    // sees clusters and their plans
	RoleAuditor  UserRole = "auditor" // sees everything, users and their sessions too, and changes nothing
)

// UserRoles returns every role in a fixed order.
func UserRoles() []UserRole { return []UserRole{RoleAdmin, RoleOperator, RoleUser, RoleAuditor} }

// User is a local user.
type User struct {
	Name         string
	Role         UserRole
	PasswordHash string    // never leaves auth and store
	MustChange   bool      // until the password is changed, only that is allowed
	PasswordSet  time.Time // zero for passwords of older directors
	Disabled     time.Time // since when the user may do nothing; zero for enabled
	LastLogin    time.Time
	Created      time.Time
	Updated      time.Time
}

// UserEdit is a change of a user in one transaction. What is left in it is stored.
type UserEdit struct {
	User      User
	LastAdmin bool   // no other admin is enabled
	Delete    bool   // remove the user with all tokens
	EndTokens bool   // end the user's tokens
	Keep      string // hash of a token that EndTokens leaves; empty for none

	// Actor and Action are for the audit trail. Nothing is audited without an action.
	Actor, Action string
}

// Token is a bearer token as it is kept.
type Token struct {
	Hash    string // hex SHA-256 of the token; its identity
	User    string
	Created time.Time
	Expires time.Time
	Address string    // from where it was asked for
	Used    time.Time // roughly; zero for never
}

// ID names the token to people. It tells nothing about the token itself.
func (t Token) ID() string { return t.Hash[:min(len(t.Hash), 16)] }

// Actor is an authenticated user.
type Actor struct {
	User       string
	Role       UserRole
	MustChange bool      // the password must be changed first
	Expires    time.Time // of the token that was shown
	TokenHash  string    // of the token that was shown
}

// Action is what an actor wants to do.
type Action string

// The actions.
const (
	ActSelf       Action = "self"       // see oneself, log out, change the own password
	ActRead       Action = "read"       // see documents, clusters, plans, events and logs
	ActApply      Action = "apply"      // store documents, also as a dry run
	ActDelete     Action = "delete"     // remove documents
	ActPlan       Action = "plan"       // make plans
	ActRun        Action = "run"        // start, cancel, retry and discard plans
	ActKubeconfig Action = "kubeconfig" // mint an administrator's kubeconfig
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
		ActSelf, ActRead, ActApply, ActDelete, ActPlan, ActRun, ActKubeconfig, ActInventory, ActSecrets, ActLedger,
		ActCredentials, ActUsers,
	}
}

// Object is what an action is about. An empty field means all.
type Object struct {
	Kind string // Cluster, Plan, or another kind of document
	Name string
}
