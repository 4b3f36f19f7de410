package audit

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
)

// Attempt is something that was tried, and changed nothing in the database but perhaps a session.
type Attempt struct {
	Actor  string // "" for a stranger
	Action string
	Object string // Kind/name
	Detail string // of one that succeeded, without secrets; shown as its difference
	Err    error  // nil if it succeeded
}

// The bounds of attempts that did not succeed, in a minute: what goes beyond is counted. A stranger can cause at most
// strangerEach+1 entries for each of strangers networks, and the same for all other networks together.
const (
	strangers    = 16
	strangerEach = 3
	actors       = 256
	actorEach    = 30
	namesShown   = 5
)

// minute counts the attempts of a minute that did not succeed.
type minute struct {
	began     time.Time
	tallies   map[tallyKey]*tally
	strangers int
}

type tallyKey struct{ actor, network string }

type tally struct {
	recorded int
	more     int64
	objects  []string
	last     chain.Entry
}

// OutcomeOf returns what an error means to the trail.
func OutcomeOf(err error) (outcome, problem string) {
	if err == nil {
		return chain.OK, ""
	}
	switch kind := director.KindOf(err); kind {
	case director.KindForbidden, director.KindUnauthenticated, director.KindExhausted:
		return chain.Refused, string(kind)
	default:
		return chain.Failed, string(kind)
	}
}

// Attempt records the attempt, or counts it if there are too many.
func (s *Service) Attempt(ctx context.Context, a Attempt) error {
	ctx = context.WithoutCancel(ctx) // who hangs up is recorded, too
	origin := director.OriginOf(ctx)
	e := chain.Entry{
		At: s.now(), Actor: a.Actor, Action: a.Action, Object: Plain(a.Object), Source: origin.Address,
		Request: origin.Request,
	}
	e.Outcome, e.Problem = OutcomeOf(a.Err)
	if a.Err == nil {
		e.Diff = a.Detail
		return s.store.AddAudit(ctx, e)
	}
	if err := s.flush(ctx, false); err != nil {
		return err
	}
	if !s.count(e) {
		return nil
	}
	return s.store.AddAudit(ctx, e)
}

// count reports whether the attempt gets an entry of its own.
func (s *Service) count(e chain.Entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tallies == nil {
		s.minute = minute{began: s.now(), tallies: map[tallyKey]*tally{}}
	}
	key, each := tallyKey{actor: e.Actor}, actorEach
	if e.Actor == "" {
		key, each = tallyKey{network: network(e.Source)}, strangerEach
	}
	t := s.tallies[key]
	if t == nil {
		switch {
		case e.Actor == "" && s.strangers >= strangers, len(s.tallies) >= actors:
			key = tallyKey{network: "others"}
		case e.Actor == "":
			s.strangers++
		}
		if t = s.tallies[key]; t == nil {
			t = &tally{}
			s.tallies[key] = t
		}
	}
	if t.recorded < each {
		t.recorded++
		return true
	}
	t.more++
	if key.network == "others" {
		e.Source = "several"
	}
	t.last = e
	if len(t.objects) < namesShown && !slices.Contains(t.objects, e.Object) {
		t.objects = append(t.objects, e.Object)
	}
	return false
}

// flush writes the counts of a minute that is over, or of the present one if now is true.
func (s *Service) flush(ctx context.Context, now bool) error {
	s.mu.Lock()
	over := s.minute
	if over.tallies == nil || !now && s.now().Sub(over.began) < time.Minute {
		s.mu.Unlock()
		return nil
	}
	s.minute = minute{}
	s.mu.Unlock()
	var entries []chain.Entry
	for _, t := range over.tallies {
		if t.more == 0 {
			continue
		}
		e := t.last
		e.Action, e.Object, e.Count = "repeated: "+e.Action, strings.Join(t.objects, ", "), t.more
		e.Request = "several"
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return nil
	}
	slices.SortFunc(entries, func(a, b chain.Entry) int { return a.At.Compare(b.At) })
	return s.store.AddAudit(ctx, entries...)
}

// network is what counts as one place: an IPv4 address, or an IPv6 /64.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.Is4() {
		return address
	}
	p, err := ip.Prefix(64)
	if err != nil {
		return address
	}
	return p.String()
}

// Plain returns the text with a question mark for each character that could deceive who reads it. It is bounded.
func Plain(text string) string {
	const most = 128
	n := 0
	return strings.Map(func(r rune) rune {
		if n++; n > most {
			return -1
		}
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-@/ ", r) {
			return r
		}
		return '?'
	}, text)
}
