package client

import (
	"context"
	"net/http"

	"github.com/director-kaas/kaas/director/wire"
)

// Campaigns lists the campaigns with how far they are, the newest first.
func (c campaignCalls) Campaigns(ctx context.Context) ([]wire.Campaign, error) {
	var l wire.Campaigns
	err := c.call(ctx, request{method: http.MethodGet, path: "/campaigns"}, &l)
	return l.Items, err
}

// Campaign returns one campaign with its waves and clusters.
func (c campaignCalls) Campaign(ctx context.Context, id string) (wire.Campaign, error) {
	var v wire.Campaign
	err := c.call(ctx, request{method: http.MethodGet, path: "/campaigns/" + id}, &v)
	return v, err
}

// CreateCampaign makes a campaign. Its plans are made afterwards.
func (c campaignCalls) CreateCampaign(ctx context.Context, n wire.CampaignNew) (wire.Campaign, error) {
	var v wire.Campaign
	err := c.call(ctx, request{method: http.MethodPost, path: "/campaigns", body: n, once: true}, &v)
	return v, err
}

// PreviewCampaign tells which clusters a campaign would be for, and what those that are named would get.
func (c campaignCalls) PreviewCampaign(
	ctx context.Context, n wire.CampaignNew, look []string,
) (wire.CampaignPreview, error) {
	var v wire.CampaignPreview
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/campaign-previews", body: wire.CampaignPreviewRequest{Campaign: n, Look: look},
	}, &v)
	return v, err
}

// AgreeCampaign lets the plans of a wave start. The hash is the wave's.
func (c campaignCalls) AgreeCampaign(ctx context.Context, id string, wave int, hash string) (wire.Campaign, error) {
	return c.campaignVerb(ctx, id, "agree", wire.CampaignAgree{Wave: wave, Hash: hash})
}

// PauseCampaign lets no further plan start.
func (c campaignCalls) PauseCampaign(ctx context.Context, id, reason string) (wire.Campaign, error) {
	return c.campaignVerb(ctx, id, "pause", wire.CampaignReason{Reason: reason})
}

// ResumeCampaign lets the campaign continue with the failures that there are.
func (c campaignCalls) ResumeCampaign(ctx context.Context, id string) (wire.Campaign, error) {
	return c.campaignVerb(ctx, id, "resume", nil)
}

// SkipCampaign takes a cluster out of the campaign.
func (c campaignCalls) SkipCampaign(ctx context.Context, id, cluster, reason string) (wire.Campaign, error) {
	return c.campaignVerb(ctx, id, "skip", wire.CampaignSkip{Cluster: cluster, Reason: reason})
}

// EndCampaign lets nothing start any more, for good.
func (c campaignCalls) EndCampaign(ctx context.Context, id, reason string) (wire.Campaign, error) {
	return c.campaignVerb(ctx, id, "end", wire.CampaignReason{Reason: reason})
}

func (c campaignCalls) campaignVerb(ctx context.Context, id, verb string, body any) (wire.Campaign, error) {
	var v wire.Campaign
	err := c.call(ctx, request{method: http.MethodPost, path: "/campaigns/" + id + "/" + verb, body: body}, &v)
	return v, err
}
