package api

import (
	"math"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/director-kaas/kaas/director"
)

// loginLimit slows down the guessing of passwords, by user and address and by address alone. The failures of who succeeds
// at last are forgotten; the address goes on to count, or one own account would free the way to all others.
type loginLimit struct {
	now func() time.Time

	mu   sync.Mutex
	seen map[string]*rate.Limiter
}

const (
	pairBurst    = 5                // guesses for one user from one address
	pairEvery    = 10 * time.Second // and one more in each
	addressBurst = 60               // logins from one address over all users
	addressEvery = time.Second
	maxSeen      = 10000 // entries before those that have recovered are dropped
)

func newLoginLimit(now func() time.Time) *loginLimit {
	return &loginLimit{now: now, seen: make(map[string]*rate.Limiter)}
}

func pairKey(user, address string) string { return "p\x00" + address + "\x00" + user }
func addressKey(address string) string    { return "a\x00" + address }

// take returns nil if a login may be tried now, and otherwise a problem with the time to wait.
func (l *loginLimit) take(user, address string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.shrink(now)
	wait := max(
		delay(l.limiter(pairKey(user, address), pairEvery, pairBurst), now),
		delay(l.limiter(addressKey(address), addressEvery, addressBurst), now),
	)
	if wait == 0 {
		return nil
	}
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	p := newProblem(director.KindExhausted, kinds[director.KindExhausted].status)
	p.Detail = "too many failed logins"
	p.Hint = "try again in " + seconds + " s"
	p.retryAfter = seconds
	return p
}

// delay takes one token, or returns how long there will be none.
func delay(l *rate.Limiter, now time.Time) time.Duration {
	if l.AllowN(now, 1) {
		return 0
	}
	r := l.ReserveN(now, 1)
	defer r.CancelAt(now)
	return max(r.DelayFrom(now), time.Second)
}

func (l *loginLimit) limiter(key string, every time.Duration, burst int) *rate.Limiter {
	lim := l.seen[key]
	if lim == nil {
		lim = rate.NewLimiter(rate.Every(every), burst)
		l.seen[key] = lim
	}
	return lim
}

// forget takes note of a login that succeeded.
func (l *loginLimit) forget(user, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, pairKey(user, address))
}

// shrink drops what has recovered, once there is much. If an attack has filled the table with what has not, all goes: memory is
// bounded before guesses are.
func (l *loginLimit) shrink(now time.Time) {
	if len(l.seen) < maxSeen {
		return
	}
	for k, lim := range l.seen {
		if lim.TokensAt(now) >= float64(lim.Burst()) {
			delete(l.seen, k)
		}
	}
	if len(l.seen) >= maxSeen {
		clear(l.seen)
	}
}
