package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup/s3test"
	"github.com/director-kaas/kaas/director/client"
)

// bucketTarget is the name of a target in a bucket.
const bucketTarget = "bucket"

// needsBucket starts an S3 server, names a target in its bucket, and has bundles of the director go there.
func (s *suite) needsBucket(t *testing.T) {
	t.Helper()
	if s.s3 != nil {
		return
	}
	server := s3test.Start(s.t) // until the play ends
	s.s3 = server
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s.write("recipient.key", key.String()+"\n", 0o600)
	secret := s.write("bucket.password", server.Secret.Reveal(), 0o600)
	document := s.write("bucket.yaml", fmt.Sprintf(`apiVersion: kaas/v1
kind: BackupTarget
metadata: {name: %s}
spec:
  type: s3
  recipients: [%s]
  retention: {count: 6}
  s3:
    url: %s
    bucket: %s
    credentials: bucket-key
    ca: |
      %s
---
apiVersion: kaas/v1
kind: Schedule
metadata: {name: early}
spec: {cron: "@yearly", job: {name: backup, params: {target: %[1]s}}}
---
apiVersion: kaas/v1
kind: Schedule
metadata: {name: late}
spec: {cron: "@yearly", job: {name: backup, params: {target: %[1]s}}}
`, bucketTarget, key.Recipient(), server.URL, server.Bucket,
		strings.ReplaceAll(strings.TrimSpace(server.CA), "\n", "\n      ")), 0o644)
	s.ctl(t, "apply", "-f", document)
	s.ctl(t, "provider", "credentials", "set", "bucket-key", "--user", server.Key, "--password-file", secret)
}

// keepsBackupsInABucket has the backups of the cluster go into the bucket, and nowhere else.
func (s *suite) keepsBackupsInABucket(t *testing.T) {
	t.Helper()
	s.needsBucket(t)
	document := s.path("models/cluster.yaml")
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	named := bytes.Replace(text, []byte("targets: [local]"), []byte("targets: ["+bucketTarget+"]"), 1)
	if err := os.WriteFile(document, named, 0o600); err != nil || bytes.Equal(text, named) {
		t.Fatalf("the document names no other target: %v\n%s", err, named)
	}
	s.ctl(t, "apply", "-f", document)
}

// bundleDirector makes a bundle of the director by the schedule, and returns the file of it in the bucket. The schedule
// runs in the bundle, so a restored director runs it again by itself, later.
func (s *suite) bundleDirector(t *testing.T, schedule string) string {
	t.Helper()
	s.needsBucket(t)
	before := s.bundles(t)
	s.ctl(t, "schedules", "run", schedule, "--wait")
	for _, file := range s.bundles(t) {
		if !slices.Contains(before, file) {
			return file
		}
	}
	t.Fatalf("there is no other bundle than %v", before)
	return ""
}

func (s *suite) bundles(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(s.s3.Dir, func(file string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(file, ".bundle.age") {
			all = append(all, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// listens is the line of the director's configuration that says where its API is.
var listens = regexp.MustCompile(`(?m)^listen: .*\n`)

// lose ends the director and all that it runs at once, as the loss of its machine does, and makes it again from the
// bundle: on a machine of that name, where it listens at that port. Nothing of the former machine is there.
func (s *suite) lose(t *testing.T, bundle, hostname string, port int) {
	t.Helper()
	s.killDirector()
	for _, program := range []string{"ansible-playbook", "ssh"} {
		for _, text := range processes(program) {
			if pid, err := strconv.Atoi(text); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
			}
		}
	}
	for _, dir := range []string{"state", filepath.Dir(configFile)} {
		away := s.path("lost", s.hostname, dir)
		err := errors.Join(os.RemoveAll(away), os.MkdirAll(filepath.Dir(away), 0o700), os.Rename(s.path(dir), away))
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	out := s.ok(t, time.Minute, s.root+"/bin/director", "-config", s.path(configFile), "restore", "-identity",
		s.path("recipient.key"), "-state-dir", s.path("state"), bundle)
	config, err := os.ReadFile(s.path(configFile))
	if err != nil {
		t.Fatal(err)
	}
	s.hostname, s.server = hostname, fmt.Sprintf("https://172.30.0.1:%d", port)
	moved := listens.ReplaceAll(config, []byte("listen: "+strings.TrimPrefix(s.server, "https://")+"\n"))
	if err := os.WriteFile(s.path(configFile), moved, 0o600); err != nil || !listens.Match(config) {
		t.Fatalf("the director does not listen elsewhere: %v\n%s", err, config)
	}
	s.startDirector(t)
	s.ctl(t, "login", "--server", s.server, "--ca-file", s.path("state/tls/ca.crt"), "--user", "admin",
		"--password-file", s.path("admin.password"))
	t.Logf("made again on %s in %.1f s\n%s", hostname, time.Since(began).Seconds(), out)
}

// plays waits until the playbook of the step runs.
func (s *suite) plays(t *testing.T, id, step string) {
	t.Helper()
	s.reaches(t, id, step)
	s.await(t, time.Minute, step+" plays", func() bool {
		return s.plan(t, id).Status != "running" || len(processes("ansible-playbook")) > 0
	})
	if v := s.plan(t, id); v.Status != "running" {
		s.logSteps(t, v)
		t.Fatalf("the plan is %s before %s", v.Status, step)
	}
}

// added is the worker that is added while the director is lost.
const added = "demo-worker-2"

// losesItsDirector loses the director four times while it adds a worker. The first three are restored from a bundle
// from before the worker's VM: that boots, is registered as a node, or is one whose plan is done. The last is restored
// from a bundle from the middle of the playbook that makes it a node. The cluster serves all the time.
func (s *suite) losesItsDirector(t *testing.T) {
	const join = "join/" + added
	s.needsBucket(t)
	s.underService(t, func() {
		s.ctl(t, "scale", "demo", "--pool", "worker=2", "--plan-only")
		id := s.newestPlan(t)
		s.startsAndPauses(t, id)
		early := s.bundleDirector(t, "early")
		if s.begun(t, id, "vm.ensure/"+added) {
			t.Fatal("the first bundle is not from before the worker's VM")
		}
		s.ctl(t, "resume", id)
		s.reaches(t, id, "vm.boot/"+added)
		booting := s.vm(t, "domid", added)
		if remade := s.losesAndResumes(t, id, early, "machine-2", 9443); remade == booting {
			t.Errorf("the director keeps a VM whose host key it cannot know: %s", booting)
		}
		s.adopts(t, id, early)

		late := s.bundleDirector(t, "late")
		before, latter := s.plan(t, id), s.vm(t, "domid", added)
		if before.Status != "running" {
			t.Errorf("the plan is %s before the end of %s", before.Status, join)
		}
		s.lose(t, late, "machine-5", 8443)
		s.ctl(t, "follow", id)
		s.wantDoneOnce(t, before, s.plan(t, id))
		if again := s.vm(t, "domid", added); again != latter {
			t.Errorf("the VM %s of a node was made again: %s", latter, again)
		}
	})
	s.workers = 2
	s.wantNodes(t, s.nodeNames()...)
	if vms := strings.Fields(s.virsh(t, "list", "--all", "--name")); len(vms) != len(s.nodeNames()) {
		t.Errorf("the VMs are %v", vms)
	}
	s.ctl(t, "vms", "audit", "--exit-code")
	s.workers = 1
	s.timed(t, "scale", "demo", "--pool", "worker=1", "--remove", added, "--yes", "--wait")
	s.wantNodes(t, s.nodeNames()...)
}

// losesItsDirectorInARotation loses the director when a node has other certificates, and makes it again from a bundle
// from before. What is left is read from the certificates, so none of the node is renewed twice.
func (s *suite) losesItsDirectorInARotation(t *testing.T) {
	serials := func() map[string]string {
		seen := map[string]string{}
		for _, node := range s.nodeNames() {
			seen[node] = s.onNode(
				t, node, "openssl x509 -noout -serial -in /var/lib/kubelet/pki/kubelet-client-current.pem",
			)
		}
		return seen
	}
	former := serials()
	s.underService(t, func() {
		s.ctl(t, "certs", "rotate", "demo", "--all", "--yes")
		id := s.newestPlan(t)
		s.pauses(t, id)
		at := slices.IndexFunc(s.plan(t, id).Steps, func(st stepView) bool {
			return st.Status == "pending" && strings.HasPrefix(st.ID, "rotate_certs/")
		})
		if at < 0 {
			t.Fatal("the plan was through before it was paused")
		}
		bundle := s.bundleDirector(t, "early")
		s.ctl(t, "resume", id)
		s.await(t, 10*time.Minute, "a node has other certificates", func() bool {
			v := s.plan(t, id)
			return v.Status != "running" || v.Steps[at].Status == "done"
		})
		node := strings.TrimPrefix(s.plan(t, id).Steps[at].ID, "rotate_certs/")
		renewed := serials()[node]
		s.lose(t, bundle, "machine-6", 9443)
		if st := s.plan(t, id).Steps[at]; st.Status != "pending" {
			t.Errorf("%s is %s in the bundle", st.ID, st.Status)
		}
		s.ctl(t, "resume", id)
		s.ctl(t, "follow", id)
		if v := s.plan(t, id); v.Status != "done" {
			s.logSteps(t, v)
			t.Fatalf("the plan is %s", v.Status)
		}
		now := serials()
		if now[node] != renewed || renewed == former[node] {
			t.Errorf("the certificate of %s was %s, then %s, and is %s", node, former[node], renewed, now[node])
		}
		for name, serial := range now {
			if serial == former[name] {
				t.Errorf("%s has its former certificate", name)
			}
		}
	})
	s.await(t, 2*time.Minute, "the registry has the images of the release again", func() bool {
		tags, err := os.ReadDir(s.path("state/registry/docker/registry/v2/repositories/kaas/toolbox/_manifests/tags"))
		return err == nil && len(tags) > 0
	})
	s.wantNodes(t, s.nodeNames()...)
	s.ctl(t, "certs", "verify", "demo")
}

// pauses pauses the plan and waits until no step runs.
func (s *suite) pauses(t *testing.T, id string) {
	t.Helper()
	s.ctl(t, "pause", id)
	s.stands(t, id)
}

// startsAndPauses starts a plan, and pauses it within its first steps: the second request follows the first at once, on
// the same connection.
func (s *suite) startsAndPauses(t *testing.T, id string) {
	t.Helper()
	token, err1 := os.ReadFile(s.path("cli.token"))
	ca, err2 := os.ReadFile(s.path("state/tls/ca.crt"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(client.Config{
		Server: s.server, CA: ca, Token: director.Secret(strings.TrimSpace(string(token))),
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := api.Plan(t.Context(), id)
	if err == nil {
		_, err = api.StartPlan(t.Context(), id, p.Hash)
	}
	if err == nil {
		_, err = api.PausePlan(t.Context(), id, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.stands(t, id)
}

// begun reports whether the step of the plan has ever started.
func (s *suite) begun(t *testing.T, id, step string) bool {
	t.Helper()
	return !slices.ContainsFunc(s.plan(t, id).Steps, func(st stepView) bool {
		return st.ID == step && st.Status == "pending"
	})
}

// stands waits until a plan that is paused works on no step.
func (s *suite) stands(t *testing.T, id string) {
	t.Helper()
	s.await(t, 5*time.Minute, "the running steps end", func() bool {
		return !slices.ContainsFunc(s.plan(t, id).Steps, func(st stepView) bool { return st.Status == "running" })
	})
}

// losesAndResumes loses the director, has the restored one continue its plan until the playbook runs that makes the
// worker a node, and returns the VM that the worker has then.
func (s *suite) losesAndResumes(t *testing.T, id, bundle, hostname string, port int) string {
	t.Helper()
	s.lose(t, bundle, hostname, port)
	if v := s.plan(t, id); v.Status != "paused" {
		t.Errorf("the plan is %s, and was paused", v.Status)
	}
	s.ctl(t, "resume", id)
	s.plays(t, id, "join/"+added)
	return s.vm(t, "domid", added)
}

// adopts loses the director when the worker is registered and the cluster has no record of its host key yet, and when
// its plan is done. The second time the worker shows no certificate, as those of former versions, and the record
// proves it. The plan continues by itself with the VM that is there, and its playbook runs in the end.
func (s *suite) adopts(t *testing.T, id, bundle string) {
	t.Helper()
	record := func() string {
		return s.kubectl(t, "get", "node", added, "-o",
			`jsonpath={.metadata.annotations.director-kaas\.github\.io/ssh-host-key}`)
	}
	s.await(t, 5*time.Minute, "it is registered", func() bool {
		_, code := s.tryKubectl(t, "get", "node", added)
		return code == 0
	})
	if text := record(); text != "" {
		t.Errorf("the cluster has its host key already: %s", text)
	}
	registered := s.vm(t, "domid", added)
	if again := s.losesAndResumes(t, id, bundle, "machine-3", 8443); again != registered {
		t.Errorf("the VM %s of a registered node was made again: %s", registered, again)
	}

	s.ctl(t, "follow", id)
	if text := record(); !strings.HasPrefix(text, "ssh-ed25519-cert-v01@openssh.com ") {
		t.Errorf("the cluster has the host key %q", text)
	}
	s.onNode(t, added, "rm /etc/ssh/sshd_config.d/20-kaas-host.conf && systemctl reload ssh")
	if again := s.losesAndResumes(t, id, bundle, "machine-4", 9443); again != registered {
		t.Errorf("the VM %s of a node was made again: %s", registered, again)
	}
}

// wantDoneOnce wants the plan done, and what was done before to be left alone.
func (s *suite) wantDoneOnce(t *testing.T, before, after planView) {
	t.Helper()
	s.logSteps(t, after)
	if after.Status != "done" {
		t.Errorf("the plan is %s", after.Status)
	}
	for i, st := range before.Steps {
		if now := after.Steps[i]; st.Status == "done" && !now.FinishedAt.Equal(st.FinishedAt) {
			t.Errorf("%s was done in the bundle and ran again: %+v then %+v", st.ID, st, now)
		}
	}
}

// changesItsOwnAuthority gives the director another authority, with a kill -9 in each stage, and has a node pull from
// its registry in each. Nodes that trust the former one alone stop the change.
func (s *suite) changesItsOwnAuthority(t *testing.T) {
	const worker = "demo-worker-1"
	image := s.toolbox(t)
	former, err := os.ReadFile(s.path("state/tls/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	stage := func(verb string) {
		s.ctl(t, "ca", "director", verb)
		s.killDirector()
		s.startDirector(t)
		s.onNode(t, worker, "crictl pull "+image)
	}
	stage("trust")
	s.refused(t, []string{worker, "trusts the former one alone"}, "ca", "director", "use")
	s.timed(t, "rotate", "pull-password", "demo", "--yes", "--wait")
	stage("use")
	stage("drop")
	s.timed(t, "rotate", "pull-password", "demo", "--yes", "--wait")
	next, err := os.ReadFile(s.path("state/tls/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range s.nodeNames() {
		trusted := s.onNode(t, node, "cat /etc/containerd/certs.d/*/ca.crt")
		if strings.TrimSpace(trusted) != strings.TrimSpace(string(next)) || bytes.Equal(next, former) {
			t.Errorf("%s trusts\n%s", node, trusted)
		}
	}
	s.onNode(t, worker, "crictl pull "+image)
	if out, code := s.run(t, time.Minute, "curl", "-sS", "--cacert", s.write("former.crt", string(former), 0o644),
		s.server+"/api/v1/readyz"); code == 0 {
		t.Errorf("who trusts the former authority is served: %s", out)
	}
}
