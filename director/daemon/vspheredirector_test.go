package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/appliance"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/plugins/vsphere/vspheretest"
)

// The VM of another director on a vCenter: its plan runs up to where the appliance would have to boot. The appliance's
// own code then reads what the VM was given, and the plan that deletes it leaves nothing but the data disk.
func TestDirectorOnVSphere(t *testing.T) {
	t.Parallel()
	s := vspheretest.Start(t)
	look := newGovc(t, s)
	image := hypervisortest.NewImageOf(t, 2<<30, nil)
	api := startReal(t, func(*Config) {})
	demo := strings.Split(onVSphere(t, s, image, "/nowhere"), "---\n")
	for name, password := range map[string]string{
		"vcenter": vspheretest.Password, "outer-admin": "correct horse battery",
	} {
		user := "admin"
		if name == "vcenter" {
			user = vspheretest.Account
		}
		if _, err := api.SetCredentials(t.Context(), name, user, director.Secret(password)); err != nil {
			t.Fatal(err)
		}
	}
	documents := strings.Join(demo[:2], "---\n") + fmt.Sprintf(`---
apiVersion: kaas/v1
kind: Director
metadata: {name: outer}
spec:
  provider: lab
  network: demo
  address: 10.88.0.77
  hostname: outer.example.org
  image: {source: %s, sha256: %s, unsigned: made in a test}
  credentials: outer-admin
`, image.Path, image.SHA256)
	if _, err := api.Apply(t.Context(), []byte(documents), "outer", false); err != nil {
		t.Fatal(err)
	}
	begin := func(operation plan.Operation) string {
		t.Helper()
		p, err := api.MakeDirectorPlan(t.Context(), "outer", wire.DirectorPlanRequest{Operation: string(operation)})
		if err == nil {
			_, err = api.StartPlan(t.Context(), p.ID, p.Hash)
		}
		if err != nil {
			t.Fatal(err)
		}
		return p.ID
	}
	made := begin(plan.DirectorCreate)
	until(t, api, made, "waits for the appliance", func(p wire.Plan) bool {
		for _, s := range p.Steps {
			if s.Kind == "director.ready" {
				return s.Status == "running"
			}
		}
		return false
	})
	const path = "/DC0/vm/outer/outer"
	v, extra := look.vm(t, path)
	if vm := v.VirtualMachines[0]; vm.Runtime.PowerState != "poweredOn" || vm.Config.Hardware.NumCPU != 2 ||
		vm.Config.Hardware.MemoryMB != 4096 {
		t.Errorf("%+v", vm)
	}
	if disks := look.devices(t, path, "VirtualDisk"); len(disks) != 2 ||
		!strings.Contains(disks[1].Backing.FileName, "LocalDS_1") {
		t.Errorf("disks: %+v", disks)
	}
	given, err := appliance.ParseGuestinfo(func(key string) string { return extra[key] })
	if err != nil {
		t.Fatal(err)
	}
	setup, err := appliance.Read(given)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{
		"hostname": setup.Hostname, "address": setup.Address.String(), "gateway": setup.Gateway.String(),
	}
	want := map[string]string{"hostname": "outer.example.org", "address": "10.88.0.77/24", "gateway": "10.88.0.1"}
	if diff := cmp.Diff(want, got); diff != "" || setup.PasswordHash == "" || setup.Certificate == "" {
		t.Errorf("the appliance reads (-want +got):\n%s", diff)
	}
	if strings.Contains(fmt.Sprint(extra), "correct horse battery") {
		t.Error("the password is in the settings of the VM")
	}

	if _, err := api.CancelPlan(t.Context(), made, true); err != nil {
		t.Fatal(err)
	}
	until(t, api, made, "has ended", func(p wire.Plan) bool { return plan.Status(p.Status).Ended() })
	gone := begin(plan.DirectorDelete)
	until(t, api, gone, "is done", func(p wire.Plan) bool { return plan.Status(p.Status) == plan.StatusDone })
	deleteKept(t, api, "outer", 1)
	nothingLeft(t, api, look)
}
