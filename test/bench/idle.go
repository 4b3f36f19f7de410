package main

import (
	"context"
	"fmt"

	"github.com/director-kaas/kaas/director/wire"
)

// idle looks at a director with one cluster that has nothing to do.
func idle(ctx context.Context, b *bench) ([]row, error) {
	r, c, err := b.start(ctx, "idle", "", provider(1, "10ms", "100ms"),
		map[string]string{"net": "{provider: lab, cidr: 10.64.0.0/16, pool: {from: 10.64.1.0, to: 10.64.250.250}}"},
		cluster("demo", "lab", "net", 1))
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Stop() }()
	defer c.Close()
	p, err := begin(ctx, c, "demo")
	if err != nil {
		return nil, err
	}
	if _, err := c.Follow(ctx, p.ID, 0, func(wire.Event) error { return nil }, nil, nil); err != nil {
		return nil, err
	}
	share, err := idleShare(ctx, r.PID())
	if err != nil {
		return nil, err
	}
	return []row{
		{
			"the director idle with one cluster", "< 1 % of a core",
			fmt.Sprintf("%.2f %% over 60 s; load %s", 100*share, load()), share < 0.01,
		},
	}, nil
}
