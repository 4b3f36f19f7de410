// Package claims notices when another copy of this director works on the same clusters: a copied data disk that was
// started twice, or a former director that was not gone when it was restored.
//
// Each start of a director has an id, which its database keeps before any cluster sees it. The director writes the id
// of its start into each cluster. Directors on one database know each other's ids; another copy does not.
package claims

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/store"
)

// Store keeps the starts of directors and what was found in clusters. *store.Store implements it.
type Store interface {
	BeginRun(ctx context.Context, run, host string, now time.Time) error
	RunOrder(ctx context.Context, run string) (int64, error)
	Claimed(ctx context.Context) (clusters []store.Claimed, takeover int64, err error)
	ClaimedElsewhere(ctx context.Context, cluster string) (director.Claim, error)
	SettleClaim(ctx context.Context, clusterUID string, takeover int64) error
	NoticeClaim(ctx context.Context, clusterUID string, other director.Claim, now time.Time) (news bool, err error)
}

var _ Store = (*store.Store)(nil)

// Cluster keeps the claim of the director that works on it.
type Cluster interface {
	Claim(ctx context.Context) (claim director.Claim, version string, err error)
	PutClaim(ctx context.Context, claim director.Claim, version string) error
	Close()
}

const (
	atOnce  = 8                // clusters that are asked at the same time
	limit   = 20 * time.Second // for one cluster
	longest = 63               // of what a claim says, as far as it is kept
)

// Config is what New needs. All must be set.
type Config struct {
	Store Store
	Own   director.Claim // its Run is of NewRun, and in the store
	// Connect connects to a cluster. not_found: it has no authorities yet.
	Connect func(ctx context.Context, uid, name, endpoint string) (Cluster, error)
	// Pause pauses what runs on the cluster. It may be called again.
	Pause func(ctx context.Context, cluster, reason string) error
	Now   func() time.Time
	Log   *slog.Logger
}

// Service looks at claims. It is safe for concurrent use.
type Service struct {
	Config

	mu    sync.Mutex
	own   director.Claim
	fresh int64 // the take-over after which own was made
}

// New returns a service.
func New(c Config) *Service { return &Service{Config: c, own: c.Own} }

// NewRun returns an id that no other start of a director has.
func NewRun() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return "r" + hex.EncodeToString(b)
}

// claim returns what this director writes into clusters. After a take-over that is another id: a copy whose disk was
// copied while this director ran knows the former one, and would take it for one of its own.
func (s *Service) claim(ctx context.Context, takeover int64) (director.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh < takeover {
		next := s.own
		next.Run = NewRun()
		if err := s.Store.BeginRun(ctx, next.Run, next.Host, s.Now()); err != nil {
			return director.Claim{}, err
		}
		s.own, s.fresh = next, takeover
	}
	return s.own, nil
}

// Pass looks at every cluster once, and writes this director's claim where it may. A cluster that does not answer is
// left to the next pass.
func (s *Service) Pass(ctx context.Context) error {
	clusters, takeover, err := s.Store.Claimed(ctx)
	if err != nil {
		return err
	}
	owed := int64(0) // the take-over that has not reached all clusters
	if slices.ContainsFunc(clusters, func(c store.Claimed) bool { return c.Takeover < takeover }) {
		owed = takeover
	}
	own, err := s.claim(ctx, owed)
	if err != nil {
		return err
	}
	order, err := s.Store.RunOrder(ctx, own.Run)
	if err != nil {
		return err
	}
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, c := range clusters {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			if err := s.look(ctx, c, start{own, order}, takeover); err != nil {
				s.Log.DebugContext(ctx, "a claim was not looked at", "cluster", c.Name, "err", err)
			}
		})
	}
	all.Wait()
	return nil
}

// start is this start, and its place among those of its database.
type start struct {
	director.Claim
	order int64
}

// look compares the claim in the cluster. A newer start writes over the claim of an older one, so that a copy made of
// the older one finds out. Over the claim of another copy it writes once for each take-over.
func (s *Service) look(ctx context.Context, c store.Claimed, own start, takeover int64) error {
	api, err := s.Connect(ctx, c.UID, c.Name, c.Endpoint)
	if err != nil {
		return err
	}
	defer api.Close()
	has, version, err := api.Claim(ctx)
	if err != nil {
		return err
	}
	has.Run, has.Host = plain(has.Run), plain(has.Host)
	order := own.order
	if has.Run != own.Run {
		if order, err = s.Store.RunOrder(ctx, has.Run); err != nil {
			return err
		}
	}
	known := order > 0 && has.Director == s.Own.Director
	switch {
	case known && order >= own.order: // of this start, or of a newer one on the same database
	case known, has.Run == "", c.Takeover < takeover:
		if err := api.PutClaim(ctx, own.Claim, version); err != nil {
			return err
		}
	default:
		return s.notice(ctx, c, has)
	}
	if c.Run != "" {
		s.Log.InfoContext(ctx, "the cluster has this director's claim again", "cluster", c.Name)
	}
	if c.Run == "" && c.Takeover == takeover {
		return nil // so it is noted already
	}
	return s.Store.SettleClaim(ctx, c.UID, takeover)
}

// notice stops what this director does on the cluster. The pause is asked for at each pass: the one before may have
// been cut off.
func (s *Service) notice(ctx context.Context, c store.Claimed, other director.Claim) error {
	news, err := s.Store.NoticeClaim(ctx, c.UID, other, s.Now())
	if err != nil {
		return err
	}
	if news {
		s.Log.ErrorContext(ctx, "another copy of this director works on the cluster: no plan of this one continues",
			"cluster", c.Name, "host", other.Host, "run", other.Run)
	}
	return s.Pause(ctx, c.Name, "another copy of this director works on the cluster, on machine "+other.Host)
}

// Check returns a conflict if another copy of this director works on the cluster.
func (s *Service) Check(ctx context.Context, cluster string) error {
	other, err := s.Store.ClaimedElsewhere(ctx, cluster)
	if err != nil || other.Run == "" {
		return err
	}
	return director.Errorf(
		director.KindConflict, "claims.check",
		"another copy of this director works on cluster %s, on machine %s: its claim %s is in the cluster", cluster,
		other.Host, other.Run,
	).WithHint("stop one of the two; if it is the other one, run this as root on this director's machine: " +
		"directorctl admin take-over")
}

// plain returns what of the text can be shown. An administrator of the cluster can write anything into its claim.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest])
	}
	return text
}
