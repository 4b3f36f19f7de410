package model

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/libvirturi"
)

var (
	labelPattern   = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)
	releasePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	versionPattern = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)
	sha256Pattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	taintPattern   = regexp.MustCompile(`^[A-Za-z0-9./_-]+(=[A-Za-z0-9._-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)$`)
	machinePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	domainPattern  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

// Validate returns every problem of the document by itself, as one invalid error, or nil. Default must have been
// called. Warnings are advice that does not stop anything.
func Validate(d *Document) (warnings []string, err error) {
	v := validator{ref: Ref{Kind: d.Kind, Name: short(d.Metadata.Name)}}
	v.sizes("metadata", reflect.ValueOf(&d.Metadata).Elem())
	v.sizes("spec", reflect.ValueOf(d.Spec()).Elem())
	if len(v.problems) > 0 { // what follows compares the entries of lists with one another
		return nil, v.invalid()
	}
	switch d.Kind {
	case KindCluster, KindNetwork, KindProvider, KindSchedule, KindIdentityProvider, KindProject, KindGrant,
		KindBackupTarget, KindConsul, KindHook, KindNotification, KindCertificateAuthority, KindDirector:
		v.match(
			"metadata.name", d.Metadata.Name, labelPattern, "letters a-z, digits and dashes, beginning with a letter",
			40,
		)
	case KindImage, KindRelease:
		v.match("metadata.name", d.Metadata.Name, releasePattern, "letters a-z, digits, dots and dashes", 63)
	}
	v.contents(d)
	v.tags("spec", reflect.ValueOf(d.Spec()).Elem())
	switch d.Kind {
	case KindProvider:
		v.provider(d.Provider)
	case KindImage:
		v.match("spec.sha256", d.Image.SHA256, sha256Pattern, "64 hexadecimal digits, as sha256sum prints them", 64)
		v.match("spec.kubernetes", d.Image.Kubernetes, versionPattern, "a version such as v1.37.2", 20)
		v.absolute("spec.source", d.Image.Source)
		v.cleanUp(d.Image.CleanUp)
		v.words("spec.unsigned", d.Image.Unsigned)
	case KindRelease:
		v.match("spec.kubernetes", d.Release.Kubernetes, versionPattern, "a version such as v1.37.2", 20)
		v.bundle(d.Release)
		v.words("spec.unsigned", d.Release.Unsigned)
	case KindNetwork:
		v.network(d.Network)
	case KindCluster:
		v.cluster(d.Cluster)
	case KindSchedule:
		v.match("spec.job.name", d.Schedule.Job.Name, labelPattern, "the name of a job, such as backup", 40)
	case KindIdentityProvider:
		v.identityProvider(d.IdentityProvider)
	case KindProject:
	case KindGrant:
		v.grant(d.Grant)
	case KindBackupTarget:
		v.backupTarget(d.BackupTarget)
	case KindHook:
		v.hook(d.Hook)
	case KindConsul:
		v.consul(d.Consul)
	case KindNotification:
		v.notification(d.Notification)
	case KindCertificateAuthority:
		v.certificateAuthority(d.CertificateAuthority)
	case KindDirector:
		v.director(d.Director)
	}
	return v.warnings, v.invalid()
}

type validator struct {
	ref      Ref
	problems []director.Field
	warnings []string
	failed   int // problems, with those that are not kept
}

// vmValidator validates what documents say of VMs: sizes, adapters, and what is on them.
type vmValidator struct{ *validator }

func (v *validator) invalid() error {
	if more := v.failed - len(v.problems); more > 0 {
		v.problems = append(v.problems, director.Field{
			Path: v.ref.String(), Msg: fmt.Sprintf("has %d more problems", more),
		})
	}
	return director.Invalid("model.validate", v.ref.String()+" is not valid", v.problems)
}

func (v *validator) fail(path, hint, format string, args ...any) {
	if v.failed++; len(v.problems) >= maxProblems {
		return
	}
	v.problems = append(v.problems, director.Field{
		Path: v.ref.String() + ": " + path, Msg: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (v *validator) warn(path, format string, args ...any) {
	v.warnings = append(v.warnings, v.ref.String()+": "+path+" "+fmt.Sprintf(format, args...))
}

func (v *validator) match(path, value string, pattern *regexp.Regexp, want string, most int) {
	if len(value) > most {
		v.fail(path, fmt.Sprintf("at most %d characters", most), "is %d characters long", len(value))
	} else if !pattern.MatchString(value) {
		v.fail(path, want, "%q is not allowed", value)
	}
}

func (v *validator) absolute(path, value string) {
	if value != "" && !strings.HasPrefix(value, "/") {
		v.fail(path, "write the whole path, beginning with /", "%q is not an absolute path", value)
	}
}

// bundle wants one place where the bundle is.
func (v *validator) bundle(r *Release) {
	v.absolute("spec.bundle", r.Bundle)
	switch {
	case r.Bundle == "" && r.Digest == "":
		v.fail(
			"spec.digest", "import a bundle: directorctl release import FILE; or name a directory in spec.bundle",
			"is missing, and so is spec.bundle",
		)
	case r.Bundle != "" && r.Digest != "":
		v.fail("spec.bundle", "leave one of the two out", "is there, and so is spec.digest")
	case r.Digest != "":
		v.match("spec.digest", r.Digest, sha256Pattern, "64 hexadecimal digits, as directorctl release list shows", 64)
	}
}

// words asks for a reason and not for a yes, because others will read it.
func (v *validator) words(path, text string) {
	if text != "" && len(strings.Fields(text)) < 3 {
		v.fail(path, "say in three words or more why it is used without a signature", "%q is no reason", text)
	}
}

// tags checks what the tags of the types say: enum, min and max. Zero values of optional fields were left out.
func (v *validator) tags(path string, val reflect.Value) {
	for _, f := range fieldsOf(val.Type()) {
		field, at := val.FieldByIndex(f.index), join(path, f.name)
		if field.IsZero() && f.tag.Get("required") != "true" {
			continue
		}
		if enum := f.tag.Get("enum"); enum != "" {
			if got := fmt.Sprint(field.Interface()); !contains(strings.Split(enum, ","), got) {
				v.fail(at, "one of "+strings.ReplaceAll(enum, ",", ", "), "%q is not allowed", got)
			}
		}
		v.bounds(at, f.tag, field)
		switch {
		case field.Addr().Type().Implements(textUnmarshaler):
		case field.Kind() == reflect.Struct:
			v.tags(at, field)
		case field.Kind() == reflect.Pointer && !field.IsNil():
			v.tags(at, field.Elem())
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			for i := range field.Len() {
				if !field.Index(i).Addr().Type().Implements(textUnmarshaler) {
					v.tags(at+"["+strconv.Itoa(i)+"]", field.Index(i))
				}
			}
		}
	}
}

func (v *validator) bounds(at string, tag reflect.StructTag, field reflect.Value) {
	lo, hi := tag.Get("min"), tag.Get("max")
	if lo == "" && hi == "" {
		return
	}
	number := func(s string) int64 {
		n := reflect.New(field.Type()).Elem()
		setDefault(n, s)
		return n.Int()
	}
	if lo != "" && field.Int() < number(lo) {
		v.fail(at, "at least "+lo, "%v is too small", field.Interface())
	}
	if hi != "" && field.Int() > number(hi) {
		v.fail(at, "at most "+hi, "%v is too large", field.Interface())
	}
}

func (v *validator) provider(p *Provider) {
	for _, s := range []struct {
		kind string
		set  bool
	}{{ProviderLibvirt, p.Libvirt != nil}, {ProviderVSphere, p.VSphere != nil}, {ProviderSim, p.Sim != nil}} {
		if s.set && s.kind != p.Type {
			v.fail("spec."+s.kind, "leave it out, or set type: "+s.kind, "has no meaning for type %s", p.Type)
		}
	}
	switch p.Type {
	case ProviderSim:
		v.sim(p)
	case ProviderLibvirt:
		v.libvirt(p)
	case ProviderVSphere:
		v.vsphere(p)
	}
}

func (v *validator) sim(p *Provider) {
	if p.Sim == nil || len(p.Sim.Hosts) == 0 {
		v.fail("spec.sim.hosts", "name at least one host", "is empty")
		return
	}
	names := map[string]int{}
	for i, h := range p.Sim.Hosts {
		at := fmt.Sprintf("spec.sim.hosts[%d]", i)
		v.match(at+".name", h.Name, domainPattern, "a host name", 63)
		if first, twice := names[h.Name]; twice {
			v.fail(at+".name", "", "is the name of hosts[%d] too", first)
		}
		names[h.Name] = i
	}
	verbs := map[string]int{}
	for i, verb := range p.Sim.Verbs {
		if first, twice := verbs[verb.Verb]; twice {
			v.fail(fmt.Sprintf("spec.sim.verbs[%d].verb", i), "keep one", "is the verb of verbs[%d] too", first)
		}
		verbs[verb.Verb] = i
	}
}

func (v *validator) libvirt(p *Provider) {
	if p.Libvirt == nil || len(p.Libvirt.Hosts) == 0 {
		v.fail("spec.libvirt.hosts", "name at least one host with its uri", "is empty")
		return
	}
	if m := p.Libvirt.MachineType; m != "" && !machinePattern.MatchString(m) {
		v.fail("spec.libvirt.machineType", "a machine of QEMU, such as q35 or pc-q35-7.2", "%q is not allowed", m)
	}
	if p.Libvirt.CPUMode == "host-passthrough" && p.Libvirt.DomainType == "qemu" {
		v.fail(
			"spec.libvirt.cpuMode", "leave it out, or set domainType: kvm",
			"host-passthrough needs KVM, and domainType is qemu",
		)
	}
	names := map[string]int{}
	for i, h := range p.Libvirt.Hosts {
		at := fmt.Sprintf("spec.libvirt.hosts[%d]", i)
		v.match(at+".name", h.Name, domainPattern, "a host name", 63)
		if first, twice := names[h.Name]; twice {
			v.fail(at+".name", "", "is the name of hosts[%d] too", first)
		}
		names[h.Name] = i
		if h.DiskPool != "" && h.DiskPool == h.Pool {
			v.fail(at+".diskPool", "leave it out", "is the same as pool")
		}
		if _, err := libvirturi.Parse(h.URI); err != nil {
			v.fail(at+".uri", "such as "+libvirturi.Examples, "%s", err)
		}
	}
}

func (v *validator) network(n *Network) {
	if n.Mode == "bridge" && n.Bridge == "" {
		v.fail("spec.bridge", "name the bridge of the host", "is needed for mode bridge")
	}
	if n.Mode == modePortGroup && n.PortGroup == "" {
		v.fail("spec.portGroup", "write its inventory path, such as /DC/network/nodes", "is needed for mode portgroup")
	}
	if n.Mode != modePortGroup && n.PortGroup != "" {
		v.fail("spec.portGroup", "leave it out, or set mode: portgroup", "has no meaning for mode %s", n.Mode)
	}
	if n.Mode != "bridge" && n.Bridge != "" {
		v.fail("spec.bridge", "leave it out, or set mode: bridge", "has no meaning for mode %s", n.Mode)
	}
	v.attachment(n)
	if !n.CIDR.IsValid() {
		return // the decoder has said so
	}
	if !n.CIDR.Addr().Is4() || n.CIDR.Bits() > 30 {
		v.fail(
			"spec.cidr", "an IPv4 range of at least four addresses, such as 10.88.0.0/24", "%s cannot hold nodes",
			n.CIDR,
		)
		return
	}
	if n.CIDR != n.CIDR.Masked() {
		v.fail("spec.cidr", "write "+n.CIDR.Masked().String(), "%s has bits set behind the prefix length", n.CIDR)
	}
	inside := func(path string, a netip.Addr) {
		if a.IsValid() && !n.CIDR.Contains(a) {
			v.fail(path, "", "%s is not inside %s", a, n.CIDR)
		}
	}
	inside("spec.gateway", n.Gateway)
	if v.pool(n) {
		v.poolInside(n, inside)
	}
	v.routes(n)
}

func (v *validator) cluster(c *Cluster) {
	vms := &vmValidator{v}
	v.size("spec.masters", c.Masters.VMSize, c.Masters.Persist)
	vms.reserved("spec.masters.reserved", c.Masters.Reserved, c.Masters.VMSize)
	vms.masterSize(c)
	for _, g := range c.groups() {
		vms.interfaces(c, g.at, g.vm)
		vms.vmModel(g.at, g.vm, g.persist)
		vms.services(g.at+".services", g.vm.Services, c.Discovery.Agents)
	}
	vms.addresses(c)
	v.workers(c)
	if c.Masters.Count > 1 && !c.API.VIP.IsValid() {
		v.fail(
			"spec.api.vip", "an unused address of the network, outside its pool", "is needed with %d masters",
			c.Masters.Count,
		)
	}
	v.ranges(c)
	v.discovery(c.Discovery)
	if c.Certificates.Authority == "" && (c.Certificates.Etcd || c.Certificates.FrontProxy) {
		v.fail("spec.certificates.authority", "name a CertificateAuthority, or leave etcd and frontProxy out",
			"is missing")
	}
	v.match("spec.services.domain", c.Services.Domain, domainPattern, "a DNS domain such as cluster.local", 100)
	if c.Etcd.ElectionTimeout < 5*c.Etcd.HeartbeatInterval {
		v.fail(
			"spec.etcd.electionTimeout", "at least five times heartbeatInterval; ten times is usual",
			"%s is too short for a heartbeat of %s", c.Etcd.ElectionTimeout, c.Etcd.HeartbeatInterval,
		)
	}
	for i, key := range c.SSHKeys {
		vms.sshKey(fmt.Sprintf("spec.sshKeys[%d]", i), key)
	}
}

func (v *validator) workers(c *Cluster) {
	vms := &vmValidator{v}
	names := map[string]int{}
	for i, p := range c.Workers {
		at := fmt.Sprintf("spec.workers[%d]", i)
		v.match(at+".name", p.Name, labelPattern, "letters a-z, digits and dashes, beginning with a letter", 20)
		if p.Name == "master" {
			v.fail(at+".name", "choose another", "master is the name of the control plane")
		}
		if first, twice := names[p.Name]; twice {
			v.fail(at+".name", "", "is the name of workers[%d] too", first)
		}
		names[p.Name] = i
		v.size(at, p.VMSize, p.Persist)
		vms.reserved(at+".reserved", p.Reserved, p.VMSize)
		for j, taint := range p.Taints {
			v.match(
				fmt.Sprintf("%s.taints[%d]", at, j), taint, taintPattern,
				"key=value:NoSchedule, :PreferNoSchedule or :NoExecute", 300,
			)
		}
	}
}

// ranges checks the addresses of pods and services.
func (v *validator) ranges(c *Cluster) {
	if c.Pods.CIDR.IsValid() && c.Services.CIDR.IsValid() && c.Pods.CIDR.Overlaps(c.Services.CIDR) {
		v.fail(
			"spec.pods.cidr", "choose ranges that do not touch", "%s overlaps spec.services.cidr, %s", c.Pods.CIDR,
			c.Services.CIDR,
		)
	}
	for _, r := range []struct {
		path string
		cidr netip.Prefix
		most int
	}{{"spec.pods.cidr", c.Pods.CIDR, 24}, {"spec.services.cidr", c.Services.CIDR, 24}} {
		if r.cidr.IsValid() && (!r.cidr.Addr().Is4() || r.cidr.Bits() > r.most) {
			v.fail(
				r.path, fmt.Sprintf("an IPv4 range of prefix length %d or shorter", r.most), "%s is too small", r.cidr,
			)
		}
	}
	nodes := c.Masters.Count + c.WorkerCount()
	if c.Pods.CIDR.IsValid() && c.Pods.CIDR.Bits() <= 24 && nodes > 1<<(24-c.Pods.CIDR.Bits()) {
		v.fail(
			"spec.pods.cidr", "a wider range: each node takes a /24 of it", "%s holds %d nodes, and the cluster has %d",
			c.Pods.CIDR, 1<<(24-c.Pods.CIDR.Bits()), nodes,
		)
	}
}

// Size limits are requirement A3: a warning below the recommended minimum, a refusal (by the tags) below the hard one.
func (v *validator) size(at string, s VMSize, persist []string) {
	if s.CPUs < 2 || s.Memory < 4*GiB || s.Disk < 30*GiB {
		v.warn(at, "is below the recommended 2 vCPU, 4GiB and 30GiB of disk")
	}
	if len(persist) > 0 && s.DataDisk == 0 {
		v.fail(at+".dataDisk", "give it a size, such as 10GiB", "is needed for the persisted directories")
	}
	for i, dir := range persist {
		v.absolute(fmt.Sprintf("%s.persist[%d]", at, i), dir)
	}
}

// WorkerCount returns the number of workers over all pools.
func (c *Cluster) WorkerCount() int {
	n := 0
	for _, p := range c.Workers {
		n += p.Count
	}
	return n
}

func invalid(v validator) error {
	return director.Invalid("model.check", v.ref.String()+" does not fit the other documents", v.problems)
}
