package steps

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Pulls keeps which clusters may pull without a password, from the time before there were any.
type Pulls interface {
	// EndAnonymousPulls records that every node of the cluster has a password.
	EndAnonymousPulls(ctx context.Context, uid string) error
}

// pullRenew makes another password, valid together with the one that the nodes have. One that an earlier plan made, and
// that some nodes may have by now, is kept: runs give it to nodes from then on.
func (e keySteps) pullRenew(ctx context.Context, _ plan.Run, p step.PullParams) error {
	_, err := e.makePull(ctx, p.UID, SecretPullNext)
	return err
}

// pullSettle makes the next password the only one.
func (e keySteps) pullSettle(ctx context.Context, r plan.Run, p step.PullParams) error {
	skipped, err := e.skipped(ctx, r)
	if err != nil {
		return err
	}
	if skipped {
		return director.Errorf(
			director.KindConflict, "pull.settle",
			"the former pull password of cluster %s stays: giving the new one to the nodes was skipped", p.Cluster,
		).
			WithHint(
				"discard this plan and rotate again: directorctl rotate pull-password %s; both passwords are "+
					"accepted until then",
				p.Cluster,
			)
	}
	next, err := e.pullSecret(ctx, p.UID, SecretPullNext)
	if err != nil {
		return err
	}
	if next != "" { // or it was killed behind this
		sealed, err := e.Sealer.Seal(p.UID, SecretPull, []byte(next.Reveal()))
		if err != nil {
			return err
		}
		if err := e.Secrets.SetSecret(ctx, p.UID, SecretPull, sealed); err != nil {
			return err
		}
		if err := e.Secrets.SetSecret(ctx, p.UID, SecretPullNext, nil); err != nil {
			return err
		}
	}
	if e.Pulls == nil {
		return nil
	}
	return e.Pulls.EndAnonymousPulls(ctx, p.UID)
}
