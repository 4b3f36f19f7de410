package api

import (
	"hash/maphash"
	"math"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/director-kaas/kaas/director"
)

// loginLimit slows down the guessing of passwords: by user and network, by network alone, and by user over all
// networks. A network is an IPv4 address or an IPv6 /64, which one machine has as a whole. It looks before it adds, so
// who is refused costs no memory and displaces no entry. The failures of who succeeds at last are forgotten; the
// network continues to count, or one own account would let all others in.
//
// No user is locked out: a network from which a user has logged in does not suffer from what others try on the user,
// and from elsewhere a try is at most userLongest away.
type loginLimit struct {
	now  func() time.Time
	seed maphash.Seed // names are kept as hashes: a caller chooses how long they are

	mu       sync.Mutex
	pairs    *simplelru.LRU[uint64, *rate.Limiter]
	networks *simplelru.LRU[uint64, *rate.Limiter]
	familiar *simplelru.LRU[uint64, struct{}] // pairs of user and network that have succeeded
	users    backOff
}

const (
	pairBurst    = 5                // guesses for one user from one network
	pairEvery    = 10 * time.Second // and one more in each
	networkBurst = 60               // logins from one network over all users
	networkEvery = time.Second
	maxSeen      = 10000 // entries of each table; the one that was used the longest ago goes first

	userFree    = 20 // guesses for one user from anywhere
	userForgets = time.Minute
	userLongest = 30 * time.Second
)

func newLoginLimit(now func() time.Time) *loginLimit {
	l := &loginLimit{now: now, seed: maphash.MakeSeed()}
	l.pairs, _ = simplelru.NewLRU[uint64, *rate.Limiter](maxSeen, nil) // fails for a size below one alone
	l.networks, _ = simplelru.NewLRU[uint64, *rate.Limiter](maxSeen, nil)
	l.familiar, _ = simplelru.NewLRU[uint64, struct{}](maxSeen, nil)
	return l
}

// networkOf returns what is counted as one place.
func networkOf(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	p, _ := ip.Prefix(64) // 64 fits every IPv6 address
	return p.String()
}

func (l *loginLimit) key(parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, p := range parts {
		_, _ = h.WriteString(p) // never fails
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// take returns nil if a login may be tried now, and otherwise a problem with the time to wait.
func (l *loginLimit) take(user, address string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, network := l.now(), networkOf(address)
	pair, place, name := l.key("pair", user, network), l.key("network", network), l.key("user", user)
	wait := max(delay(l.networks, place, now), delay(l.pairs, pair, now))
	if !l.familiar.Contains(pair) {
		wait = max(wait, l.users.delay(name, now))
	}
	if wait > 0 {
		return later(wait)
	}
	use(l.networks, place, networkEvery, networkBurst, now)
	use(l.pairs, pair, pairEvery, pairBurst, now)
	l.users.add(name, now, 1)
	return nil
}

// takePlace is take for a login of a user whom no one knows yet.
func (l *loginLimit) takePlace(address string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, place := l.now(), l.key("network", networkOf(address))
	if wait := delay(l.networks, place, now); wait > 0 {
		return later(wait)
	}
	use(l.networks, place, networkEvery, networkBurst, now)
	return nil
}

// takeOwn is take for a user who is logged in: what others do does not hold the user back.
func (l *loginLimit) takeOwn(user string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, own := l.now(), l.key("own", user)
	if wait := delay(l.pairs, own, now); wait > 0 {
		return later(wait)
	}
	use(l.pairs, own, pairEvery, pairBurst, now)
	return nil
}

// succeeded takes note of a login that succeeded.
func (l *loginLimit) succeeded(user, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pair := l.key("pair", user, networkOf(address))
	l.pairs.Remove(pair)
	l.familiar.Add(pair, struct{}{})
	l.users.add(l.key("user", user), l.now(), -1)
}

// succeededOwn takes note of a password that was changed.
func (l *loginLimit) succeededOwn(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pairs.Remove(l.key("own", user))
}

func later(wait time.Duration) error {
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	p := newProblem(director.KindExhausted, kinds[director.KindExhausted].status)
	p.Detail = "too many failed logins"
	p.Hint = "try again in " + seconds + " s"
	p.retryAfter = seconds
	return p
}

// delay returns how long nothing may be used, without adding anything.
func delay(table *simplelru.LRU[uint64, *rate.Limiter], key uint64, now time.Time) time.Duration {
	lim, ok := table.Get(key)
	if !ok || lim.TokensAt(now) >= 1 {
		return 0
	}
	missing := (1 - lim.TokensAt(now)) / float64(lim.Limit())
	return max(time.Duration(missing*float64(time.Second)), time.Second)
}

func use(table *simplelru.LRU[uint64, *rate.Limiter], key uint64, every time.Duration, burst int, now time.Time) {
	lim, ok := table.Get(key)
	if !ok {
		lim = rate.NewLimiter(rate.Every(every), burst)
		table.Add(key, lim)
	}
	lim.AllowN(now, 1)
}

// backOff counts the guesses for users. It has a fixed size and drops nothing, so no number of made-up names frees a
// user from what was counted. Each user has a slot in each row; a slot that is shared by chance counts too much, and
// the smaller count holds.
type backOff struct{ rows [2][8192]slot }

type slot struct {
	level float64
	at    time.Time
}

func (b *backOff) slots(key uint64) [2]*slot {
	return [2]*slot{&b.rows[0][key%8192], &b.rows[1][(key>>32)%8192]}
}

func (s *slot) now(now time.Time) float64 {
	return max(0, s.level-float64(now.Sub(s.at))/float64(userForgets))
}

// delay returns how long the user is not tried: it doubles with each guess over userFree, up to userLongest.
func (b *backOff) delay(key uint64, now time.Time) time.Duration {
	wait := userLongest
	for _, s := range b.slots(key) {
		over := s.now(now) - userFree
		if over < 0 {
			return 0
		}
		pause := min(userLongest, time.Duration(math.Exp2(over)*float64(time.Second)))
		wait = min(wait, s.at.Add(pause).Sub(now))
	}
	return max(wait, 0)
}

func (b *backOff) add(key uint64, now time.Time, n float64) {
	const most = userFree + 6 // more would only take longer to forget
	for _, s := range b.slots(key) {
		s.level, s.at = min(most, max(0, s.now(now)+n)), now
	}
}
