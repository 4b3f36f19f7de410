package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// Check is one thing that the director needs to work.
type Check struct {
	Name string
	Err  error // nil if all is well; what people are shown of it is its Msg and its hint
	// Minor is something without which the director does a part of its work: it is ready, and says what is wrong.
	Minor bool
}

// Observer is told of requests, for metrics. Its methods must return at once.
type Observer interface {
	// Request is called at the end of each; route is the pattern of its path.
	Request(method, route string, status int, took time.Duration)
	// Stream is called when a stream opens; what it returns when it closes.
	Stream() (closed func())
}

// readiness returns what was checked, and unavailable naming all that is wrong.
func (s *server) readiness(ctx context.Context) (wire.Readiness, error) {
	out := wire.Readiness{Ready: true, Checks: []wire.Check{}}
	if s.Ready == nil {
		return out, nil
	}
	var wrong []director.Field
	for _, c := range s.Ready(ctx) {
		w := wire.Check{Name: c.Name, OK: c.Err == nil}
		if c.Err != nil {
			p := problemOf(ctx, c.Err)
			w.Reason = p.Detail
			if !c.Minor {
				wrong = append(wrong, director.Field{Path: c.Name, Msg: p.Detail, Hint: p.Hint})
				s.Log.WarnContext(ctx, "the director is not ready", "check", c.Name, "err", c.Err)
			}
		}
		out.Checks = append(out.Checks, w)
	}
	if len(wrong) == 0 {
		return out, nil
	}
	return out, &director.Error{
		Kind: director.KindUnavailable, Op: "api.readyz", Msg: "the director is not ready", Fields: wrong,
		Hint: "check what is named; the director's log has the causes",
	}
}

// probes offers the probes, and the metrics, where the programs that ask for them look by themselves. Balancers ask
// /readyz?changes=true: a director that is about to be upgraded is ready, and another one should take its requests.
func (s *server) probes(engine *gin.Engine) {
	engine.GET("/healthz", func(g *gin.Context) { g.Status(http.StatusNoContent) })
	engine.GET("/readyz", func(g *gin.Context) {
		out, err := s.readiness(g.Request.Context())
		if err != nil {
			s.abort(g, err)
			return
		}
		if g.Query("changes") == "true" && s.Held != nil && s.Held() {
			s.abort(g, s.heldError())
			return
		}
		g.JSON(http.StatusOK, out)
	})
	if s.Metrics != nil {
		engine.GET("/metrics", s.metricsGuard, gin.WrapH(s.Metrics))
	}
}

// heldError is what a director answers that takes no changes.
func (s *server) heldError() error {
	if s.HandedOver != nil && s.HandedOver() {
		return director.Errorf(
			director.KindUnavailable, "api.held",
			"the director was handed over to another machine, and takes no changes",
		).WithHint("use the other director; or run this as root on this machine: directorctl admin take-over")
	}
	return director.Errorf(
		director.KindUnavailable, "api.held", "the director is being upgraded, and takes no changes",
	).WithHint("try again in a few minutes; directorctl appliance status shows how far it is")
}

// metricsGuard lets those through who show the token of the metrics.
func (s *server) metricsGuard(g *gin.Context) {
	want, got := sha256.Sum256([]byte(s.MetricsToken.Reveal())),
		sha256.Sum256([]byte(bearerToken(g.GetHeader("Authorization")).Reveal()))
	if s.MetricsToken == "" || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		s.abort(g, director.Errorf(director.KindUnauthenticated, "api.metrics", "the metrics need their token").
			WithHint(
				"send it as a bearer token; it is in the file that metricsTokenFile names, metrics.token in "+
					"stateDir unless set",
			))
	}
}
