package wire

import (
	"time"

	"github.com/director-kaas/kaas/director"
)

// User is a user of the director.
type User struct {
	Name               string     `json:"name"`
	Role               string     `json:"role"`
	MustChangePassword bool       `json:"must_change_password" doc:"The user has a one-time password."`
	FullName           string     `json:"full_name,omitempty" doc:"As the directory has it."`
	Provider           string     `json:"provider,omitempty" doc:"IdentityProvider that keeps the user; absent for local users."`
	CheckedAt          *time.Time `json:"checked_at,omitempty" doc:"When the directory last confirmed the user."`
	Service            bool       `json:"service" doc:"A service account: it has no password, and API tokens alone."`
	DisabledAt         *time.Time `json:"disabled_at,omitempty" doc:"Since when the user may do nothing; absent for enabled users."`
	LoginAt            *time.Time `json:"login_at,omitempty" doc:"The last login."`
	PasswordAt         *time.Time `json:"password_at,omitempty" doc:"When the password was set."`
	CreatedAt          time.Time  `json:"created_at"`
}

// Users is a part of the list of users.
type Users struct {
	Items    []User `json:"items"`
	Continue string `json:"continue,omitempty" doc:"Where the list continues; absent at its end."`
}

// LoginProvider is an identity provider where people log in with a browser.
type LoginProvider struct {
	Name  string `json:"name"`
	Title string `json:"title" doc:"What to call it."`
	URL   string `json:"url" doc:"Where a browser begins. With next=PATH it continues there afterwards."`
}

// LoginProviders are the identity providers to choose from, in their order.
type LoginProviders struct {
	Items []LoginProvider `json:"items"`
}

// NewUser asks for a user.
type NewUser struct {
	Name    string `json:"name" minLength:"1" maxLength:"63" doc:"Lower-case letters, digits, dots, dashes and underscores."`
	Role    string `json:"role,omitempty" enum:"admin,operator,user,auditor,none" default:"user" doc:"What the user may do."`
	Service bool   `json:"service,omitempty" doc:"Create a service account for a program. It has no password."`
}

// NewToken asks for an API token.
type NewToken struct {
	Name     string `json:"name" minLength:"1" maxLength:"63" doc:"What the token is for. Lower-case letters, digits, dots, dashes and underscores."`
	Scope    string `json:"scope,omitempty" enum:"all,read,phases" default:"all" doc:"What the token can be used for: all that the user may do, reading, or phases of an outer plan."`
	Days     int    `json:"days,omitempty" minimum:"1" maximum:"366" default:"90" doc:"How long the token is good for."`
	Password string `json:"password,omitempty" maxLength:"256" doc:"Your own password, for a token of your own."`
}

// CreatedToken is a new API token.
type CreatedToken struct {
	Token  string   `json:"token" doc:"Bearer token. It is shown this once."`
	Record APIToken `json:"record"`
}

// APIToken is what is kept of an API token.
type APIToken struct {
	ID        string     `json:"id" doc:"Names the token. It is no secret."`
	Name      string     `json:"name"`
	Scope     string     `json:"scope" enum:"all,read,phases" doc:"What the token can be used for."`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	UsedAt    *time.Time `json:"used_at,omitempty" doc:"The last use, to five minutes; absent for never."`
	Address   string     `json:"address,omitempty" doc:"From where the token was created."`
}

// APITokens are the API tokens of a user.
type APITokens struct {
	Items []APIToken `json:"items"`
}

// APITokenOf converts an API token.
func APITokenOf(t director.Token) APIToken {
	return APIToken{
		ID: t.ID(), Name: t.Name, Scope: string(t.Scope), CreatedAt: t.Created.UTC(), ExpiresAt: t.Expires.UTC(),
		UsedAt: Optional(t.Used), Address: t.Address,
	}
}

// RoleChange gives a user another role.
type RoleChange struct {
	Role string `json:"role" enum:"admin,operator,user,auditor,none" doc:"What the user may do from now on."`
}

// OneTimePassword is a password that must be changed at the next login.
type OneTimePassword struct {
	User      User       `json:"user"`
	Password  string     `json:"password,omitempty" doc:"It is shown this once; absent for a service account."`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"Until when the user can log in with it."`
}

// LoginSession is a session of a user.
type LoginSession struct {
	ID        string     `json:"id" doc:"Names the session. It is no secret."`
	CreatedAt time.Time  `json:"created_at" doc:"When the user logged in."`
	ExpiresAt time.Time  `json:"expires_at" doc:"When it ends, for a browser's session without further use."`
	UsedAt    *time.Time `json:"used_at,omitempty" doc:"The last use, to five minutes."`
	Address   string     `json:"address,omitempty" doc:"From where the user logged in."`
	Kind      string     `json:"kind" enum:"login,browser" doc:"A program, or a browser."`
	Current   bool       `json:"current" doc:"It is the session that asks."`
}

// LoginSessions are the sessions of a user.
type LoginSessions struct {
	Items []LoginSession `json:"items"`
}

// UserOf converts a user.
func UserOf(u director.User) User {
	return User{
		Name: u.Name, Role: string(u.Role), Service: u.Service,
		FullName: u.FullName, Provider: u.Provider, CheckedAt: Optional(u.Checked), MustChangePassword: u.MustChange,
		DisabledAt: Optional(u.Disabled), LoginAt: Optional(u.LastLogin), PasswordAt: Optional(u.PasswordSet),
		CreatedAt: u.Created.UTC(),
	}
}

// LoginSessionsOf converts sessions; current is the hash of the token that asks.
func LoginSessionsOf(tokens []director.Token, current string) LoginSessions {
	out := LoginSessions{Items: make([]LoginSession, len(tokens))}
	for i, t := range tokens {
		out.Items[i] = LoginSession{
			ID: t.ID(), CreatedAt: t.Created.UTC(), ExpiresAt: t.Ends().UTC(), UsedAt: Optional(t.Used),
			Address: t.Address, Kind: string(t.Kind), Current: t.Hash == current,
		}
	}
	return out
}

// RescueSocket is the name of the Unix socket in the director's state directory, for root alone, and RescuePath what it
// answers.
const (
	RescueSocket = "admin.sock"
	RescuePath   = "/rescue"
)

// HandOverPath and TakeOverPath are what the socket answers, too: work on nothing any more, and write a bundle for the
// next director; and take the clusters from other copies of this director, and work.
const (
	HandOverPath = "/hand-over"
	TakeOverPath = "/take-over"
)

// HandOver asks for a bundle of a director that works on nothing any more.
type HandOver struct {
	Recipients []string `json:"recipients"` // public keys of age
}

// Rescue asks for a new one-time password for a user, on the director's machine.
type Rescue struct {
	User string `json:"user"`
}

// UserCode asks for the program that shows a code.
type UserCode struct {
	Code string `json:"code" minLength:"8" maxLength:"16" doc:"The code that the program shows."`
}

// Asking is a program that asks to be let in.
type Asking struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind" enum:"browser,device" doc:"It has opened a browser, or it has shown a code."`
	Host      string    `json:"host" doc:"Where it says that it runs."`
	Address   string    `json:"address" doc:"From where it has asked."`
	ExpiresAt time.Time `json:"expires_at" doc:"Until when it can be answered."`
}

// Answered is what becomes of a program that asked.
type Answered struct {
	Continue string `json:"continue,omitempty" doc:"Where the browser goes: to the program on its own machine."`
}
