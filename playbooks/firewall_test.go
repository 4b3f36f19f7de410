package playbooks_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// traffic loads the rules in a network namespace of its own, as a master, beside a table as kube-proxy has one, and
// sends packets from addresses of another namespace. It prints what came through. The rules are read twice, as by a
// reload, and taken away in the end.
const traffic = `set -eu
ip link set lo up
ip link add eth0 type veth peer name far
unshare --net sleep 300 &
other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
ip link set far netns $other
ip address add 10.0.0.1/24 dev eth0
ip link set eth0 up
far() { nsenter --net=/proc/$other/ns/net "$@"; }
far ip link set lo up
far ip link set far up
for n in 2 4 66 200; do far ip address add 10.0.0.$n/24 dev far; done
nft 'add table ip kube-proxy; add chain ip kube-proxy input { type filter hook input priority 0; }; add rule ip ` +
	`kube-proxy input counter accept'
nft -f RULES
nft -f RULES
nft list table ip kube-proxy >/dev/null
python3 - <<'PY' &
import select, socket, time
servers = []
for port in (2379, 2380, 10250, 6443, 8301, 8600):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("10.0.0.1", port)); ` +
	`s.listen(); servers.append(s)
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, 112); servers.append(raw)
open("READY", "w").close()
while True:
    for s in select.select(servers, [], [])[0]:
        if s is raw:
            print("advert from", raw.recvfrom(2048)[1][0], flush=True)
        else:
            s.accept()[0].close()
PY
until [ -e READY ]; do :; done
cat >ask.py <<'PY'
import socket, sys
for source in ("10.0.0.2", "10.0.0.4", "10.0.0.66", "10.0.0.200"):
    for port in (2379, 2380, 10250, 6443, 8301, 8600):
        s = socket.socket(); s.settimeout(1); s.bind((source, 0))
        try:
            s.connect(("10.0.0.1", port)); print("connected", source, port, flush=True)
        except OSError:
            pass
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, 112); raw.bind((source, 0)); raw.sendto(b"advert", ` +
	`("10.0.0.1", 0))
PY
far python3 ask.py
python3 -c 'import socket; socket.create_connection(("10.0.0.1", 2379), 1); print("connected itself 2379")'
kill %2
nft delete table inet kaas
nft list tables
`

// TestFirewall lets real packets at the rules that a master gets: from another master, from a worker, from a stranger,
// and from the director.
func TestFirewall(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(
		t.Context(), "unshare", "--user", "--map-root-user", "--net", "sh", "-c", "command -v nft && nft list tables",
	).Run(); err != nil {
		t.Skipf("no nft in a network namespace here: %v", err)
	}
	dir := t.TempDir()
	vars, err := json.Marshal(map[string]any{
		"node_firewall_root": dir, "node_firewall_live": false, "node_firewall_master": true,
		"node_firewall_masters": []string{
			"10.0.0.1", "10.0.0.2",
		},
		"node_firewall_nodes":   []string{"10.0.0.1", "10.0.0.2", "10.0.0.4", "10.244.0.0/16"},
		"node_firewall_sources": []string{"10.0.0.200"}, "node_firewall_consul": true,
		"node_firewall_gossip": []string{"10.0.0.64/26"},
	})
	if err != nil {
		t.Fatal(err)
	}
	play := filepath.Join(dir, "play.yml")
	text := "- hosts: localhost\n  connection: local\n  gather_facts: false\n  roles:\n    - role: node_firewall\n"
	for path, content := range map[string]string{play: text, filepath.Join(dir, "vars.json"): string(vars)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(
		t.Context(), "ansible-playbook", "-i", "localhost,", "-e", "@"+filepath.Join(dir, "vars.json"), play,
	)
	cmd.Env = append(os.Environ(), "ANSIBLE_CONFIG=ansible.cfg", "ANSIBLE_HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ansible-playbook: %v\n%s", err, out)
	}
	script := strings.NewReplacer(
		"RULES", filepath.Join(dir, "etc/kaas/firewall.nft"), "READY", filepath.Join(dir, "ready"),
	).Replace(traffic)
	cmd = exec.CommandContext(
		t.Context(), "unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "bash", "-c",
		script,
	)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := map[string]bool{"connected itself 2379": true, "table ip kube-proxy": true, "table inet kaas": false}
	for source, may := range map[string][]int{
		"10.0.0.2": {2379, 2380, 10250, 6443, 8600}, "10.0.0.4": {10250, 6443, 8600}, "10.0.0.66": {6443, 8301},
		"10.0.0.200": {2379, 10250, 6443},
	} {
		for _, port := range []int{2379, 2380, 10250, 6443, 8301, 8600} {
			want[fmt.Sprint("connected ", source, " ", port)] = false
		}
		for _, port := range may {
			want[fmt.Sprint("connected ", source, " ", port)] = true
		}
		want["advert from "+source] = source == "10.0.0.2"
	}
	for line, seen := range want {
		if strings.Contains("\n"+string(out), "\n"+line+"\n") != seen {
			t.Errorf("%q: want %t", line, seen)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
