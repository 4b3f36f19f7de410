package ldap

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-ldap/ldap/v3"

	"github.com/director-kaas/kaas/director"
)

// Person is what a directory says of one.
type Person struct {
	DN       string
	Name     string // that they log in with, as the directory writes it
	FullName string
	Mail     string
	Groups   []string // the mapped ones, as the configuration writes them, sorted
	Disabled bool     // the directory lets them log in no more
}

// Directory asks the servers of one directory. It is safe for concurrent use and keeps no connection.
type Directory struct {
	c Config

	mu   sync.Mutex
	down map[string]time.Time // servers that did not answer, and when
}

// New returns a directory. Errors: invalid with every wrong field. It does not connect.
func New(c Config) (*Directory, error) {
	if err := director.Invalid("ldap.new", "the directory's configuration has problems", c.Check()); err != nil {
		return nil, err
	}
	return &Directory{c: c.filled(), down: map[string]time.Time{}}, nil
}

// ErrNoPerson is in the error of a login whose name the directory does not have. It is not for the one who logs in.
var ErrNoPerson = errors.New("there is no such person")

// Login returns the person whose name and password these are. Errors: unauthenticated for a wrong name or password or a
// disabled account, with the same message for all of them; unavailable if no server answers.
func (d *Directory) Login(ctx context.Context, name string, password director.Secret) (Person, error) {
	// A bind with an empty password succeeds without any check (RFC 4513, section 5.1.2).
	if password.Reveal() == "" || !plausible(name) {
		return Person{}, wrong(errors.New("an empty password, or a name that no one can have"))
	}
	return d.with(ctx, func(s *session) (Person, error) {
		entry, err := s.person(name)
		if err != nil {
			return Person{}, err
		}
		if entry == nil {
			// One more bind, so that the answer takes as long as for a wrong password.
			_ = s.conn.Bind("cn="+random()+","+s.c.UserBase, password.Reveal())
			return Person{}, wrong(ErrNoPerson)
		}
		if err := s.conn.Bind(entry.DN, password.Reveal()); err != nil {
			if ldap.IsErrorAnyOf(err, ldap.LDAPResultInvalidCredentials, ldap.LDAPResultInappropriateAuthentication,
				ldap.LDAPResultUnwillingToPerform, ldap.LDAPResultConstraintViolation) {
				return Person{}, wrong(err)
			}
			return Person{}, &stageError{StageBind, err, "see the log of the directory"}
		}
		if err := s.conn.Bind(s.c.BindDN, s.c.Password.Reveal()); err != nil {
			return Person{}, &stageError{StageBind, err, hintBind(err)}
		}
		p, err := s.describe(entry)
		if err == nil && p.Disabled {
			return Person{}, wrong(errors.New("the account is disabled in the directory"))
		}
		return p, err
	})
}

// Lookup returns the person of that name as the directory has them now. Errors: not_found, unavailable.
func (d *Directory) Lookup(ctx context.Context, name string) (Person, error) {
	none := director.Errorf(director.KindNotFound, "ldap.lookup", "the directory has no person %q", name)
	if !plausible(name) {
		return Person{}, none
	}
	return d.with(ctx, func(s *session) (Person, error) {
		entry, err := s.person(name)
		if err != nil {
			return Person{}, err
		}
		if entry == nil {
			return Person{}, none
		}
		return s.describe(entry)
	})
}

// wrong is the one answer to a failed login. why is for the log alone.
func wrong(why error) error {
	return &director.Error{
		Kind: director.KindUnauthenticated, Op: "ldap.login", Msg: "the user name or the password is wrong",
		Hint: "try again, or ask the administrator of the directory", Err: why,
	}
}

// plausible reports whether a person may have the name: it is neither empty nor endless and has no control characters.
func plausible(name string) bool {
	return name != "" && len(name) <= maxName && strings.TrimSpace(name) == name &&
		!strings.ContainsFunc(name, unicode.IsControl)
}

func random() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// rest is how long a server that did not answer is asked last.
const rest = 30 * time.Second

// order returns the servers, and last those that did not answer in the last half minute.
func (d *Directory) order() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.c.Now()
	servers := slices.Clone(d.c.Servers)
	slices.SortStableFunc(servers, func(a, b string) int {
		return boolToInt(now.Sub(d.down[a]) < rest) - boolToInt(now.Sub(d.down[b]) < rest)
	})
	return servers
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (d *Directory) mark(server string, answered bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if answered {
		delete(d.down, server)
	} else {
		d.down[server] = d.c.Now()
	}
}

// with asks the first server that answers. A server that breaks off in the middle counts as one that does not answer:
// no question changes anything, so the next server may be asked it again.
func (d *Directory) with(ctx context.Context, ask func(*session) (Person, error)) (Person, error) {
	var problems []error
	hint := ""
	for _, server := range d.order() {
		s, err := open(ctx, &d.c, server, func(Stage) {})
		if err == nil {
			var p Person
			p, err = ask(s)
			s.close()
			if _, ours := errors.AsType[*director.Error](err); err == nil || ours {
				d.mark(server, true)
				return p, err
			}
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		d.mark(server, false)
		problems = append(problems, errors.New(server+": "+err.Error()))
		if at, ok := errors.AsType[*stageError](err); ok && hint == "" {
			hint = at.hint
		}
	}
	return Person{}, &director.Error{
		Kind: director.KindUnavailable, Op: "ldap", Msg: "the directory does not answer", Hint: hint,
		Err: errors.Join(problems...),
	}
}

// person returns the entry of the person who logs in with that name, or nil. It is an error if there are several: the
// directory then does not tell whose password it would check.
func (s *session) person(name string) (*ldap.Entry, error) {
	filter := "(&" + s.c.UserFilter + "(" + s.c.UserName + "=" + ldap.EscapeFilter(name) + "))"
	attributes := []string{s.c.UserName, s.c.FullName, s.c.Mail}
	if s.c.Kind == ActiveDirectory {
		attributes = append(attributes, "userAccountControl", "accountExpires", "objectSid", "primaryGroupID")
	} else {
		attributes = append(attributes, "nsAccountLock", "pwdAccountLockedTime", "loginDisabled")
	}
	found, err := s.search(s.c.UserBase, ldap.ScopeWholeSubtree, 2, filter, attributes...)
	switch {
	case err != nil:
		return nil, &stageError{StageSearch, err, hintSearch(err, "userBase")}
	case len(found) == 0:
		return nil, nil //nolint:nilnil // absent is no error here
	case len(found) > 1:
		return nil, director.Errorf(
			director.KindConflict, "ldap.person", "the directory has several people with the name %q", name,
		).WithHint("narrow userBase or userFilter, so that each name is one person's")
	}
	return found[0], nil
}

func hintSearch(err error, field string) string {
	switch {
	case ldap.IsErrorWithCode(err, ldap.LDAPResultNoSuchObject):
		return "the directory has no such place: check " + field
	case ldap.IsErrorWithCode(err, ldap.LDAPResultInsufficientAccessRights):
		return "let the account of the credentials read below " + field
	case ldap.IsErrorAnyOf(err, ldap.LDAPResultSizeLimitExceeded, ldap.LDAPResultAdminLimitExceeded):
		return "raise the size limit of the account of the credentials in the directory"
	}
	return "see the log of the directory"
}

func (s *session) describe(entry *ldap.Entry) (Person, error) {
	p := Person{
		DN: entry.DN, Name: entry.GetEqualFoldAttributeValue(s.c.UserName),
		FullName: entry.GetEqualFoldAttributeValue(s.c.FullName), Mail: entry.GetEqualFoldAttributeValue(s.c.Mail),
		Disabled: disabled(s.c.Kind, entry, s.c.Now()),
	}
	var err error
	p.Groups, err = s.groups(entry)
	return p, err
}

// disabled reports whether the directory lets the person log in no more: AD's flag 0x2 and date of expiry, the locks of
// OpenLDAP's password policy, 389 Directory Server and eDirectory. A lock that passes by itself is none.
func disabled(kind Kind, entry *ldap.Entry, now time.Time) bool {
	if kind == ActiveDirectory {
		flags, _ := strconv.ParseInt(entry.GetEqualFoldAttributeValue("userAccountControl"), 10, 64)
		return flags&2 != 0 || expired(entry.GetEqualFoldAttributeValue("accountExpires"), now)
	}
	return strings.EqualFold(entry.GetEqualFoldAttributeValue("nsAccountLock"), "true") ||
		strings.EqualFold(entry.GetEqualFoldAttributeValue("loginDisabled"), "true") ||
		entry.GetEqualFoldAttributeValue("pwdAccountLockedTime") == "000001010000Z"
}

// expired reads a date of Active Directory: steps of 100 ns since 1601. 0 and the largest number are never.
func expired(text string, now time.Time) bool {
	const unix1601 = 11644473600 // seconds from 1601 to 1970
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n == 0 || n == 1<<63-1 {
		return false
	}
	return now.Unix() >= n/10_000_000-unix1601
}
