package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// Whatever kind of step a person has skipped, the ledger says afterwards what is true.
func TestSkippedStepsLeaveTheLedgerTrue(t *testing.T) {
	t.Parallel()
	create, scaleIn := plan.Request{}, plan.Request{Nodes: []string{"demo-w-3"}}
	node := func(op plan.Operation) plan.Request { return plan.Request{Operation: op, Nodes: []string{"demo-w-2"}} }
	remove := plan.Request{Operation: plan.ClusterDelete}
	kinds := map[string][]plan.Request{ // by kind: what is asked for while all steps of the kind are skipped
		step.ReleasePush: {
			create,
		}, step.NetworkEnsure: {create}, step.ImageEnsure: {create}, step.ClusterPKI: {create},
		step.ClusterReady: {
			create,
		}, step.KubeReady: {create}, step.VMEnsure: {create, node(plan.NodeReplace)},
		step.VMBoot: {
			create, node(plan.NodeReplace),
		},
		step.Play: {
			create, node(plan.NodeDelete), node(plan.NodeReplace),
			{Operation: plan.ClusterUpgrade},
			{Operation: plan.ClusterRotatePull},
		},
		step.NodeReady: {
			node(plan.NodeReplace), {Operation: plan.ClusterUpgrade},
		}, step.NodeLeft: {node(plan.NodeDelete), scaleIn},
		step.VMDelete: {
			node(plan.NodeDelete), scaleIn, remove,
		}, step.VMRemove: {node(plan.NodeReplace)}, step.NetworkDelete: {remove},
		step.ClusterForget: {remove}, step.KubeTraffic: {{Operation: plan.ClusterUpgrade}},
		step.EncryptionKey: {{Operation: plan.ClusterEncryptionKey}},
		step.SigningKey:    {{Operation: plan.ClusterSigningKey}},
		step.AuthorityChange: {
			{Operation: plan.ClusterCA}, {Operation: plan.ClusterEtcdCA}, {Operation: plan.ClusterFrontProxyCA},
		},
		step.AuthorityAgree: {{Operation: plan.ClusterCA}},
		step.PullRenew:      {{Operation: plan.ClusterRotatePull}},
		step.PullSettle:     {{Operation: plan.ClusterRotatePull}},
		step.VMMove:         {{Operation: plan.NodeReplace, Nodes: []string{"demo-w-2"}, Host: "another"}},
		step.SSHAuthority:   {{Operation: plan.ClusterSSHAuthority}},

		step.DirectorBackup: {{Operation: plan.ClusterEncryptionKey}},
		step.VMAdopt: {
			{
				Operation: plan.NodeRejoin, Nodes: []string{"demo-w-2"},
				HostKeys: map[string]string{
					"demo-w-2": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMBe3Lkx1Wd8XFJdJ5dEhvmEEHsLQYmoLY4n0UfLZkYi",
				},
			},
		},
	}
	for _, kind := range step.Kinds() {
		switch kind {
		case step.BackupStore, step.RestoreStage, step.HookAsk, step.ConsulRegister, step.ConsulDeregister,
			step.ConsulToken, step.ConsulAgents,
			step.SnapshotTake, step.SnapshotRevert, step.SnapshotDelete:
			continue // they change no machine that the ledger knows
		case step.DrillKeys, step.DrillAsk, step.DrillEnd, step.DirectorCheck, step.DirectorReady,
			step.DirectorRecord, step.DirectorForget, step.CopyMake, step.CopyRestore, step.CopyDelete:
			continue // no step of a drill, or of a plan of a director, is left out
		}
		if len(kinds[kind]) == 0 {
			t.Errorf("no case has steps of kind %s", kind)
		}
		for i, r := range kinds[kind] {
			t.Run(fmt.Sprintf("%s %s %d", kind, r.Operation, i), func(t *testing.T) { skipKind(t, kind, r) })
		}
	}
}

func skipKind(t *testing.T, kind string, r plan.Request) {
	t.Helper()
	s := openSkipping(t)
	none := func(plan.Step) bool { return false }
	if r.Operation != "" || r.Nodes != nil {
		s.through(t, plan.Request{}, none)
		s.agrees(t)
	}
	switch {
	case r.Operation == plan.ClusterUpgrade:
		s.apply(t, nextRelease())
	case r.Nodes != nil && r.Operation == "":
		s.apply(
			t, strings.Replace(threeHosts[strings.LastIndex(threeHosts, "apiVersion"):], "count: 3}]", "count: 2}]", 1),
		)
	}
	if r.Host != "" {
		r.Host = s.another(t, r.Nodes[0])
	}
	skipped, refused := s.through(t, r, func(step plan.Step) bool { return step.Kind == kind })
	if len(skipped)+len(refused) == 0 {
		t.Error("nothing was skipped")
	}
	if kind == step.ClusterReady != (len(refused) > 0 && len(skipped) == 0) {
		t.Errorf("skipped %v, refused %v", skipped, refused)
	}
	unsaid := s.differences(t)
	if len(unsaid) == 0 {
		return
	}
	// What waits for a node also records it as a member, and a VM that stays where it is was to be another one. The
	// next plan records both.
	if kind != step.NodeReady && kind != step.VMMove {
		t.Errorf("the ledger does not say that these are members: %v", unsaid)
	}
	s.through(t, plan.Request{}, none)
	s.agrees(t)
}

// another returns a host that the node is not on.
func (s *skipping) another(t *testing.T, node string) string {
	t.Helper()
	rows, err := s.db.Machines(t.Context(), store.MachineFilter{})
	if err != nil {
		t.Fatal(err)
	}
	is := ""
	for _, m := range rows {
		if m.Name == node {
			is = m.Host
		}
	}
	for _, m := range rows {
		if m.Host != is {
			return m.Host
		}
	}
	t.Fatalf("all machines are on %s", is)
	return ""
}
