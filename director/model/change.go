package model

import (
	"fmt"
	"reflect"
)

// Effect is what a change of a field means while machines exist that the document is about.
type Effect string

// The effects.
const (
	Refused Effect = "refused" // the machines depend on what it was, and apply says so
	Planned Effect = "planned" // the next plan of the cluster brings it about
	Later   Effect = "later"   // it holds for what is made or done from then on; what exists stays as it is
)

// FieldEffect is the effect of a field's change, with the reason.
type FieldEffect struct {
	Effect
	Why string
}

const (
	whyNew      = "VMs that are made from then on have it"
	whyUnsigned = "the next plan reads it"
	whyChecked  = "it is checked when VMs are made"
	whyLogin    = "it is how the director reaches the same provider"
	whyHosts    = "the director would not find the VMs any more"
	whyCluster  = "nodes and certificates are made with it"
)

// effects says of each field what its change means. An entry of a list holds for everything below the list; lists whose
// items have a name have an entry of their own for items that come and go, which ends in [].
var effects = map[Kind]map[string]FieldEffect{
	KindProvider: merged(
		of(Refused, whyHosts, "spec.type", "spec.libvirt.hosts[]", "spec.libvirt.hosts[].name",
			"spec.libvirt.hosts[].uri",
			"spec.vsphere.url", "spec.vsphere.datacenter", "spec.vsphere.cluster", "spec.sim.hosts[]",
			"spec.sim.hosts[].name"),
		of(Refused, "the disks of the VMs are there",
			"spec.libvirt.hosts[].pool", "spec.libvirt.hosts[].diskPool", "spec.vsphere.dataDatastore"),
		of(Later, whyNew, "spec.libvirt.domainType", "spec.libvirt.diskCache", "spec.libvirt.autostart",
			"spec.libvirt.machineType",
			"spec.libvirt.firmware", "spec.libvirt.cpuMode", "spec.libvirt.guestAgent", "spec.vsphere.resourcePool",
			"spec.vsphere.folder",
			"spec.vsphere.hosts", "spec.vsphere.datastores", "spec.vsphere.templateDatastore",
			"spec.vsphere.templateFolder",
			"spec.vsphere.clone", "spec.vsphere.firmware", "spec.vsphere.clusterPools",
			"spec.vsphere.customAttributes"),
		of(Later, whyLogin, "spec.vsphere.credentials", "spec.vsphere.user", "spec.vsphere.passwordFile",
			"spec.vsphere.thumbprint",
			"spec.vsphere.caFile"),
		of(Later, whyChecked, "spec.quota.machines", "spec.quota.cpus", "spec.quota.memory", "spec.budget.creations",
			"spec.budget.per",
			"spec.clusterQuota.machines", "spec.clusterQuota.cpus", "spec.clusterQuota.memory",
			"spec.overcommit.cpuPercent",
			"spec.overcommit.memoryPercent"),
		of(Later, "the provider only pretends", "spec.sim.hosts[].cpus", "spec.sim.hosts[].memory",
			"spec.sim.hosts[].disk",
			"spec.sim.verbs", "spec.sim.boot", "spec.sim.bootJitter", "spec.sim.seed"),
	),
	KindImage: merged(
		of(Planned, "nodes that are recreated in an upgrade are made of it", "spec.sha256"),
		of(
			Later, "it is where the file is read, or what it holds", "spec.source", "spec.format", "spec.arch",
			"spec.kubernetes",
		),
		of(Later, whyUnsigned, "spec.unsigned"),
		of(Later, whyNew, "spec.cleanUp.what", "spec.cleanUp.paths"),
	),
	KindRelease: merged(
		of(Planned, "clusters of the release are upgraded to it", "spec.kubernetes"),
		of(Later, "it is the bundle that the next plan reads", "spec.bundle", "spec.digest"),
		of(Later, whyUnsigned, "spec.unsigned"),
	),
	KindNetwork: merged(
		of(Refused, "the addresses of the machines are valid by it", "spec.provider", "spec.mode", "spec.bridge",
			"spec.portGroup",
			"spec.cidr", "spec.gateway", "spec.vlan", "spec.switch"),
		of(Refused, "addresses of machines stay in the pool, or out of it; the rest may change", "spec.pool.from",
			"spec.pool.to",
			"spec.pool.exclude", "spec.pool.ranges"),
		of(Later, whyNew, "spec.dns", "spec.ntp", "spec.routes"),
	),
	KindCluster: merged(
		of(Refused, whyCluster, "spec.provider", "spec.network", "spec.pods.plugin", "spec.pods.cidr", "spec.pods.mtu",
			"spec.services.cidr", "spec.services.domain", "spec.api.vip", "spec.api.names",
			"spec.etcd.heartbeatInterval",
			"spec.etcd.electionTimeout", "spec.sshKeys", "spec.hostAliases", "spec.vars"),
		of(Planned, "nodes are added, removed or upgraded", "spec.release", "spec.image", "spec.masters.count",
			"spec.workers[]",
			"spec.workers[].name", "spec.workers[].count"),
		of(Planned, "nodes whose image is another one are recreated", "spec.maintenance.strategy"),
		of(Later, "it is how later plans and repairs work", "spec.maintenance.maxUnavailable",
			"spec.maintenance.maxUnavailablePerHost",
			"spec.maintenance.drainTimeout", "spec.maintenance.deleteEmptyDirData", "spec.maintenance.evictUnmanaged",
			"spec.maintenance.keepFailed", "spec.maintenance.rollback",
			"spec.maintenance.repair.auto", "spec.maintenance.repair.after",
			"spec.maintenance.repair.maxPerDay", "spec.maintenance.repair.maxUnhealthyPercent"),
		of(Later, "it says who may see the cluster", "spec.project"),
		of(Later, "the entries of the API server follow it within minutes, and what is synced with the next plan",
			"spec.discovery.consul"),
		of(Planned, "the sync with Consul is installed, changed or removed; no node is touched",
			"spec.discovery.export.loadBalancer", "spec.discovery.export.ingress", "spec.discovery.export.annotated",
			"spec.discovery.export.names", "spec.discovery.import", "spec.discovery.dns"),
		of(Planned, "the agents of Consul are installed on the nodes or removed; no pod is touched",
			"spec.discovery.agents"),
		of(Later, "the next rotation of the authority follows it: directorctl rotate cluster-ca, etcd-ca or "+
			"front-proxy-ca", "spec.certificates.authority", "spec.certificates.etcd", "spec.certificates.frontProxy"),
		of(Later, "it is where later backups go", "spec.backup.targets", "spec.backup.maxAge"),
		of(Later, "it is for later drills", "spec.backup.drill.network", "spec.backup.drill.maxAge"),
		of(Later, whyNew, "spec.masters.size", "spec.workers[].labels", "spec.workers[].taints"),
		ofNodes(Later, whyNew, "cpus", "memory", "disk", "dataDisk", "persist", "interfaces", "sshKeys", "hostAliases",
			"ntp",
			"repositories", "packages", "scripts", "shares", "health.command", "health.interval", "health.timeout"),
		ofNodes(Planned, "the agents of Consul on the nodes register them, or take them out", "services"),
		ofNodes(Later, "a node has it once it is made, rejoins or is upgraded", "reserved.kubelet.cpu",
			"reserved.kubelet.memory",
			"reserved.kubelet.disk", "reserved.kubelet.pids", "reserved.system.cpu", "reserved.system.memory",
			"reserved.system.disk",
			"reserved.system.pids"),
	),
	KindSchedule: of(Later, "no machine depends on it; the next slot is by it", "spec.cron", "spec.timeZone",
		"spec.job.name",
		"spec.job.params", "spec.suspend", "spec.deadline"),
	KindIdentityProvider: of(Later, "no machine depends on it; people are asked for by it from then on", "spec.type",
		"spec.order", "spec.servers", "spec.startTLS", "spec.ca", "spec.credentials", "spec.userBase",
		"spec.userFilter", "spec.userName", "spec.fullName", "spec.mail", "spec.groupBase", "spec.groupFilter",
		"spec.member", "spec.roles", "spec.refresh", "spec.title", "spec.issuer", "spec.scopes",
		"spec.groupsClaim"),
	KindProject: of(Later, "no machine depends on it; it is checked when documents are applied", "spec.description",
		"spec.providers", "spec.networks", "spec.quota.clusters", "spec.quota.machines", "spec.quota.cpus",
		"spec.quota.memory"),
	KindGrant: of(Later, "no machine depends on it; it counts from the next request", "spec.users", "spec.groups",
		"spec.role", "spec.project", "spec.cluster"),
	KindConsul: merged(
		of(Later, "no machine depends on it; the director asks and registers by it from then on", "spec.addresses",
			"spec.datacenter", "spec.domain", "spec.dns", "spec.tls.ca", "spec.tls.serverName", "spec.credentials",
			"spec.gossip", "spec.agents.director"),
		of(Later, "new nodes follow it, and those that there are with directorctl rotate consul-token",
			"spec.agents.join", "spec.agents.program.url", "spec.agents.program.sha256", "spec.agents.program.ca",
			"spec.agents.autoEncrypt", "spec.agents.networks"),
	),
	KindCertificateAuthority: of(Later, "authorities that are issued from then on are by it", "spec.type",
		"spec.certificate", "spec.credentials", "spec.subject", "spec.stepCA.url", "spec.stepCA.rootFingerprint",
		"spec.stepCA.provisioner", "spec.stepCA.credentials", "spec.life", "spec.leastLife"),
	KindDirector: merged(
		of(Refused, "the VM is there", "spec.provider", "spec.network", "spec.host", "spec.address", "spec.hostname",
			"spec.dataDisk"),
		of(Planned, "the VM is made again of it: directorctl director upgrade", "spec.cpus", "spec.memory",
			"spec.disk", "spec.image.sha256"),
		of(Later, whyNew, "spec.image.source", "spec.image.unsigned"),
		of(Later, "the VM is told at its first boot alone", "spec.sshKeys", "spec.credentials", "spec.certificate"),
	),
	KindBackupTarget: of(Later, "no machine depends on it; later backups follow it", "spec.type", "spec.directory",
		"spec.s3.url", "spec.s3.bucket", "spec.s3.prefix", "spec.s3.region", "spec.s3.credentials", "spec.s3.ca",
		"spec.recipients", "spec.retention.count", "spec.retention.days"),
	KindHook: merged(
		of(Later, "plans that are made from then on call it so", "spec.phases", "spec.select.clusters",
			"spec.select.roles", "spec.mode", "spec.deadline", "spec.onDeadline", "spec.onRefuse"),
		of(Later, "the next request is sent so", "spec.url", "spec.timeout", "spec.allow", "spec.tls.ca",
			"spec.tls.clientCredentials", "spec.signature"),
		of(Later, "the next answer is taken so", "spec.answeredBy"),
	),
	KindNotification: of(Later, "no machine depends on it; the next message is sent so", "spec.about",
		"spec.select.clusters", "spec.quiet", "spec.group", "spec.certificatesWithin", "spec.mail.server",
		"spec.mail.port", "spec.mail.tls", "spec.mail.ca", "spec.mail.from", "spec.mail.to", "spec.mail.credentials",
		"spec.mail.allow", "spec.webhook.url", "spec.webhook.timeout", "spec.webhook.signature", "spec.webhook.ca",
		"spec.webhook.clientCredentials", "spec.webhook.allow"),
}

func of(e Effect, why string, paths ...string) map[string]FieldEffect {
	out := make(map[string]FieldEffect, len(paths))
	for _, p := range paths {
		out[p] = FieldEffect{e, why}
	}
	return out
}

// ofNodes is of for fields that masters and pools of workers have alike.
func ofNodes(e Effect, why string, names ...string) map[string]FieldEffect {
	var paths []string
	for _, n := range names {
		paths = append(paths, "spec.masters."+n, "spec.workers[]."+n)
	}
	return of(e, why, paths...)
}

func merged(tables ...map[string]FieldEffect) map[string]FieldEffect {
	out := map[string]FieldEffect{}
	for _, t := range tables {
		for p, e := range t {
			if _, twice := out[p]; twice {
				panic("model: two effects of " + p)
			}
			out[p] = e
		}
	}
	return out
}

// EffectOf returns what a change of the field means, and false if the table does not say. field is a path with [] for
// the items of lists, such as spec.libvirt.hosts[].uri.
func EffectOf(k Kind, field string) (FieldEffect, bool) {
	e, ok := effects[k][field]
	return e, ok
}

// FieldChange is a field that differs between two documents.
type FieldChange struct {
	Field   string // as EffectOf wants it
	At      string // the same with the item's number in the newer document; its number in the older if it is gone
	Item    string // name of the list's item that it is in, if it is in one
	Was, Is any
}

// Changes returns the fields in which two documents of one kind differ, in the order of the type's fields. Items of
// lists that have a name are compared with the item of the same name; other lists are compared as a whole.
func Changes(was, is Document) []FieldChange {
	return changes(
		nil, FieldChange{Field: "spec", At: "spec"}, reflect.ValueOf(was.Spec()).Elem(),
		reflect.ValueOf(is.Spec()).Elem(),
	)
}

func changes(out []FieldChange, at FieldChange, was, is reflect.Value) []FieldChange {
	for _, f := range fieldsOf(was.Type()) {
		a, b := was.FieldByIndex(f.index), is.FieldByIndex(f.index)
		if f.typ.Kind() == reflect.Pointer {
			a, b = reflect.Indirect(orZero(a)), reflect.Indirect(orZero(b))
		}
		next := FieldChange{Field: join(at.Field, f.name), At: join(at.At, f.name), Item: at.Item}
		switch {
		case a.Kind() == reflect.Struct && !isText(a.Type()):
			out = changes(out, next, a, b)
		case named(f.typ):
			out = items(out, next, a, b)
		case !alike(a, b):
			next.Was, next.Is = a.Interface(), b.Interface()
			out = append(out, next)
		}
	}
	return out
}

func orZero(p reflect.Value) reflect.Value {
	if p.IsNil() {
		return reflect.New(p.Type().Elem())
	}
	return p
}

// named reports whether the list's items are found by their names, and have effects of their own.
func named(t reflect.Type) bool {
	return t == reflect.TypeFor[[]LibvirtHost]() || t == reflect.TypeFor[[]SimHost]() ||
		t == reflect.TypeFor[[]WorkerPool]()
}

func items(out []FieldChange, at FieldChange, was, is reflect.Value) []FieldChange {
	number := func(list reflect.Value) map[string]int {
		of := map[string]int{}
		for i := range list.Len() {
			of[list.Index(i).FieldByName("Name").String()] = i
		}
		return of
	}
	before, after := number(was), number(is)
	for i := range was.Len() {
		name := was.Index(i).FieldByName("Name").String()
		next := FieldChange{Field: at.Field + "[]", Item: name}
		j, there := after[name]
		if !there {
			next.At, next.Was = fmt.Sprintf("%s[%d]", at.At, i), name
			out = append(out, next)
			continue
		}
		next.At = fmt.Sprintf("%s[%d]", at.At, j)
		out = changes(out, next, was.Index(i), is.Index(j))
	}
	for j := range is.Len() {
		name := is.Index(j).FieldByName("Name").String()
		if _, there := before[name]; !there {
			out = append(out, FieldChange{
				Field: at.Field + "[]", At: fmt.Sprintf("%s[%d]", at.At, j), Item: name, Is: name,
			})
		}
	}
	return out
}

func alike(a, b reflect.Value) bool {
	if k := a.Kind(); (k == reflect.Slice || k == reflect.Map) && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// Leaves returns the fields of documents of the kind that hold no further fields with effects of their own, in order,
// and with them the lists of named items with [] at the end.
func Leaves(k Kind) []string {
	d := Document{Kind: k}
	return leaves(nil, "spec", reflect.TypeOf(d.Spec()).Elem())
}

func leaves(out []string, at string, t reflect.Type) []string {
	for _, f := range fieldsOf(t) {
		path, inner := join(at, f.name), deref(f.typ)
		switch {
		case inner.Kind() == reflect.Struct && !isText(inner):
			out = leaves(out, path, inner)
		case named(f.typ):
			out = leaves(append(out, path+"[]"), path+"[]", inner.Elem())
		default:
			out = append(out, path)
		}
	}
	return out
}
