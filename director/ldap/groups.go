package ldap

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-ldap/ldap/v3"
)

// Bounds of the search for groups of plain directories.
const (
	maxDepth   = 8      // groups in groups
	maxVisited = 20_000 // groups of one person
	batch      = 50     // members that one question asks about
)

// inChain is Active Directory's rule that follows groups in groups (LDAP_MATCHING_RULE_IN_CHAIN).
const inChain = ":1.2.840.113556.1.4.1941:"

// groups returns the mapped groups that the person belongs to, directly or through other groups.
func (s *session) groups(entry *ldap.Entry) ([]string, error) {
	if len(s.c.Groups) == 0 {
		return nil, nil
	}
	find := s.climb
	if s.c.Kind == ActiveDirectory {
		find = s.chain
	}
	groups, err := find(entry)
	slices.Sort(groups)
	return groups, err
}

// chain asks Active Directory about each mapped group by itself, which it answers from the group upwards: a person in
// thousands of groups costs no more. The primary group of a person is a member of nothing, so it is asked for as well.
func (s *session) chain(entry *ldap.Entry) ([]string, error) {
	members := "(" + s.c.Member + inChain + "=" + ldap.EscapeFilter(entry.DN) + ")"
	primary, err := s.primary(entry)
	if err != nil {
		return nil, err
	}
	if primary != "" {
		members = "(|" + members + "(" + s.c.Member + inChain + "=" + ldap.EscapeFilter(primary) + "))"
	}
	var out []string
	for _, group := range s.c.Groups {
		if primary != "" && same(group, primary) {
			out = append(out, group)
			continue
		}
		found, err := s.search(group, ldap.ScopeBaseObject, 1, members, "1.1")
		if ldap.IsErrorWithCode(err, ldap.LDAPResultNoSuchObject) {
			continue // a group that was deleted has no members
		}
		if err != nil {
			return nil, &stageError{StageGroups, err, hintSearch(err, "groups")}
		}
		if len(found) > 0 {
			out = append(out, group)
		}
	}
	return out, nil
}

// primary returns the DN of the person's primary group, or "": its SID is the person's with another last number.
func (s *session) primary(entry *ldap.Entry) (string, error) {
	sid := entry.GetEqualFoldRawAttributeValue("objectSid")
	id, err := strconv.ParseUint(entry.GetEqualFoldAttributeValue("primaryGroupID"), 10, 32)
	if err != nil || len(sid) < 12 {
		return "", nil //nolint:nilerr // a person without one
	}
	sid = slices.Clone(sid)
	binary.LittleEndian.PutUint32(sid[len(sid)-4:], uint32(id))
	found, err := s.search(
		s.c.GroupBase, ldap.ScopeWholeSubtree, 1, "(objectSid="+ldap.EscapeFilter(string(sid))+")", "1.1",
	)
	if err != nil {
		return "", &stageError{StageGroups, err, hintSearch(err, "groupBase")}
	}
	if len(found) == 0 {
		return "", nil
	}
	return found[0].DN, nil
}

// climb goes from the person up: the groups that have them as a member, the groups that have those, and so on. Each
// group is visited once, so groups that hold each other are no danger. It ends early when every mapped group is found.
func (s *session) climb(entry *ldap.Entry) ([]string, error) {
	mapped := map[string]string{} // by normal form
	for _, g := range s.c.Groups {
		mapped[normal(g)] = g
	}
	visited := map[string]bool{normal(entry.DN): true}
	level := []string{entry.DN}
	var out []string
	for depth := 0; depth < maxDepth && len(level) > 0 && len(out) < len(mapped); depth++ {
		var above []string
		for members := range slices.Chunk(level, batch) {
			found, err := s.search(s.c.GroupBase, ldap.ScopeWholeSubtree, 0, s.holds(members), "1.1")
			if err != nil {
				return nil, &stageError{StageGroups, err, hintSearch(err, "groupBase")}
			}
			for _, g := range found {
				key := normal(g.DN)
				if visited[key] {
					continue
				}
				visited[key] = true
				above = append(above, g.DN)
				if name, ok := mapped[key]; ok {
					out = append(out, name)
				}
			}
		}
		if len(visited) > maxVisited {
			return nil, &stageError{
				StageGroups, errors.New("the person is in more than " + strconv.Itoa(maxVisited) + " groups"),
				"narrow groupBase or groupFilter",
			}
		}
		level = above
	}
	return out, nil
}

// holds is the filter for groups with one of the members.
func (s *session) holds(members []string) string {
	var b strings.Builder
	b.WriteString("(&" + s.c.GroupFilter + "(|")
	for _, m := range members {
		b.WriteString("(" + s.c.Member + "=" + ldap.EscapeFilter(m) + ")")
	}
	b.WriteString("))")
	return b.String()
}

// normal is the form of a DN in which equal ones are equal strings.
func normal(dn string) string {
	parsed, err := ldap.ParseDN(dn)
	if err != nil {
		return strings.ToLower(dn)
	}
	return strings.ToLower(parsed.String())
}

func same(a, b string) bool { return normal(a) == normal(b) }
