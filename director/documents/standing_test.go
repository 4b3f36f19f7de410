package documents

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

const virtSpec = `  type: libvirt
  libvirt:
    hosts:
      - {name: h1, uri: "qemu+ssh://root@h1/system?keyfile=/keys/a", pool: images, diskPool: fast}
      - {name: h2, uri: "qemu+ssh://root@h2/system"}
`

const standingDocs = `apiVersion: kaas/v1
kind: Provider
metadata: {name: virt}
spec:
` + virtSpec + `---
apiVersion: kaas/v1
kind: Provider
metadata: {name: vc}
spec:
  type: vsphere
  vsphere: {url: "https://vc.example.org/sdk", credentials: vc, datacenter: dc, cluster: cl, datastores: [ds1, ds2]}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: nfs}
spec: {provider: virt, mode: nat, cidr: 10.90.0.0/24, gateway: 10.90.0.1, pool: {ranges: [10.90.0.10-10.90.0.20], ` +
	`from: 10.90.0.30, to: 10.90.0.40}}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: br}
spec: {provider: virt, mode: bridge, bridge: br0, vlan: 5, cidr: 10.91.0.0/24, pool: {from: 10.91.0.10, to: 10.91.0.90}}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: pg}
spec: {provider: vc, mode: portgroup, portGroup: PG1, cidr: 10.92.0.0/24, pool: {from: 10.92.0.10, to: 10.92.0.90}}
---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: runs}
spec:
  release: k8s
  provider: virt
  image: node
  network: nfs
  masters: {count: 1}
  workers: [{name: w, count: 1}]
  pods: {cidr: 10.244.0.0/16}
---
apiVersion: kaas/v1
kind: Director
metadata: {name: outer}
spec:
  provider: virt
  network: nfs
  host: h1
  credentials: outer-admin
  dataDisk: 100GiB
  image: {sha256: "0000000000000000000000000000000000000000000000000000000000000000"}
`

// edit is a change of a document: the text instead of another.
type edit struct{ kind, name, old, replacement string }

// refusedEdits has, for each field that model.EffectOf says is refused, a change of it.
var refusedEdits = map[string]edit{
	"Provider spec.type": {
		"Provider", "virt", virtSpec, "  type: sim\n  sim: {hosts: [{name: h1}]}\n",
	},
	"Provider spec.libvirt.hosts[]":          {"Provider", "virt", "{name: h1", "{name: h3"},
	"Provider spec.libvirt.hosts[].uri":      {"Provider", "virt", "root@h1", "root@other"},
	"Provider spec.libvirt.hosts[].pool":     {"Provider", "virt", "pool: images", "pool: others"},
	"Provider spec.libvirt.hosts[].diskPool": {"Provider", "virt", "diskPool: fast", "diskPool: slow"},
	"Provider spec.vsphere.url":              {"Provider", "vc", "vc.example.org", "vc2.example.org"},
	"Provider spec.vsphere.datacenter":       {"Provider", "vc", "datacenter: dc", "datacenter: dc2"},
	"Provider spec.vsphere.cluster":          {"Provider", "vc", "cluster: cl", "cluster: cl2"},
	"Provider spec.vsphere.dataDatastore":    {"Provider", "vc", "datacenter", "dataDatastore: ds2, datacenter"},
	"Provider spec.sim.hosts[]":              {"Provider", "lab", "{name: h1}, ", ""},
	"Network spec.provider":                  {"Network", "br", "provider: virt", "provider: lab"},
	"Network spec.mode":                      {"Network", "nfs", "mode: nat", "mode: open"},
	"Network spec.bridge":                    {"Network", "br", "br0", "br1"},
	"Network spec.portGroup":                 {"Network", "pg", "PG1", "PG2"},
	"Network spec.cidr":                      {"Network", "nfs", "10.90.0.0/24", "10.90.0.0/16"},
	"Network spec.gateway":                   {"Network", "nfs", "gateway: 10.90.0.1", "gateway: 10.90.0.2"},
	"Network spec.vlan":                      {"Network", "br", "vlan: 5", "vlan: 6"},
	"Network spec.switch":                    {"Network", "br", "vlan: 5", "vlan: 5, switch: openvswitch"},
	"Network spec.pool.from":                 {"Network", "br", "from: 10.91.0.10", "from: 10.91.0.13"},
	"Network spec.pool.to":                   {"Network", "br", "to: 10.91.0.90", "to: 10.91.0.11"},
	"Network spec.pool.exclude":              {"Network", "nfs", "{ranges", "{exclude: [10.90.0.12], ranges"},
	"Network spec.pool.ranges":               {"Network", "nfs", "10.90.0.10-", "10.90.0.13-"},
	"Cluster spec.provider": {
		"Cluster", "runs", "provider: virt\n  image: node\n  network: nfs",
		"provider: lab\n  image: node\n  network: net",
	},
	"Cluster spec.network":   {"Cluster", "runs", "network: nfs", "network: br"},
	"Cluster spec.pods.cidr": {"Cluster", "runs", "10.244.0.0/16", "10.245.0.0/16"},
	"Cluster spec.pods.mtu":  {"Cluster", "runs", "pods: {", "pods: {mtu: 1400, "},
	"Cluster spec.services.cidr": {
		"Cluster", "runs", "  pods:", "  services: {cidr: 10.97.0.0/16}\n  pods:",
	},
	"Cluster spec.services.domain": {
		"Cluster", "runs", "  pods:", "  services: {domain: other.local}\n  pods:",
	},
	"Cluster spec.api.vip": {"Cluster", "runs", "  pods:", "  api: {vip: 10.90.0.5}\n  pods:"},
	"Cluster spec.api.names": {
		"Cluster", "runs", "  pods:", "  api: {names: [k8s.example.org]}\n  pods:",
	},
	"Cluster spec.etcd.heartbeatInterval": {
		"Cluster", "runs", "  pods:", "  etcd: {heartbeatInterval: 150ms}\n  pods:",
	},
	"Cluster spec.etcd.electionTimeout": {"Cluster", "runs", "  pods:", "  etcd: {electionTimeout: 2s}\n  pods:"},
	"Cluster spec.sshKeys":              {"Cluster", "runs", "  pods:", "  sshKeys: [" + adminKey + "]\n  pods:"},
	"Cluster spec.hostAliases": {
		"Cluster", "runs", "  pods:", "  hostAliases: [{address: 10.9.9.9, names: [nfs]}]\n  pods:",
	},
	"Cluster spec.vars": {"Cluster", "runs", "  pods:", "  vars: {setup_chrony: false}\n  pods:"},
	"Cluster spec.masters.count": {
		"Cluster", "runs", "masters: {count: 1}\n", "masters: {count: 3}\n  api: {vip: 10.90.0.5}\n",
	},
	"Director spec.provider": {
		"Director", "outer", "provider: virt\n  network: nfs\n  host: h1", "provider: lab\n  network: net",
	},
	"Director spec.network": {"Director", "outer", "network: nfs", "network: br"},
	"Director spec.host":    {"Director", "outer", "host: h1", "host: h2"},
	"Director spec.address": {"Director", "outer", "host: h1", "address: 10.90.0.50"},
	"Director spec.hostname": {
		"Director", "outer", "host: h1", "host: h1\n  hostname: other.example.org",
	},
	"Director spec.dataDisk":                  {"Director", "outer", "100GiB", "200GiB"},
	"Network spec.pool.from of another range": {"Network", "nfs", "10.90.0.10-10.90.0.20", "10.90.0.50-10.90.0.60"},
}

// acceptedEdits change what nothing depends on.
var acceptedEdits = map[string]edit{
	"the account and the files of a connection": {
		"Provider", "virt", "root@h1/system?keyfile=/keys/a", "kaas@h1/system?keyfile=/keys/b",
	},
	"the transport of a connection": {
		"Provider", "virt", "qemu+ssh://root@h2/system", "qemu+tls://h2/system",
	},
	"a host without machines leads elsewhere": {"Provider", "virt", "root@h2", "root@h9"},
	"a host without machines goes": {
		"Provider", "virt", "      - {name: h2, uri: \"qemu+ssh://root@h2/system\"}\n", "",
	},
	"a host comes": {
		"Provider", "virt", "    hosts:\n", "    hosts:\n      - {name: h0, uri: \"qemu+ssh://root@h0/system\"}\n",
	},
	"another quota": {
		"Provider", "virt", "type: libvirt", "type: libvirt\n  quota: {machines: 9}",
	},
	"another folder": {"Provider", "vc", "datacenter: dc", "folder: f, datacenter: dc"},
	"the data datastore by its name": {
		"Provider", "vc", "datacenter: dc", "dataDatastore: ds1, datacenter: dc",
	},
	"a wider pool":       {"Network", "br", "10.91.0.90", "10.91.0.99"},
	"other name servers": {"Network", "nfs", "pool:", "dns: [10.90.0.1], pool:"},
	"another route": {
		"Network", "nfs", "pool:", "routes: [{to: 10.1.0.0/16, via: 10.90.0.3}], pool:",
	},
	"a hole where no machine is":  {"Network", "nfs", "{ranges", "{exclude: [10.90.0.19], ranges"},
	"one worker more":             {"Cluster", "runs", "{name: w, count: 1}", "{name: w, count: 2}"},
	"larger masters":              {"Cluster", "runs", "{count: 1}", "{count: 1, cpus: 4}"},
	"nothing":                     {"Cluster", "runs", "", ""},
	"another image of a director": {"Director", "outer", "{sha256: \"0", "{sha256: \"1"},
}

const adminKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMBe3Lkx1Wd8XFJdJ5dEhvmEEHsLQYmoLY4n0UfLZkYi"

// While machines are there, each field that they depend on is refused by its name, in a dry run too. Everything else
// may change, and so may these once the machines have gone.
func TestFieldsThatMachinesDependOnAreRefused(t *testing.T) {
	t.Parallel()
	docs := map[string]string{}
	for text := range strings.SplitSeq(standingDocs+"---\n"+
		"apiVersion: kaas/v1\nkind: Provider\nmetadata: {name: lab}\nspec: {type: sim, sim: {hosts: [{name: h1}, "+
		"{name: h2}]}}\n", "---\n") {
		d, err := model.Parse([]byte(text), "")
		if err != nil {
			t.Fatal(err)
		}
		docs[d[0].Ref().String()] = text
	}
	l := openStanding(t)
	apply := func(e edit, dry bool) error {
		was := docs[e.kind+"/"+e.name]
		text := strings.Replace(was, e.old, e.replacement, 1)
		if text == was && e.old != "" {
			t.Fatalf("%+v changes nothing", e)
		}
		_, err := l.Apply(t.Context(), "admin", []byte(text), "", dry)
		if err == nil && !dry {
			_, err = l.Apply(t.Context(), "admin", []byte(was), "", false)
		}
		return err
	}
	for _, kind := range model.Kinds() {
		for _, path := range model.Leaves(kind) {
			e, _ := model.EffectOf(kind, path)
			// The name of an item is the item; the plugin has one value.
			same := strings.HasSuffix(path, "[].name") || path == "spec.pods.plugin"
			if _, ok := refusedEdits[string(kind)+" "+path]; e.Effect == model.Refused && !ok && !same {
				t.Errorf("no case changes %s %s", kind, path)
			}
		}
	}
	for what, e := range refusedEdits {
		path, _, _ := strings.Cut(strings.Fields(what)[1], "[]")
		if strings.HasPrefix(path, "spec.pool.") {
			path = "spec.pool"
		}
		for _, dry := range []bool{true, false} {
			err := apply(e, dry)
			named := slices.ContainsFunc(director.FieldsOf(err), func(f director.Field) bool {
				return strings.HasPrefix(f.Path, e.kind+"/"+e.name+": "+path) && f.Hint != ""
			})
			if director.KindOf(err) != director.KindInvalid || !named ||
				!strings.Contains(err.Error(), "what exists depends") {
				t.Errorf("%s (dry run: %v): got %v", what, dry, err)
			}
		}
	}
	for what, e := range acceptedEdits {
		if err := apply(e, false); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A kept disk holds its host as a machine does.
	for _, id := range []string{"m1", "m2", "m3", "m4", "m5"} {
		if err := l.Store.BuryMachine(t.Context(), id, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	disk := director.KeptDisk{
		ID: "d1", Provider: "virt", Host: "h1", Machine: "m1", Name: "data", Cluster: "runs", Kept: time.Now(),
	}
	if err := l.Store.KeepDisks(t.Context(), []director.KeptDisk{disk}); err != nil {
		t.Fatal(err)
	}
	if err := apply(
		refusedEdits["Provider spec.libvirt.hosts[]"], false,
	); !strings.Contains(err.Error(), "1 kept disks") {
		t.Errorf("a kept disk: %v", err)
	}
	for _, what := range []string{
		"Network spec.cidr", "Network spec.bridge", "Provider spec.vsphere.datacenter", "Provider spec.sim.hosts[]",
	} {
		if err := apply(refusedEdits[what], false); err != nil {
			t.Errorf("%s without machines: %v", what, err)
		}
	}
}

// openStanding is a lab with the documents, with a machine of a cluster that runs on each of their networks.
func openStanding(t *testing.T) *lab {
	t.Helper()
	l := openLab(t, 0, 0)
	ctx := t.Context()
	l.c.Confine.ProviderFiles = confine.Dirs{"/keys"}
	if _, err := l.Apply(ctx, "admin", []byte(standingDocs), "", false); err != nil {
		t.Fatal(err)
	}
	doc, err := l.Document(ctx, model.Ref{Kind: model.KindCluster, Name: "runs"})
	if err != nil {
		t.Fatal(err)
	}
	machine := func(id, provider, host, network, address string) director.Machine {
		return director.Machine{
			ID: id, Cluster: "runs", ClusterUID: doc.UID, Name: "runs-" + id, Provider: provider, Host: host,
			Network: network, Address: address, MAC: "52:54:00:00:00:0" + id[1:],
		}
	}
	other, err := l.Document(ctx, model.Ref{Kind: model.KindDirector, Name: "outer"})
	if err != nil {
		t.Fatal(err)
	}
	outer := machine("m5", "virt", "", "nfs", "10.90.0.13")
	outer.Cluster, outer.ClusterUID, outer.Name, outer.Role = "outer", other.UID, "outer", director.RoleDirector
	err = l.AddPlan(ctx, "p1", true, machine(
		"m1", "virt", "h1", "nfs", "10.90.0.12",
	), machine("m2", "virt", "h1", "br", "10.91.0.12"),
		machine("m3", "vc", "", "pg", "10.92.0.12"), machine("m4", "lab", "h1", "net", "10.64.1.9"), outer)
	if err == nil {
		err = l.Store.Update(ctx, func(tx *store.Tx) error {
			return tx.PutInstalled(store.Installed{
				UID: doc.UID, Name: "runs", Generation: 1, Document: doc.Document, Endpoint: "10.90.0.12:6443",
				At: time.Now(),
			})
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}
