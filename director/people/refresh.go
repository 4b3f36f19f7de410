package people

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ldap"
	"github.com/director-kaas/kaas/director/model"
)

// Refresh asks the directories about everyone who has a token and whom they have not confirmed for the time of their
// document. It gives people the role of today, and ends all tokens of people who are gone, disabled or in no group that
// has a role. It ends those of a provider whose document is gone, too. Several directors may run it at once: who was
// asked about by one is not due for the others. A directory that does not answer changes nothing.
func (s *Service) Refresh(ctx context.Context) error {
	docs, err := s.providers(ctx, "")
	if err != nil {
		return err
	}
	var problems []error
	var known []string
	for _, doc := range docs {
		known = append(known, doc.Metadata.Name)
		problems = append(problems, s.refresh(ctx, doc))
	}
	now := s.Now()
	all, err := s.Store.PeopleProviders(ctx, now)
	problems = append(problems, err)
	for _, name := range all {
		if slices.Contains(known, name) {
			continue
		}
		users, err := s.Store.PeopleToCheck(ctx, name, now.Add(time.Second), now)
		problems = append(problems, err)
		for _, u := range users {
			problems = append(problems, s.end(ctx, u, "IdentityProvider/"+name+" is gone"))
		}
	}
	return errors.Join(problems...)
}

func (s *Service) refresh(ctx context.Context, doc model.Stored) error {
	now := s.Now()
	users, err := s.Store.PeopleToCheck(
		ctx, doc.Metadata.Name, now.Add(-time.Duration(doc.IdentityProvider.Refresh)), now,
	)
	if err != nil || len(users) == 0 {
		return err
	}
	if doc.IdentityProvider.Type == model.IdentityOIDC {
		for _, u := range users {
			if err := s.again(ctx, doc, u); err != nil {
				return err
			}
		}
		return nil
	}
	d, err := s.directory(ctx, doc)
	if err != nil {
		return err
	}
	for _, u := range users {
		if err := s.confirm(ctx, doc, d, u); err != nil {
			return err // the directory does not answer: it would not answer about the others
		}
	}
	return nil
}

// confirm asks about one user.
func (s *Service) confirm(ctx context.Context, doc model.Stored, d *ldap.Directory, u director.User) error {
	p, err := d.Lookup(ctx, u.Name)
	switch {
	case director.KindOf(err) == director.KindNotFound:
		return s.end(ctx, u, "the directory has the person no more")
	case err != nil:
		return err
	case p.Disabled:
		return s.end(ctx, u, "the account is disabled in the directory")
	}
	now, err := s.user(doc, p)
	if err != nil || now.Name != u.Name {
		return s.end(ctx, u, "no group of the person has a role")
	}
	return s.Store.EditUser(ctx, u.Name, func(e *director.UserEdit) error {
		if e.User.Provider != u.Provider {
			return nil
		}
		e.Confirm(now)
		return nil
	})
}

// end ends all tokens of a user. The user stays, and can log in when the directory allows it again.
func (s *Service) end(ctx context.Context, u director.User, why string) error {
	err := s.Store.EditUser(ctx, u.Name, func(e *director.UserEdit) error {
		if e.User.Provider != u.Provider {
			return nil
		}
		e.EndTokens, e.Actor, e.Action = true, "IdentityProvider/"+u.Provider, "end all sessions and tokens: "+why
		e.User.Updated = s.Now().UTC()
		return nil
	})
	if director.KindOf(err) == director.KindNotFound {
		return nil
	}
	if err == nil {
		s.Log.InfoContext(
			ctx, "a directory does not confirm a user", "user", u.Name, "provider", u.Provider, "why", why,
		)
	}
	return err
}

// Test goes through all stages of asking the provider's directory and says how each went. With a name, it looks the
// person up and says which role they would have.
func (s *Service) Test(ctx context.Context, provider, name string) ([]ldap.Finding, error) {
	doc, err := s.Store.Document(ctx, model.Ref{Kind: model.KindIdentityProvider, Name: provider})
	if err != nil {
		return nil, err
	}
	if doc.IdentityProvider.Type == model.IdentityOIDC {
		return s.testOIDC(ctx, provider, name)
	}
	d, err := s.directory(ctx, doc)
	if err != nil {
		return nil, err
	}
	out := d.Test(ctx, name)
	failed := slices.ContainsFunc(out, func(f ldap.Finding) bool { return !f.Passed })
	if name == "" || failed {
		return out, nil
	}
	f := ldap.Finding{Stage: StageRole, Passed: true}
	p, err := d.Lookup(ctx, name)
	if err == nil && p.Disabled {
		err = director.Errorf(director.KindUnauthenticated, "people.test", "the account is disabled in the directory").
			WithHint("enable it there")
	}
	var u director.User
	if err == nil {
		u, err = s.user(doc, p)
	}
	if err != nil {
		f.Passed, f.Msg, f.Hint = false, director.MessageOf(err), director.HintOf(err)
	} else {
		f.Msg = u.Name + " would have the role " + string(u.Role)
	}
	return append(out, f), nil
}

// StageRole is the last stage of a test: from groups to a role.
const StageRole ldap.Stage = "role"
