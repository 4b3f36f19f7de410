package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRestore is the loss of the director, four times in one plan and once in a rotation of certificates, whose plan
// pushes nothing: the director fills its registry by itself. Then all masters are lost: their VMs are destroyed behind
// the director's back, and the cluster is restored on new ones from a backup in a bucket. The workers and their pods
// stay.
func TestRestore(t *testing.T) {
	masters, err := strconv.Atoi(os.Getenv("KAAS_E2E_MASTERS"))
	if err != nil {
		masters = 3
	}
	s := begin(t, newer, suite{masters: masters})
	s.runParts(t, []part{
		{"starts", s.startsAndAsksForALogin},
		{"creates the masters and a worker", s.createsACluster},
		{"etcd is backed up", s.isBackedUp},
		{"the director is lost four times in a plan and made again", s.losesItsDirector},
		{"the director is lost in the middle of a rotation", s.losesItsDirectorInARotation},
		{"the director's own authority is changed over kills", s.changesItsOwnAuthority},
		{"a drill restores the backup into a VM of its own", s.drills},
		{"comes back after the loss of all masters", s.losesAllMasters},
		{"deletes everything", s.deletesEverything},
	})
}

// isRestored puts the cluster back to a backup. A damaged backup stops nothing.
func (s *suite) isRestored(t *testing.T) {
	s.kubectl(t, "create", "configmap", "before")
	s.kubectl(t, "create", "secret", "generic", "sealed", "--from-literal=word=still-here")
	id := s.backUp(t)
	s.kubectl(t, "delete", "configmap", "before")
	s.kubectl(t, "delete", "secret", "sealed")
	s.kubectl(t, "create", "configmap", "after")

	out := s.ctl(t, "backup", "extract", id, "-n", "default", "--kind", "Secret", "--name", "sealed",
		"--password-file", s.path("admin.password"))
	if !strings.Contains(out, "word: c3RpbGwtaGVyZQ==") {
		t.Errorf("the backup has the Secret\n%s", out)
	}
	s.damaged(t, id, func() {
		s.refused(t, []string{"damaged"}, "backup", "restore", id, "--wait", "--yes")
		s.kubectl(t, "get", "configmap", "after")
		s.ctl(t, "discard", s.newestPlan(t))
	})
	s.timed(t, "backup", "restore", id, "--wait", "--yes")
	s.wantState(t)
	s.wantNodes(t, s.nodeNames()...)
	for _, master := range s.masterNames() {
		files := s.onNode(t, master, "ls /var/lib/kaas/etcd-restore /var/lib/etcd")
		if strings.Contains(files, "snapshot.db") || strings.Contains(files, "staged.json") ||
			!strings.Contains(files, "before-") {
			t.Errorf("%s has after the restore:\n%s", master, files)
		}
	}
}

// backUp makes a backup and returns its id.
func (s *suite) backUp(t *testing.T) string {
	t.Helper()
	s.ctl(t, "backup", "create", "demo", "--wait", "--yes")
	return s.backups(t)[0].ID
}

// wantState wants what there was when the backup was made, and nothing that came after it.
func (s *suite) wantState(t *testing.T) {
	t.Helper()
	s.kubectl(t, "get", "configmap", "before")
	if word := s.kubectl(t, "get", "secret", "sealed", "-o", "jsonpath={.data.word}"); word != "c3RpbGwtaGVyZQ==" {
		t.Errorf("the Secret says %q", word)
	}
	if out, code := s.tryKubectl(t, "get", "configmap", "after"); code == 0 {
		t.Errorf("what came after the backup is still there:\n%s", out)
	}
	s.kubectl(t, "create", "configmap", "written-again")
	s.kubectl(t, "delete", "configmap", "written-again")
}

// damaged runs then while one byte of the backup is another one.
func (s *suite) damaged(t *testing.T, id string, then func()) {
	t.Helper()
	dirs := []string{s.path("backups/local")}
	if s.s3 != nil {
		dirs = append(dirs, s.s3.Dir)
	}
	var files []string
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, "*", id+".db.zst.age"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) != 1 {
		t.Fatalf("the archives of %s are %v", id, files)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for _, text := range [][]byte{flipped, whole} {
		if err := os.WriteFile(files[0], text, 0o600); err != nil {
			t.Fatal(err)
		}
		if &text[0] == &flipped[0] {
			then()
		}
	}
}

// changesItsEncryptionKey encrypts all Secrets with another key. What runs does not notice.
func (s *suite) changesItsEncryptionKey(t *testing.T) {
	s.wantEncryptedWith(t, "key1")
	started := s.apiServers(t)
	s.timed(t, "rotate", "encryption-key", "demo", "--wait", "--yes")
	s.wantEncryptedWith(t, "key2")
	if again := s.apiServers(t); again != started {
		t.Errorf("API servers were started again: %s, before %s", again, started)
	}
	for _, master := range s.masterNames() {
		if text := s.onNode(t, master, "cat /etc/kubernetes/apiserver/encryption.yaml"); strings.Contains(text,
			"key1") {
			t.Errorf("%s has the former key", master)
		}
	}
}

// apiServers returns when the API servers were started.
func (s *suite) apiServers(t *testing.T) string {
	t.Helper()
	return s.kubectl(t, "get", "pods", "-n", "kube-system", "-l", "component=kube-apiserver", "-o",
		"jsonpath={.items[*].status.containerStatuses[0].state.running.startedAt}")
}

// wantEncryptedWith wants every Secret in etcd to be encrypted with the key of that name.
func (s *suite) wantEncryptedWith(t *testing.T, key string) {
	t.Helper()
	marks := s.onNode(t, s.masterNames()[0], "ETCDCTL_API=3 etcdctl --endpoints=https://127.0.0.1:2379 "+
		"--cacert=/etc/kubernetes/pki/etcd/ca.crt --cert=/etc/kubernetes/pki/apiserver-etcd-client.crt "+
		"--key=/etc/kubernetes/pki/apiserver-etcd-client.key get --prefix /registry/secrets/ --print-value-only | "+
		"grep -ao 'k8s:enc:secretbox:v1:[a-z0-9]*:' | sort | uniq -c")
	if !strings.Contains(marks, ":"+key+":") || strings.Count(marks, "k8s:enc") != 1 {
		t.Errorf("Secrets in etcd are encrypted with\n%s", marks)
	}
}

func (s *suite) losesAllMasters(t *testing.T) {
	s.keepsBackupsInABucket(t)
	s.kubectl(t, "create", "configmap", "before")
	s.kubectl(t, "create", "secret", "generic", "sealed", "--from-literal=word=still-here")
	s.kubectl(t, "apply", "-f", s.write("kept.yaml", service(s.toolbox(t), "kept", 1, false, ""), 0o644))
	s.kubectl(t, "rollout", "status", "deployment/kept", "--timeout=5m")
	container := "jsonpath={.items[0].status.containerStatuses[0].containerID}"
	pod := s.kubectl(t, "get", "pods", "-l", "app=kept", "-o", container)
	id := s.backUp(t)
	if newest := s.backups(t)[0]; newest.Target != bucketTarget {
		t.Errorf("the backup %s lies in the target %s", id, newest.Target)
	}
	s.damaged(t, id, func() { s.refused(t, []string{"backup " + id}, "backup", "verify", id) })
	s.ctl(t, "backup", "verify", id) // it is whole again
	s.kubectl(t, "create", "configmap", "after")
	s.changesItsEncryptionKey(t) // the backup is of the former one
	for _, master := range s.masterNames() {
		s.vm(t, "destroy", master)
	}
	began := time.Now()
	s.timed(t, "backup", "restore", id, "--new-masters", "--wait", "--yes")
	t.Logf("the cluster was restored on new masters in %s", time.Since(began).Round(time.Second))
	within(t, "the cluster is restored", began, 5*time.Minute)
	s.wantState(t)
	s.wantNodes(t, s.nodeNames()...)
	s.wantEncryptedWith(t, "key2")
	for _, master := range s.masterNames() {
		former := s.onNode(t, master, "ls $(findmnt -n -o TARGET --first-only -S $(findmnt -n -o SOURCE "+
			"--nofsroot /var/lib/etcd))/.kaas-former-etcd/*")
		if !strings.Contains(former, "member") {
			t.Errorf("the data of the former VM of %s is not aside: %s", master, former)
		}
	}
	if again := s.kubectl(t, "get", "pods", "-l", "app=kept", "-o", container); again != pod {
		t.Errorf("the pod's container is %s, and was %s: the loss of the masters ended it", again, pod)
	}
}

// drillNetwork is where VMs of drills are.
const drillNetwork = `apiVersion: kaas/v1
kind: Network
metadata: {name: drills}
spec:
  provider: lab
  mode: isolated
  cidr: 10.90.0.0/24
  gateway: 10.90.0.1
  pool: {from: 10.90.0.11, to: 10.90.0.20}
`

// drills restores a backup into a VM of its own. The cluster does not notice, and nothing is left of the VM. A damaged
// backup and a cluster that has other Secrets than its manifest says fail the drill, and leave nothing either.
func (s *suite) drills(t *testing.T) {
	network := drillNetwork
	if len(s.hosts) > 0 {
		network = strings.Replace(network, "  mode: isolated\n", "  mode: bridge\n  bridge: kaas-drill\n", 1)
	}
	s.ctl(t, "apply", "-f", s.write("models/drills.yaml", network, 0o644))
	s.drilled = true
	document := s.path("models/cluster.yaml")
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	named := bytes.Replace(
		text, []byte("backup: {targets: [local]}"), []byte("backup: {targets: [local], drill: {network: drills}}"), 1,
	)
	if err := os.WriteFile(document, named, 0o600); err != nil || bytes.Equal(text, named) {
		t.Fatalf("the document names no network for drills: %v\n%s", err, named)
	}
	s.ctl(t, "apply", "-f", document)
	s.kubectl(t, "create", "namespace", "drilled")
	s.kubectl(t, "create", "secret", "generic", "drilled", "-n", "drilled", "--from-literal=word=still-here")
	id := s.backUp(t)
	s.kubectl(t, "delete", "namespace", "drilled")
	nodes := s.kubectl(t, "get", "nodes", "-o", "name")

	began := time.Now()
	s.ctl(t, "backup", "drill", "demo", "--wait", "--yes")
	t.Logf("the drill took %s", time.Since(began).Round(time.Second))
	within(t, "the drill has ended", began, 10*time.Minute)
	p := s.plan(t, s.newestPlan(t))
	for _, step := range p.Steps {
		t.Logf("%-28s %-8s %s %s", step.ID, step.Status, step.FinishedAt.Sub(step.StartedAt).Round(time.Second),
			step.Message)
	}
	s.wantNoDrill(t)
	if again := s.kubectl(t, "get", "nodes", "-o", "name"); again != nodes {
		t.Errorf("the nodes are %s, and were %s", again, nodes)
	}
	s.damaged(t, id, func() {
		s.refused(t, []string{"damaged"}, "backup", "drill", "demo", "--backup", id, "--wait", "--yes")
		s.wantNoDrill(t)
	})
}

// wantNoDrill wants that nothing is left of the VM of a drill.
func (s *suite) wantNoDrill(t *testing.T) {
	t.Helper()
	if vms := s.ctl(t, "vms", "list"); strings.Contains(vms, "demo-drill") {
		t.Errorf("the ledger has the VM of the drill:\n%s", vms)
	}
	for _, h := range s.allHosts() {
		if vms := s.domains(t, h, "--all"); slices.Contains(vms, "demo-drill") {
			t.Errorf("host %s has the VM of the drill: %v", h.name, vms)
		}
	}
}
