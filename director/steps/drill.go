package steps

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// drillKeys makes authorities for the VM of a drill, and lends it the keys that Secrets in the backup are encrypted
// with. It has no other key of the cluster: neither its authorities nor its passwords.
func (e backupSteps) drillKeys(ctx context.Context, r plan.Run, p step.DrillParams) error {
	if err := e.Backups.BeginDrill(ctx, backup.Drill{
		Plan: r.Plan.ID, Cluster: p.Cluster, ClusterUID: p.UID, Backup: p.Backup, Began: e.Now(),
	}); err != nil {
		return err
	}
	own := director.DrillUID(p.UID)
	if err := e.ensurePKI(ctx, own, func() (pki.ClusterPKI, error) { return pki.NewCluster(p.Cluster) }); err != nil {
		return err
	}
	keys, err := e.ClusterEncryptionKeys(ctx, p.UID)
	if err != nil {
		return err
	}
	for _, name := range p.FormerKeys {
		if !keys.Recall(name) {
			return plan.Abort(director.Errorf(
				director.KindConflict, "drill.keys", "cluster %s has no key %s for Secrets", p.Cluster, name,
			).WithHint("make another drill: directorctl backup drill %s", p.Cluster))
		}
	}
	keys.Former = nil
	sealed, err := keys.Seal(e.Sealer, own, SecretEncryption)
	if err != nil {
		return err
	}
	return e.Secrets.SetSecret(ctx, own, SecretEncryption, sealed)
}

// drillAnswer is what the playbook drill.yml leaves on the VM.
const drillAnswer = "cat /var/lib/kaas/drill/answer.json"

// mostAnswer bounds what is read of a VM's answer.
const mostAnswer = 32 << 20

// drillAsk compares what the restored etcd and API server said with the manifest of the backup.
func (e backupSteps) drillAsk(ctx context.Context, r plan.Run, p step.DrillParams) error {
	m := p.Machine.Row()
	key, _, err := e.nodeKey(ctx, m.ID)
	if err != nil {
		return err
	}
	out := &bounded{most: mostAnswer}
	if err := e.Transfer.Stream(ctx, m, key, drillAnswer, nil, out); err != nil {
		return err
	}
	var answer backup.Answer
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return plan.Abort(director.Errorf(
			director.KindInternal, "drill.ask", "the answer of %s cannot be read: %w", m.Name, err,
		))
	}
	entry, err := e.Backups.Get(ctx, p.Backup)
	if err != nil {
		return plan.Abort(err)
	}
	keys, err := e.ClusterEncryptionKeys(ctx, director.DrillUID(p.UID))
	if err != nil {
		return err
	}
	var known []string
	for _, k := range keys.Keys {
		known = append(known, k.Name)
	}
	problem := strings.Join(entry.Problems(answer, known), "; ")
	n := answer.Restored.Keys()
	if err := e.Backups.AnswerDrill(ctx, r.Plan.ID, n, problem); err != nil {
		return err
	}
	if problem != "" {
		return plan.Abort(director.Errorf(
			director.KindConflict, "drill.ask", "the restored backup %s is not what its manifest says: %s", p.Backup,
			problem,
		).WithHint("make another backup and another drill; keep this backup until you know why"))
	}
	r.Note(ctx, answered(answer, n))
	return nil
}

// answered tells what the restored cluster said, and what took how long.
func answered(a backup.Answer, keys int64) string {
	text := fmt.Sprintf(
		"%d keys, %d namespaces, %d nodes, %d CRDs and %d decrypted Secrets are as in the manifest", keys,
		len(a.API.Namespaces), len(a.API.Nodes), len(a.API.CRDs), a.API.Secrets,
	)
	var names []string
	for name := range a.Seconds {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		took := time.Duration(a.Seconds[name] * float64(time.Second))
		text += fmt.Sprintf("; %s took %s", name, took.Round(100*time.Millisecond))
	}
	return text
}

// drillEnd forgets what the drill had of its own. Its VM is gone.
func (e backupSteps) drillEnd(ctx context.Context, r plan.Run, p step.DrillParams) error {
	return e.Backups.EndDrill(ctx, r.Plan.ID, p.UID)
}

// awaitDrill has a step wait while a restore drill of the cluster has a VM.
func awaitDrill(ctx context.Context, backups Backups, uid string) error {
	if backups == nil {
		return nil
	}
	vm, err := backups.DrillLives(ctx, uid)
	if err != nil || vm == "" {
		return err
	}
	return plan.After(10*time.Second, "waits until VM "+vm+" of a restore drill is gone")
}

// bounded is a buffer that takes so many bytes at most.
type bounded struct {
	bytes.Buffer
	most int
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		return 0, director.Errorf(director.KindInvalid, "steps.read", "more than %d bytes came", b.most)
	}
	return b.Buffer.Write(p)
}
