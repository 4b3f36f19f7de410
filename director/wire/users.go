package wire

import (
	"time"

	"github.com/director-kaas/kaas/director"
)

// User is a user of the director.
type User struct {
	Name               string     `json:"name"`
	Role               string     `json:"role" doc:"admin, operator, user or auditor."`
	MustChangePassword bool       `json:"must_change_password" doc:"The user has a one-time password."`
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

// NewUser asks for a user.
type NewUser struct {
	Name string `json:"name" minLength:"1" maxLength:"63" doc:"Lower-case letters, digits, dots, dashes and underscores."`
	Role string `json:"role,omitempty" enum:"admin,operator,user,auditor" default:"user" doc:"What the user may do."`
}

// RoleChange gives a user another role.
type RoleChange struct {
	Role string `json:"role" enum:"admin,operator,user,auditor" doc:"What the user may do from now on."`
}

// OneTimePassword is a password that must be changed at the next login.
type OneTimePassword struct {
	User      User      `json:"user"`
	Password  string    `json:"password" doc:"It is shown this once."`
	ExpiresAt time.Time `json:"expires_at" doc:"Until when the user can log in with it."`
}

// LoginSession is a session of a user.
type LoginSession struct {
	ID        string     `json:"id" doc:"Names the session. It is no secret."`
	CreatedAt time.Time  `json:"created_at" doc:"When the user logged in."`
	ExpiresAt time.Time  `json:"expires_at"`
	UsedAt    *time.Time `json:"used_at,omitempty" doc:"The last use, to five minutes."`
	Address   string     `json:"address,omitempty" doc:"From where the user logged in."`
	Current   bool       `json:"current" doc:"It is the session that asks."`
}

// LoginSessions are the sessions of a user.
type LoginSessions struct {
	Items []LoginSession `json:"items"`
}

// UserOf converts a user.
func UserOf(u director.User) User {
	return User{
		Name: u.Name, Role: string(u.Role), MustChangePassword: u.MustChange, DisabledAt: Optional(u.Disabled),
		LoginAt: Optional(u.LastLogin), PasswordAt: Optional(u.PasswordSet), CreatedAt: u.Created.UTC(),
	}
}

// LoginSessionsOf converts sessions; current is the hash of the token that asks.
func LoginSessionsOf(tokens []director.Token, current string) LoginSessions {
	out := LoginSessions{Items: make([]LoginSession, len(tokens))}
	for i, t := range tokens {
		out.Items[i] = LoginSession{
			ID: t.ID(), CreatedAt: t.Created.UTC(), ExpiresAt: t.Expires.UTC(), UsedAt: Optional(t.Used),
			Address: t.Address, Current: t.Hash == current,
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

// Rescue asks for a new one-time password for a user, on the director's machine.
type Rescue struct {
	User string `json:"user"`
}
