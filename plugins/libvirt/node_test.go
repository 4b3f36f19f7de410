package libvirt_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
	"github.com/director-kaas/kaas/plugins/libvirt"
)

// TestLabNode boots the node image in KAAS_LAB_NODE_IMAGE with a seed of package cloudinit, looks at it over SSH, and
// does it again with a new VM on the kept data disk.
func TestLabNode(t *testing.T) {
	t.Parallel()
	uri, path := os.Getenv("KAAS_LAB_URI"), os.Getenv("KAAS_LAB_NODE_IMAGE")
	if uri == "" || path == "" {
		t.Skip("KAAS_LAB_URI or KAAS_LAB_NODE_IMAGE is not set; it takes two boots of a node, in the lab")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	n := newLabNode(ctx, t, uri, path)
	b, spec := n.b, &n.spec

	vm, run := n.boot(ctx, t, "i1")
	wantNode(t, run, spec.Name)
	if text, err := b.ConsoleTail(ctx, vm.ID, 100000); err != nil || len(text) == 0 {
		t.Errorf("the console is empty: %v", err)
	} else {
		t.Logf("the console:\n%s", text)
	}
	run("echo kept | sudo tee /var/lib/etcd/member >/dev/null; sync")

	start := time.Now()
	if err := b.Delete(ctx, vm.ID, hypervisor.DeleteOptions{Owner: spec.Key, Grace: 2 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%6.1fs deleted, after the guest shut down", time.Since(start).Seconds())
	_, run = n.boot(ctx, t, "i2")
	if got := run("cat /var/lib/etcd/member"); got != "kept" {
		t.Errorf("the data disk lost its file: %q", got)
	}
	if got := run(`sudo grep -E '\[(WARNING|ERROR|CRITICAL)\]' /var/log/cloud-init.log || :`); got != "" {
		t.Logf("cloud-init complains:\n%s", got)
	}
}

// labNode is the node image on a host of the lab, with its network and what its VM is made of.
type labNode struct {
	b       *libvirt.Backend
	spec    hypervisor.Spec
	hostKey cloudinit.HostKey
	signer  ssh.Signer
}

func newLabNode(ctx context.Context, t *testing.T, uri, path string) *labNode {
	t.Helper()
	b, err := libvirt.Open(libvirt.Config{
		Hosts: []libvirt.HostConfig{{Name: "h1", URI: uri}}, DiskCache: "unsafe",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	image := labImage(ctx, t, b, path)
	owner := director.Stamp{Director: hypervisortest.RandomID("d"), Machine: "net"}
	network := labNetwork(ctx, t, b, owner)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	hostKey, err := cloudinit.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	spec := hypervisor.Spec{
		Key: director.Stamp{Director: owner.Director, Machine: "m1"}, Name: hypervisortest.RandomID("node-"),
		CPUs: 2, Memory: 1 << 30, Image: image, RootDisk: 12 << 30,
		DataDisks: []hypervisor.Disk{{Serial: "kaas-data", Size: 2 << 30}},
		NICs: []hypervisor.NIC{{
			Network: network.Name, MAC: "52:54:00:78:00:0a", Gateway: network.Gateway,
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.78.0.10/24")}, DNS: []netip.Addr{network.Gateway},
		}},
	}
	t.Cleanup(func() {
		vms, err := b.List(context.Background(), hypervisor.Filter{Director: owner.Director})
		if err != nil {
			t.Error(err)
		}
		for _, v := range vms {
			if err := b.Delete(context.Background(), v.ID, hypervisor.DeleteOptions{Owner: spec.Key}); err != nil {
				t.Error(err)
			}
		}
		if err := b.DeleteVolume(context.Background(), spec.Key); err != nil {
			t.Error(err)
		}
	})
	return &labNode{b: b, spec: spec, hostKey: hostKey, signer: signer}
}

// labImage brings the image and returns its name.
func labImage(ctx context.Context, t *testing.T, b *libvirt.Backend, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	image := hypervisor.ImageSpec{
		Name: hypervisortest.RandomID("node-"), Path: path, SHA256: hex.EncodeToString(sum.Sum(nil)), Format: "qcow2",
	}
	start := time.Now()
	if err := b.EnsureImage(ctx, image, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("%6.1fs image brought", time.Since(start).Seconds())
	t.Cleanup(func() {
		if err := b.DeleteImage(context.Background(), image.Name); err != nil {
			t.Error(err)
		}
	})
	return image.Name
}

func labNetwork(ctx context.Context, t *testing.T, b *libvirt.Backend, owner director.Stamp) hypervisor.NetworkSpec {
	t.Helper()
	network := hypervisor.NetworkSpec{
		Owner: owner, Name: hypervisortest.RandomID("net-"), Mode: "open",
		CIDR: netip.MustParsePrefix("10.78.0.0/24"), Gateway: netip.MustParseAddr("10.78.0.1"),
	}
	if err := b.EnsureNetwork(ctx, network); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.DeleteNetwork(context.Background(), network.Name, network.Owner); err != nil {
			t.Error(err)
		}
	})
	return network
}

// boot makes the VM and returns a function that runs a command in it.
func (n *labNode) boot(ctx context.Context, t *testing.T, instance string) (hypervisor.VM, func(string) string) {
	t.Helper()
	n.spec.Seed = n.seed(t, instance)
	start := time.Now()
	vm, err := n.b.Ensure(ctx, n.spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%6.1fs VM made", time.Since(start).Seconds())
	client := n.dial(ctx, t, vm.ID)
	t.Cleanup(func() { client.Close() })
	t.Logf("%6.1fs SSH", time.Since(start).Seconds())
	run := func(command string) string {
		t.Helper()
		session, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		out, err := session.CombinedOutput(command)
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("cloud-init status --wait >/dev/null || cloud-init status --long")
	t.Logf("%6.1fs cloud-init done", time.Since(start).Seconds())
	return vm, run
}

func (n *labNode) seed(t *testing.T, instance string) hypervisor.Seed {
	t.Helper()
	seed, err := cloudinit.Render(cloudinit.Guest{
		InstanceID: instance, Hostname: n.spec.Name, HostKey: n.hostKey, NICs: n.spec.NICs,
		AuthorizedKeys: []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(n.signer.PublicKey())))},
		HostAliases: []cloudinit.HostAlias{
			{Address: netip.MustParseAddr("192.0.2.1"), Names: []string{"alias.example.com"}},
		},
		DataDisk: &cloudinit.DataDisk{
			Serial: "kaas-data", Mount: "/var/lib/kaas-data", Persist: []string{"/var/lib/etcd", "/etc/kubernetes"},
		},
		Scripts: []cloudinit.Script{{Name: "done", Content: "echo done >/run/first-boot\n"}},
		Files:   []cloudinit.File{{Path: "/etc/kaas-test", Mode: "0600", Content: []byte("yes: 1\n")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

// dial logs in as soon as the node lets it.
func (n *labNode) dial(ctx context.Context, t *testing.T, id hypervisor.ID) *ssh.Client {
	t.Helper()
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(n.hostKey.Public))
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ClientConfig{
		User: cloudinit.DefaultUser, Auth: []ssh.AuthMethod{ssh.PublicKeys(n.signer)},
		HostKeyCallback:   ssh.FixedHostKey(want),
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519}, Timeout: 10 * time.Second,
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var client *ssh.Client
	for client == nil {
		if client, err = ssh.Dial("tcp", net.JoinHostPort("10.78.0.10", "22"), config); err == nil {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			text, _ := n.b.ConsoleTail(context.Background(), id, 4000)
			t.Fatalf("no SSH: %v\n%s", err, text)
		}
	}
	return client
}

// wantNode looks at everything in the node that the seed asked for.
func wantNode(t *testing.T, run func(string) string, name string) {
	t.Helper()
	for command, want := range map[string]string{
		"hostname":                       name,
		"sudo -n id -u":                  "0",
		"sudo cat /etc/kaas-test":        "yes: 1",
		"cat /run/first-boot":            "done",
		"getent hosts alias.example.com": "192.0.2.1       alias.example.com",
		"getent ahostsv4 " + name + " | head -n1 | cut -d' ' -f1":                   "10.78.0.10",
		"ip -4 -o address show eth0 | awk '{print $4}'":                             "10.78.0.10/24",
		"ip -4 route show default | awk '{print $3}'":                               "10.78.0.1",
		"findmnt -no FSTYPE /var/lib/kaas-data":                                     "ext4",
		"findmnt -no SOURCE /var/lib/etcd":                                          "/dev/vdb[/var/lib/etcd]",
		"findmnt -no SOURCE /etc/kubernetes":                                        "/dev/vdb[/etc/kubernetes]",
		"df -BG --output=size / | tail -n1 | tr -d ' G' | awk '{print ($1 >= 11)}'": "1",
		"ls /dev/disk/by-id/ | grep -c '^virtio-kaas-[a-z]*$'":                      "3",
	} {
		if got := run(command); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}
