package appliance_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/appliance"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/pki"
)

// What a director tells the VM of another one, the appliance reads.
func TestApplianceReadsWhatADirectorTellsIt(t *testing.T) {
	t.Parallel()
	ca, err := pki.NewCA("test")
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParsePrefix("10.88.0.20/24")
	pair, err := pki.ServerCert(ca, []string{"outer.example.org"}, []netip.Addr{address.Addr()}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	hash := auth.HashPassword("correct horse battery")
	told := cloudinit.Appliance{
		InstanceID: "m1", Hostname: "outer.example.org", Address: address, Gateway: netip.MustParseAddr("10.88.0.1"),
		DNS: []netip.Addr{netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("10.88.0.3")},
		NTP: []string{"time.example.org"},
		SSHKeys: []string{
			"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMBe3Lkx1Wd8XFJdJ5dEhvmEEHsLQYmoLY4n0UfLZkYi ann",
		},
		PasswordHash: director.Secret(hash), Certificate: pair.Cert + ca.Cert, Key: pair.Key,
	}
	seed, err := cloudinit.RenderAppliance(told)
	if err != nil {
		t.Fatal(err)
	}
	given, err := appliance.ParseSeed(appliance.Seed{
		UserData: seed.UserData, MetaData: seed.MetaData, NetworkConfig: seed.NetworkConfig,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := appliance.Read(given)
	want := appliance.Setup{
		Hostname: told.Hostname, Address: told.Address, Gateway: told.Gateway, DNS: told.DNS, NTP: told.NTP,
		SSHKeys: told.SSHKeys, PasswordHash: hash, Certificate: told.Certificate, Key: told.Key.Reveal(),
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	told.Hostname, told.Certificate = "not a name", ""
	if _, err := cloudinit.RenderAppliance(told); err == nil {
		t.Error("a seed without a name and a certificate was rendered")
	}
}

// Another VM in front of a data disk is told nothing that the disk could contradict.
func TestApplianceIsToldNothingAgain(t *testing.T) {
	t.Parallel()
	seed, err := cloudinit.RenderApplianceAgain("m1")
	if err != nil || seed.Empty() {
		t.Fatalf("%+v, %v", seed, err)
	}
	given, err := appliance.ParseSeed(appliance.Seed{UserData: seed.UserData, MetaData: seed.MetaData})
	if err != nil || len(given) > 0 {
		t.Errorf("it reads %v, %v", given, err)
	}
}
