package schedule_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/schedule"
)

// backedUp are clusters with a backup target, of which another plan holds some.
type backedUp struct {
	clusters, held []string
	begun          []string
}

func (b *backedUp) Due(_ context.Context, cluster string) ([]string, error) {
	if cluster == "" {
		return b.clusters, nil
	}
	if !slices.Contains(b.clusters, cluster) {
		return nil, director.Errorf(director.KindConflict, "test", "cluster %s names no backup target", cluster)
	}
	return []string{cluster}, nil
}

func (b *backedUp) Begin(_ context.Context, actor, cluster string, op plan.Operation) (string, error) {
	if slices.Contains(b.held, cluster) {
		return "", director.Errorf(director.KindConflict, "test", "plan p1 holds cluster %s", cluster)
	}
	b.begun = append(b.begun, actor+" "+string(op)+" "+cluster)
	return "plan-of-" + cluster, nil
}

func TestEtcdBackupJob(t *testing.T) {
	t.Parallel()
	const by = "schedule s "
	for name, tt := range map[string]struct {
		give   backedUp
		params map[string]any
		begun  []string
		said   string
		err    string // words of it; empty for none
	}{
		"no cluster": {said: "no cluster that is installed names a backup target"},
		"all": {
			give:  backedUp{clusters: []string{"a", "b"}},
			begun: []string{by + "cluster.backup a", by + "cluster.backup b"}, said: "backups were started of a, b",
		},
		"the named one": {
			give:   backedUp{clusters: []string{"a", "b"}},
			params: map[string]any{"cluster": "b"}, begun: []string{by + "cluster.backup b"},
			said: "backups were started of b",
		},
		"one without a target": {
			give: backedUp{clusters: []string{"a"}}, params: map[string]any{"cluster": "c"},
			err: "names no backup target",
		},
		"one that a plan holds": {
			give:  backedUp{clusters: []string{"a", "b", "c"}, held: []string{"b"}},
			begun: []string{by + "cluster.backup a", by + "cluster.backup c"}, said: "backups were started of a, c",
			err: "1 of 3 clusters have no backup: cluster b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := work(t, schedule.EtcdBackupJob(&tt.give, &tt.give), tt.params)
			if !slices.Equal(tt.give.begun, tt.begun) || got.Message != tt.said {
				t.Errorf("it began %q and says %q", tt.give.begun, got.Message)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("err = %v, want %q", err, tt.err)
			}
		})
	}
}
