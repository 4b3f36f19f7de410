package ansible

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

var update = flag.Bool("update", false, "write the generated part of docs/reference/causes.md")

// Every example is explained by its own cause and by none before it.
func TestBuiltInCauses(t *testing.T) {
	t.Parallel()
	causes := BuiltInCauses()
	if len(causes) < 15 {
		t.Errorf("only %d causes", len(causes))
	}
	for _, c := range causes {
		if len(c.Examples) == 0 || c.Hint == "" {
			t.Errorf("%s has no example or no hint", c.ID)
		}
		if strings.HasSuffix(c.Explain, ".") || strings.HasSuffix(c.Hint, ".") {
			t.Errorf("%s ends in a full stop", c.ID)
		}
		for _, x := range c.Examples {
			got := causeOf(causes, Failure{Msg: "non-zero return code", Tail: "before\n" + x + "\nafter"})
			if got == nil || got.ID != c.ID {
				t.Errorf("%q is explained by %+v, want %s", x, got, c.ID)
			}
		}
	}
	if c := causeOf(causes, Failure{Msg: "something else entirely"}); c != nil {
		t.Errorf("explained by %s", c.ID)
	}
}

func TestCausesOfAnAdministrator(t *testing.T) {
	t.Parallel()
	own, err := ParseCauses("own.yml", []byte(`
causes:
  - {id: ours, match: 'quota of tenant', task: '^kubelet : ', class: person, explain: the tenant is full, hint: `+
		`ask for more}
`))
	if err != nil {
		t.Fatal(err)
	}
	f := Failure{Role: "kubelet", Task: "Start", Msg: "no space left on device: quota of tenant"}
	causes := mergeCauses(own, BuiltInCauses())
	if c := causeOf(causes, f); c == nil || c.ID != "ours" {
		t.Errorf("got %+v", c)
	}
	f.Role = "etcd"
	if c := causeOf(causes, f); c == nil || c.ID != "disk_full" {
		t.Errorf("got %+v", c)
	}
}

// A cause of the administrator's takes the place of the built-in one with its id.
func TestCauseReplacesBuiltIn(t *testing.T) {
	t.Parallel()
	own, err := ParseCauses(
		"own.yml",
		[]byte("causes:\n- {id: disk_full, match: no space left, class: transient, explain: a job cleans it up}\n"),
	)
	if err != nil {
		t.Fatal(err)
	}
	causes := mergeCauses(own, BuiltInCauses())
	if c := causeOf(causes, Failure{Msg: "[Errno 28] No space left on device"}); c != nil {
		t.Errorf("the built-in cause is still there: %+v", c)
	}
	if c := causeOf(causes, Failure{Msg: "no space left"}); c == nil || c.Class != Transient {
		t.Errorf("got %+v", c)
	}
}

func TestCausesAreChecked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"all at once": {`
causes:
  - {id: a, match: '(', class: transient, explain: x}
  - {id: a, match: 'x', class: sometimes, explain: x}
  - {match: 'x', class: person}
  - id: b
    match: foo
    class: person
    explain: x
    hints: y
    task: '['
    examples:
      - bar
    explain: z
`, []string{
			"own.yml:3: causes[0].match: is not a regular expression", `own.yml:4: causes[1].id: "a" is there twice`,
			`own.yml:4: causes[1].class: is "sometimes" (transient, permanent, person or time)`,
			"own.yml:5: causes[2].id: is missing",
			"own.yml:5: causes[2].explain: is missing", "own.yml:10: causes[3].hints: is not a field here",
			"own.yml:11: causes[3].task: is not a regular expression",
			"own.yml:13: causes[3].examples[0]: is not matched by match",
			"own.yml:14: causes[3].explain: appears twice",
		}},
		"unknown key": {"causes: []\nmore: 1\n", []string{"own.yml:2: more: is not a field here"}},
		"no list":     {"causes: {}\n", []string{"own.yml:1: causes: is not a list"}},
		"no mapping":  {"- a\n", []string{"own.yml:1: document: is not a mapping"}},
		"no yaml":     {"causes: [\n", []string{"own.yml: line 1: did not find"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			causes, err := ParseCauses("own.yml", []byte(tt.text))
			if director.KindOf(err) != director.KindInvalid || causes != nil {
				t.Fatalf("got %v, %v", causes, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
		})
	}
	if causes, err := ParseCauses("own.yml", nil); err != nil || len(causes) > 0 {
		t.Errorf("an empty file: %v, %v", causes, err)
	}
}

// realMessages is what machines really say, each in the company that it usually has, by the cause that explains it.
var realMessages = map[string][]string{
	"disk_full": {
		"Failed to write: [Errno 28] No space left on device: b'/root/.ansible/tmp/x' -> " +
			"b'/etc/kubernetes/kubeadm.yaml'",
		"tar: ./usr/bin/kubelet: Cannot write: No space left on device\ntar: Exiting with failure status due to " +
			"previous errors",
	},
	"name_resolution": {
		"fatal: unable to access: Could not resolve host: git.example.com",
		"failed to do request: Head \"https://registry.example.com/v2/pause/manifests/3.10\": dial tcp: lookup " +
			"registry.example.com on 127.0.0.53:53: server misbehaving",
		"Temporary failure resolving 'deb.example.com'",
	},
	"registry_untrusted": {
		"failed to pull and unpack image \"kaas.internal/kaas/pause:3.10\": failed to do request: Head " +
			"\"https://10.0.0.1:5000/v2/\": tls: failed to verify certificate: x509: certificate signed by " +
			"unknown authority",
	},
	"certificate_name": {
		"Head \"https://kaas.internal:5000/v2/\": tls: failed to verify certificate: x509: certificate is valid " +
			"for director, not kaas.internal",
	},
	"clock_skew": {
		"Get \"https://10.88.0.10:6443/api\": tls: failed to verify certificate: x509: certificate has expired " +
			"or is not yet valid: current time 2020-01-01T00:00:05Z is before 2026-11-20T22:01:07Z",
	},
	"swap_on": {
		"[init] Using Kubernetes version: v1.37.2\nerror execution phase preflight: [preflight] Some fatal " +
			"errors occurred:\n\t[ERROR Swap]: running with swap on is not supported. Please disable swap",
	},
	"leftovers": {
		"error execution phase preflight: [preflight] Some fatal errors occurred:\n\t[ERROR Port-6443]: Port " +
			"6443 is in use",
	},
	"port_in_use": {
		"failed to listen on 127.0.0.1:10248: listen tcp 127.0.0.1:10248: bind: address already in use",
	},
	"etcd_slow": {
		"Error from server: etcdserver: request timed out, possibly due to previous leader failure",
		"rpc error: code = Unavailable desc = etcdserver: request timed out",
		"error: error execution phase etcd-join: error creating local etcd static pod manifest file: context " +
			"deadline exceeded\nTo see the stack trace of this error execute with --v=5 or higher",
	},
	"image_missing": {
		"[ERROR ImagePull]: failed to pull image kaas.internal/kaas/etcd:v3.6.10: rpc error: code = NotFound " +
			"desc = failed to pull and unpack image: failed to resolve reference " +
			"\"kaas.internal/kaas/etcd:v3.6.10\": kaas.internal/kaas/etcd:v3.6.10: not found",
	},
	"join_token": {
		"error execution phase preflight: couldn't validate the identity of the API Server: could not find a " +
			"JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"\nTo see the stack trace of " +
			"this error execute with --v=5 or higher",
	},
	"api_server_down": {
		"error execution phase preflight: couldn't validate the identity of the API Server: Get " +
			"\"https://10.88.0.10:6443/api/v1/namespaces/kube-public/configmaps/cluster-info\": dial tcp " +
			"10.88.0.10:6443: connect: connection refused",
	},
	"ssh_denied": {
		"Failed to connect to the host via ssh: Warning: Permanently added '10.88.0.11'\nkaas@10.88.0.11: " +
			"Permission denied (publickey,password).",
		"Received disconnect from 10.88.0.11 port 22:2: Too many authentication failures",
	},
	"sudo": {
		"Missing sudo password",
		"sudo: a password is required",
		"kaas is not in the sudoers file.  This incident will be reported.",
	},
	"no_python": {
		"/bin/sh: 1: /usr/bin/python3: not found",
		"env: 'python3': No such file or directory",
	},
	"apt_lock": {
		"E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1234 (apt-get)\nE: Unable to " +
			"acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?",
	},
	"kernel_module": {
		"modprobe: FATAL: Module vxlan not found in directory /lib/modules/6.1.0-21-cloud-amd64",
		"modprobe: ERROR: could not insert 'br_netfilter': Operation not permitted",
	},
	"conntrack_missing": {
		"error execution phase preflight: [preflight] Some fatal errors occurred:\n\t[ERROR " +
			"FileExisting-conntrack]: conntrack not found in system path",
	},
	"conntrack_full": {"kernel: nf_conntrack: nf_conntrack: table full, dropping packet"},
	"mtu": {
		"PING 10.88.0.11 (10.88.0.11) 1472(1500) bytes of data.\nping: local error: message too long, mtu=1450",
	},
	"runtime_down": {
		"error execution phase preflight: [preflight] Some fatal errors occurred:\n\t[ERROR CRI]: could not " +
			"connect to the container runtime: failed to create new CRI runtime service: validate service " +
			"connection: validate CRI v1 runtime API for endpoint \"unix:///run/containerd/containerd.sock\": " +
			"rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: " +
			"dial unix /run/containerd/containerd.sock: connect: no such file or directory\"",
	},
	"preflight": {
		"error execution phase preflight: [preflight] Some fatal errors occurred:\n\t[ERROR Mem]: the system " +
			"RAM (945 MB) is less than the minimum 1700 MB",
	},
}

func TestRealMessages(t *testing.T) {
	t.Parallel()
	for want, messages := range realMessages {
		for _, m := range messages {
			if c := causeOf(BuiltInCauses(), Failure{Msg: "non-zero return code", Tail: m}); c == nil || c.ID != want {
				t.Errorf("%s: explained by %+v\n%s", want, c, m)
			}
		}
	}
}

// docs/reference/causes.md lists what is built in.
func TestCausesPage(t *testing.T) {
	t.Parallel()
	const path = "../../docs/reference/causes.md"
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const mark = "<!-- The rest is generated from director/ansible/causes.yml by make generate. -->\n"
	text, _, ok := strings.Cut(string(have), mark)
	if !ok {
		t.Fatalf("%s has lost its mark %q", path, mark)
	}
	want := text + mark + causesTable(BuiltInCauses())
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("%s is stale; run: make generate\n%s", path, diff)
	}
}

func causesTable(causes []Cause) string {
	var b strings.Builder
	b.WriteString("\n| id | class | the task failed because | what to do |\n|---|---|---|---|\n")
	for _, c := range causes {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.ID, c.Class, c.Explain, strings.ReplaceAll(c.Hint, "|", "\\|"))
	}
	return b.String()
}

// The command and the lines that matter stand below the line that says what failed, and equal failures are one.
func TestDescribe(t *testing.T) {
	t.Parallel()
	var failures []Failure
	for _, n := range []string{"a", "lb", "x"} {
		failures = append(failures, Failure{Host: n})
	}
	for i := 1; i <= 40; i++ {
		failures = append(failures, Failure{Host: fmt.Sprintf("node-%d", i)})
	}
	for i := range failures {
		f := &failures[i]
		f.Role, f.Task, f.Msg, f.Command = "worker", "Join", "non-zero return code",
			"kubeadm join --config /etc/kubernetes/join.yaml"
		f.Tail = "[preflight] Running pre-flight checks\n\t[ERROR Swap]: running with swap on is not supported on " +
			f.Host +
			"\n[preflight] If you know what you are doing, you can make a check non-fatal\nTo see the stack trace " +
			"of this error execute with --v=5 or higher"
	}
	failures = append(failures, Failure{Host: "m1", Task: "Gate", Msg: "odd"})
	e := &PlayError{Groups: group(failures, BuiltInCauses())}
	want := `hosts a, lb, node-1..node-40, x: task 'worker : Join' failed: [ERROR Swap]: running with swap on is ` +
		`not supported on a (swap is on, ` +
		`and the kubelet does not start with it)
  command: kubeadm join --config /etc/kubernetes/join.yaml
  | [preflight] Running pre-flight checks
host m1: task 'Gate' failed: odd`
	if diff := cmp.Diff(want, describe(e.Groups, nil, hint(e, hintFailed))); diff != "" {
		t.Error(diff)
	}
}

func TestCompress(t *testing.T) {
	t.Parallel()
	for want, hosts := range map[string][]string{
		"host a":                              {"a"},
		"hosts a, b":                          {"b", "a"},
		"hosts node-2, node-10":               {"node-10", "node-2"},
		"hosts node-8..node-11":               {"node-10", "node-11", "node-8", "node-9"},
		"hosts n08..n10, n12, n13":            {"n12", "n13", "n10", "n09", "n08"},
		"hosts a, b, c, d, e and 3 more":      {"a", "b", "c", "d", "e", "f", "g", "h"},
		"hosts a1..a3, b, c, d, e and 4 more": {"a1", "a2", "a3", "b", "c", "d", "e", "x1", "x2", "x3", "z"},
		"some hosts":                          nil,
	} {
		if got := list(hosts); got != want {
			t.Errorf("%v: %q, want %q", hosts, got, want)
		}
	}
}
