package daemon

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/plugins/vsphere/vspheretest"
	"github.com/director-kaas/kaas/test/loopback"
)

// govc is VMware's own command line, which looks at what the director has made.
type govc struct {
	bin string
	env []string
}

func newGovc(t *testing.T, s *vspheretest.Server) govc {
	t.Helper()
	g := govc{bin: filepath.Join(t.TempDir(), "govc"), env: []string{
		"HOME=" + t.TempDir(), "GOVC_URL=https://" + s.Host + "/sdk", "GOVC_USERNAME=" + vspheretest.Account,
		"GOVC_PASSWORD=" + vspheretest.Password,
		"GOVC_TLS_CA_CERTS=" + s.CAFile(t), "GOVC_PERSIST_SESSION=false", "GOVC_DATACENTER=DC0",
	}}
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../test/govc", "-o", g.bin, ".")
	build.Env = append(os.Environ(), "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		if os.Getenv("KAAS_REQUIRE_REAL") == "" {
			t.Skipf(
				"govc's modules are not here, and cannot be fetched (go -C test/govc mod download): %v\n%s", err, out,
			)
		}
		t.Fatalf("govc cannot be built from its module: %v\n%s", err, out)
	}
	return g
}

// run returns what govc prints.
func (g govc) run(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), g.bin, args...)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr = g.env, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("govc %v: %v\n%s", args, err, stderr.Bytes())
	}
	return out
}

// lines returns the lines that govc prints, in order.
func (g govc) lines(t *testing.T, args ...string) []string {
	t.Helper()
	return slices.Sorted(strings.FieldsFuncSeq(string(g.run(t, args...)), func(r rune) bool { return r == '\n' }))
}

// seen is a VM as govc shows it.
type seen struct {
	VirtualMachines []struct {
		Config struct {
			InstanceUUID string `json:"instanceUuid"`
			Annotation   string
			Hardware     struct{ NumCPU, MemoryMB int }
			ExtraConfig  []struct {
				Key   string
				Value any
			}
		}
		Runtime struct{ PowerState string }
	}
}

func (g govc) vm(t *testing.T, path string) (v seen, extra map[string]string) {
	t.Helper()
	if err := json.Unmarshal(g.run(t, "vm.info", "-json", path), &v); err != nil || len(v.VirtualMachines) != 1 {
		t.Fatalf("vm.info %s: %+v, %v", path, v, err)
	}
	extra = map[string]string{}
	for _, o := range v.VirtualMachines[0].Config.ExtraConfig {
		value := o.Value
		if typed, ok := value.(map[string]any); ok {
			value = typed["_value"]
		}
		extra[o.Key] = fmt.Sprint(value)
	}
	return v, extra
}

// device is one of a VM's devices as govc shows it.
type device struct {
	Name, Type      string
	MacAddress      string
	CapacityInBytes int64
	Backing         struct {
		FileName string
		UUID     string `json:"uuid"`
		Port     struct{ PortgroupKey string }
	}
}

func (g govc) devices(t *testing.T, path, kind string) []device {
	t.Helper()
	var all struct{ Devices []device }
	if err := json.Unmarshal(g.run(t, "device.info", "-json", "-vm", path), &all); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all.Devices, func(d device) bool { return d.Type != kind })
}

// nobody boots: on vCenter's simulator there are no guests.
type nobody struct{ steps.Nodes }

func (nobody) Answers(context.Context, director.Machine) (bool, error) { return false, nil }

func (nobody) CloudInit(_ context.Context, m director.Machine, _ string) (string, error) {
	return "", director.Errorf(director.KindUnavailable, "test.nobody", "nobody answers at %s", m.Address)
}

func (nobody) NextHostKey(_ context.Context, m director.Machine, _ string) (string, error) {
	return "", director.Errorf(director.KindUnavailable, "test.nobody", "nobody answers at %s", m.Address)
}

// onVSphere returns the documents of the demo with another provider, and with three masters, which are to be kept
// apart.
func onVSphere(t testing.TB, s *vspheretest.Server, image hypervisor.ImageSpec, bundle string) string {
	t.Helper()
	docs := []string{fmt.Sprintf(`apiVersion: kaas/v1
kind: Provider
metadata: {name: lab}
spec:
  type: vsphere
  vsphere: {url: %q, thumbprint: %q, credentials: vcenter, datacenter: DC0, cluster: DC0_C0, datastores: `+
		`[LocalDS_0], dataDatastore: LocalDS_1}
`, s.Host, s.Thumbprint)}
	change := strings.NewReplacer(
		"@IMAGE@", image.Path, "@SHA256@", image.SHA256, "@KUBERNETES@", "v1.37.0", "@BUNDLE@", bundle,
		"  mode: open\n", "  mode: portgroup\n  portGroup: /DC0/network/DC0_DVPG0\n", "  masters:\n    count: 1\n",
		"  api: {vip: 10.88.0.5}\n  masters:\n    count: 3\n",
	)
	for _, name := range []string{"network.yaml", "image.yaml.in", "release.yaml.in", "cluster.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../docs/examples/demo", name))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, strings.TrimPrefix(change.Replace(string(text)), "---\n"))
	}
	return strings.Join(docs, "---\n")
}

// startReal starts a director that does not simulate, with the settings that change makes. No guest of it boots.
func startReal(t testing.TB, change func(*Config)) *client.Client {
	t.Helper()
	_, api := startRealDaemon(t, change)
	return api
}

// startRealDaemon is startReal for who also looks into the director.
func startRealDaemon(t testing.TB, change func(*Config)) (*Daemon, *client.Client) {
	t.Helper()
	c := testConfig(t)
	c.ProviderNetworks = confine.Networks{netip.MustParsePrefix("127.0.0.0/8")}
	change(&c)
	c.AdminPasswordFile = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(c.AdminPasswordFile, []byte("correct horse battery"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.RegistryListen = loopback.FreeFor(t).String() // pushing needs to know the port
	d := &Daemon{cfg: c, log: slog.New(slog.NewTextHandler(t.Output(), nil)), nodes: nobody{}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := d.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := d.start(t.Context(), Build{Version: "test"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	return d, connect(t, c, d)
}

// until asks for the plan until it is as wanted.
func until(t testing.TB, api *client.Client, id, what string, as func(wire.Plan) bool) wire.Plan {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
		p, err := api.Plan(ctx, id)
		if err != nil {
			t.Fatalf("waiting for a plan that %s: %v", what, err)
		}
		if as(p) {
			return p
		}
		for _, s := range p.Steps {
			if s.Status == "failed" || s.Status == "parked" || s.Failures > 0 {
				t.Fatalf("step %s is %s: %s (%s)", s.ID, s.Status, s.Message, s.Hint)
			}
		}
	}
}

// The demo on a vCenter: its create plan runs up to where guests would have to boot. What is there then is looked at
// with govc; then the delete plan takes it away.
func TestDemoOnVSphere(t *testing.T) {
	t.Parallel()
	s := vspheretest.Start(t)
	look := newGovc(t, s)
	image := hypervisortest.NewImageOf(t, 2<<30, nil)
	bundle, err := simulate.Bundle(t.Context(), t.TempDir(), "k8s-1.37", "v1.37.0")
	if err != nil {
		t.Fatal(err)
	}
	by := signing(t, bundle, image.Path, "v1.37.0")
	by.signRelease(by.key)
	by.signImage(by.key)
	api := startReal(t, func(c *Config) { c.TrustedKeys = []string{by.key.Public()} })
	if _, err := api.Apply(t.Context(), []byte(onVSphere(t, s, image, bundle)), "demo", false); err != nil {
		t.Fatal(err)
	}
	testProvider(t, api)

	p, err := api.MakePlan(t.Context(), "demo", plan.Request{})
	if err == nil {
		_, err = api.StartPlan(t.Context(), p.ID, p.Hash)
	}
	if err != nil {
		t.Fatal(err)
	}
	p = until(t, api, p.ID, "waits for its guests", func(p wire.Plan) bool {
		for _, s := range p.Steps {
			if s.Kind == "vm.boot" && s.Status != "running" || s.Kind == "release.push" && s.Status != "done" {
				return false
			}
		}
		return true
	})
	if len(p.Machines) != 4 {
		t.Fatalf("it makes %+v", p.Machines)
	}
	inspect(t, api, look, image)

	if _, err := api.CancelPlan(t.Context(), p.ID, true); err != nil {
		t.Fatal(err)
	}
	until(t, api, p.ID, "has ended", func(p wire.Plan) bool { return plan.Status(p.Status).Ended() })
	p, err = api.MakePlan(t.Context(), "demo", plan.Request{Operation: plan.ClusterDelete})
	if err == nil {
		_, err = api.StartPlan(t.Context(), p.ID, p.Hash)
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, api, p.ID, "is done", func(p wire.Plan) bool { return plan.Status(p.Status) == plan.StatusDone })
	deleteKept(t, api, "demo", 3)
	nothingLeft(t, api, look)
}

// deleteKept finds as many disks kept of the cluster, and destroys each by its name.
func deleteKept(t *testing.T, api *client.Client, cluster string, want int) {
	t.Helper()
	disks, err := api.Disks(t.Context(), client.DiskFilter{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	if len(disks.Items) != want {
		t.Errorf("%d disks are kept, want %d: %+v", len(disks.Items), want, disks.Items)
	}
	for _, d := range disks.Items {
		if d.State != "kept" || d.Node == "" || d.Pool == "" || d.SizeBytes == 0 || d.KeptAt == nil {
			t.Errorf("the kept disk says too little of itself: %+v", d)
		}
		if _, err := api.DeleteDisk(t.Context(), d.Provider, d.ID); err != nil {
			t.Errorf("delete %s: %v", d.ID, err)
		}
	}
}

// testProvider looks at the provider with a wrong password, and with the right one, which it takes up without anything
// being applied again.
func testProvider(t *testing.T, api *client.Client) {
	t.Helper()
	for _, step := range []struct {
		password director.Secret
		wrong    []string
	}{
		{"", []string{"credentials vcenter"}}, {"hunter2", []string{"account"}}, {vspheretest.Password, nil},
	} {
		if step.password != "" {
			if _, err := api.SetCredentials(t.Context(), "vcenter", vspheretest.Account, step.password); err != nil {
				t.Fatal(err)
			}
		}
		test, err := api.TestProvider(t.Context(), "lab")
		if err != nil {
			t.Fatal(err)
		}
		var wrong []string
		for _, probe := range test.Probes {
			if !probe.OK {
				wrong = append(wrong, probe.What)
			}
			if strings.Contains(probe.Problem+probe.Hint, "hunter2") {
				t.Errorf("the password is in %+v", probe)
			}
		}
		if diff := cmp.Diff(step.wrong, wrong); diff != "" || test.OK != (step.wrong == nil) {
			t.Errorf("the provider's test says %+v: %s", test, diff)
		}
	}
}

// inspect looks with govc at everything that the plan has made.
func inspect(t *testing.T, api *client.Client, look govc, image hypervisor.ImageSpec) {
	t.Helper()
	cluster, err := api.Cluster(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	listed, err := api.VMs(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]wire.VM{}
	for _, v := range listed.Items {
		rows[v.Name] = v
	}
	// Names and folders: the machines in their cluster's folder, the image and the copy that they are linked to beside
	// it.
	paths := look.lines(t, "find", "/DC0/vm", "-type", "m")
	var want []string
	for _, m := range cluster.Machines {
		want = append(want, "/DC0/vm/demo/"+m.Name)
	}
	templates := slices.DeleteFunc(slices.Clone(
		paths,
	), func(p string) bool { return strings.HasPrefix(p, "/DC0/vm/demo/") })
	if diff := cmp.Diff(
		slices.Sorted(slices.Values(append(want, templates...))), paths,
	); diff != "" || len(want) != 4 || len(templates) != 2 {
		t.Errorf("VMs and templates (-want +got):\n%s", diff)
	}
	group := strings.Fields(string(look.run(t, "find", "-i", "/DC0/network", "-name", "DC0_DVPG0")))
	if len(group) != 1 {
		t.Fatalf("the port group is %q", group)
	}
	_, portGroup, _ := strings.Cut(group[0], ":")
	uuids := map[string]bool{}
	for _, m := range cluster.Machines {
		path := "/DC0/vm/demo/" + m.Name
		v, extra := look.vm(t, path)
		vm, row := v.VirtualMachines[0], rows[m.Name]
		if vm.Config.InstanceUUID != m.VMID || row.ID != m.VMID || row.Owner != "ledger" || uuids[m.VMID] {
			t.Errorf("%s has the id %s, and the ledger %s: %+v", m.Name, vm.Config.InstanceUUID, m.VMID, row)
		}
		uuids[m.VMID] = true
		if vm.Config.Hardware.NumCPU != m.CPUs || int64(vm.Config.Hardware.MemoryMB)<<20 != m.MemoryBytes ||
			vm.Runtime.PowerState != "poweredOn" {
			t.Errorf("%s is %+v, %s", m.Name, vm.Config.Hardware, vm.Runtime.PowerState)
		}
		for key, value := range map[string]string{
			"kaas.director": row.Director, "kaas.machine": row.Machine, "kaas.made": "yes", "kaas.clone": "linked",
			"kaas.group": "demo", "disk.EnableUUID": "TRUE",
			"guestinfo.metadata.encoding": "gzip+base64", "guestinfo.userdata.encoding": "gzip+base64",
		} {
			if extra[key] != value || value == "" {
				t.Errorf("%s: %s is %q, want %q", m.Name, key, extra[key], value)
			}
		}
		if !strings.HasPrefix(extra["kaas.image"], image.SHA256[:8]) &&
			!strings.Contains(extra["kaas.image"], "debian12") {
			t.Errorf("%s was made from %q", m.Name, extra["kaas.image"])
		}
		guest(t, m, extra)
		nics := look.devices(t, path, "VirtualVmxnet3")
		if len(nics) != 1 || nics[0].Backing.Port.PortgroupKey != portGroup ||
			!strings.Contains(extra["kaas.nics"], nics[0].MacAddress+" "+portGroup+" demo") {
			t.Errorf("%s has the adapters %+v, and they are to be %q", m.Name, nics, extra["kaas.nics"])
		}
		lookAtDisks(t, look, m, row, path)
	}
	var masters []string
	for _, m := range cluster.Machines {
		if m.Role == "master" {
			masters = append(masters, m.Name)
		}
	}
	if diff := cmp.Diff(
		[]string{"kaas-demo-apart"}, look.lines(t, "cluster.rule.ls", "-cluster", "DC0_C0"),
	); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(
		slices.Sorted(slices.Values(masters)),
		look.lines(t, "cluster.rule.ls", "-cluster", "DC0_C0", "-name", "kaas-demo-apart"),
	); diff != "" || len(masters) != 3 {
		t.Errorf("who is kept apart (-want +got):\n%s", diff)
	}
	if sessions := regexp.MustCompile(`(?m)kaas-director`).FindAll(look.run(t, "session.ls"), -1); len(sessions) != 1 {
		t.Errorf("the director has %d sessions", len(sessions))
	}
}

// guest looks at what the guest would read: its name, its host key and its address.
func guest(t *testing.T, m wire.Machine, extra map[string]string) {
	t.Helper()
	unpack := func(text string) string {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	var meta struct {
		Name    string   `json:"local-hostname"`
		Network string   `json:"network"`
		CleanUp []string `json:"cleanup-guestinfo"`
	}
	if err := yaml.Unmarshal([]byte(unpack(extra["guestinfo.metadata"])), &meta); err != nil {
		t.Fatal(err)
	}
	if network := unpack(
		meta.Network,
	); meta.Name != m.Name || !strings.Contains(network, m.Address+"/24") || !strings.Contains(network, "10.88.0.1") {
		t.Errorf("%s reads the name %s, and the network\n%s", m.Name, meta.Name, network)
	}
	if !slices.Equal(meta.CleanUp, []string{"userdata"}) {
		t.Errorf("%s is to clean up %q after its first boot", m.Name, meta.CleanUp)
	}
	user := unpack(extra["guestinfo.userdata"])
	for _, part := range []string{"#cloud-config", "ssh_keys", "TrustedUserCAKeys"} {
		if !strings.Contains(user, part) {
			t.Errorf("%s reads user data without %s", m.Name, part)
		}
	}
}

// lookAtDisks looks at the root disk, and at the data disk of a master, which is a file of its own in another
// datastore.
func lookAtDisks(t *testing.T, look govc, m wire.Machine, row wire.VM, path string) {
	t.Helper()
	have := look.devices(t, path, "VirtualDisk")
	data := fmt.Sprintf("[LocalDS_1] kaas-data/%s.%s.kaas-data.vmdk", row.Director, row.Machine)
	if m.Role != "master" {
		if len(have) != 1 {
			t.Errorf("%s has the disks %+v", m.Name, have)
		}
		return
	}
	if len(have) != 2 || have[1].Backing.FileName != data || have[1].CapacityInBytes != 2<<30 {
		t.Errorf("%s has the disks %+v, and is to have %s", m.Name, have, data)
		return
	}
	wwn := hypervisor.DiskWWN(director.Stamp{Director: row.Director, Machine: row.Machine}, director.DataDiskSerial)
	if got := strings.ToLower(strings.ReplaceAll(have[1].Backing.UUID, "-", "")); got != wwn {
		t.Errorf("the data disk of %s is known as %s, and its guest looks for %s", m.Name, got, wwn)
	}
	if !strings.HasPrefix(have[0].Backing.FileName, "[LocalDS_0] ") {
		t.Errorf("the root disk of %s is %s", m.Name, have[0].Backing.FileName)
	}
}

// nothingLeft looks with govc at what is there after the cluster was deleted: the image with the copy of it, which the
// next cluster is made from.
func nothingLeft(t *testing.T, api *client.Client, look govc) {
	t.Helper()
	left := look.lines(t, "find", "/DC0/vm", "-type", "m")
	if len(left) != 2 {
		t.Errorf("there are still %q", left)
	}
	for _, path := range left {
		if _, extra := look.vm(t, path); extra["kaas.template"] == "" {
			t.Errorf("%s is left and is no template", path)
		}
	}
	if got := look.lines(t, "cluster.rule.ls", "-cluster", "DC0_C0"); len(got) != 0 {
		t.Errorf("the rules %q are left", got)
	}
	if got := look.lines(t, "datastore.ls", "-ds", "LocalDS_1", "kaas-data"); len(got) != 0 {
		t.Errorf("the data disks %q are left", got)
	}
	audit, err := api.Audit(t.Context())
	if err != nil || len(audit.Findings) != 0 || len(audit.Busy) != 0 {
		t.Errorf("the audit says %+v, %v", audit, err)
	}
}
