package ldap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-ldap/ldap/v3"

	"github.com/director-kaas/kaas/director"
)

// Finding is what one stage of a test showed.
type Finding struct {
	Server string
	Stage  Stage
	Passed bool
	Msg    string
	Hint   string
	Took   time.Duration
}

// Test goes through the stages at every server and tells how each of them went, up to the first that fails. It looks
// name up if it is not empty, and looks at the mapped groups. It never needs the person's password.
func (d *Directory) Test(ctx context.Context, name string) []Finding {
	var out []Finding
	for _, server := range d.c.Servers {
		out = append(out, d.testServer(ctx, server, name)...)
	}
	return out
}

func (d *Directory) testServer(ctx context.Context, server, name string) []Finding {
	var out []Finding
	began := time.Now()
	note := func(f Finding) {
		f.Server, f.Took = server, time.Since(began)
		out, began = append(out, f), time.Now()
	}
	failed := func(err error) {
		f := Finding{Stage: StageSearch, Msg: err.Error()}
		if at, ok := errors.AsType[*stageError](err); ok {
			f.Stage, f.Msg, f.Hint = at.stage, at.err.Error(), at.hint
		}
		if e, ok := errors.AsType[*director.Error](err); ok {
			f.Msg, f.Hint = e.Msg, e.Hint
		}
		note(f)
	}
	s, err := open(ctx, &d.c, server, func(stage Stage) { note(Finding{Stage: stage, Passed: true}) })
	if err != nil {
		failed(err)
		return out
	}
	defer s.close()
	entry, msg, err := s.tryPerson(name)
	if err != nil {
		failed(err)
		return out
	}
	note(Finding{Stage: StageSearch, Passed: true, Msg: msg})
	if err := s.tryGroups(entry, note); err != nil {
		failed(err)
	}
	return out
}

// tryPerson looks the name up, or anybody if it is empty.
func (s *session) tryPerson(name string) (*ldap.Entry, string, error) {
	if name == "" {
		found, err := s.search(s.c.UserBase, ldap.ScopeWholeSubtree, 1, s.c.UserFilter, "1.1")
		if err == nil && len(found) == 0 {
			err = errors.New("userFilter finds no one below userBase")
		}
		if err != nil {
			return nil, "", &stageError{StageSearch, err, hintSearch(err, "userBase")}
		}
		return nil, "people are found below " + s.c.UserBase, nil
	}
	entry, err := s.person(name)
	if err == nil && entry == nil {
		err = &stageError{
			StageSearch, fmt.Errorf("there is no person with %s=%s below %s", s.c.UserName, name, s.c.UserBase),
			"check the name, userBase and userFilter",
		}
	}
	if err != nil {
		return nil, "", err
	}
	return entry, "found " + entry.DN, nil
}

// tryGroups looks whether the mapped groups are there, and which of them the person is in.
func (s *session) tryGroups(entry *ldap.Entry, note func(Finding)) error {
	var missing []string
	for _, g := range s.c.Groups {
		found, err := s.search(g, ldap.ScopeBaseObject, 1, s.c.GroupFilter, "1.1")
		if err != nil && !ldap.IsErrorWithCode(err, ldap.LDAPResultNoSuchObject) {
			return &stageError{StageGroups, err, hintSearch(err, "groups")}
		}
		if len(found) == 0 {
			missing = append(missing, g)
		}
	}
	if len(missing) > 0 {
		return &stageError{
			StageGroups, errors.New("the directory has no group " + strings.Join(missing, " or ")),
			"correct the names of the mapped groups",
		}
	}
	msg := fmt.Sprintf("all %d mapped groups are there", len(s.c.Groups))
	if entry != nil {
		groups, err := s.groups(entry)
		if err != nil {
			return err
		}
		msg = fmt.Sprintf("%s; the person is in %d of them", msg, len(groups))
		if len(groups) > 0 {
			msg += ": " + strings.Join(groups, "; ")
		}
	}
	note(Finding{Stage: StageGroups, Passed: true, Msg: msg})
	return nil
}
