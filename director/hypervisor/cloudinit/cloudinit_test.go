package cloudinit_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
)

var update = flag.Bool("update", false, "write the golden files")

// testKey belongs to these tests alone.
func testKey(t *testing.T) cloudinit.HostKey {
	t.Helper()
	private, err := os.ReadFile("testdata/host_key")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return cloudinit.HostKey{
		Private: director.Secret(private),
		Public:  strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))),
	}
}

func master(t *testing.T) cloudinit.Guest {
	t.Helper()
	key := testKey(t)
	return cloudinit.Guest{
		InstanceID:     "m-0001",
		Hostname:       "demo-master-1",
		AuthorizedKeys: []string{key.Public},
		UserCA:         &cloudinit.UserCA{Public: key.Public, Principals: []string{"cluster-c1", "machine-m-0001"}},
		HostKey:        key,
		NICs: []hypervisor.NIC{{
			Network: "demo", MAC: "52:54:00:00:00:01",
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.88.0.10/24")},
			Gateway:   netip.MustParseAddr("10.88.0.1"),
			DNS:       []netip.Addr{netip.MustParseAddr("10.88.0.1"), netip.MustParseAddr("9.9.9.9")},
		}},
		DataDisk: &cloudinit.DataDisk{
			Serial: "kaas-data", Mount: "/var/lib/kaas-data", Persist: []string{"/var/lib/etcd", "/etc/kubernetes"},
		},
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	small := master(t)
	small.DataDisk, small.NICs = nil, nil
	full := master(t)
	full.SSHUser = "operator"
	full.Hostname = "node-1.example.com"
	full.NICs = append(full.NICs, hypervisor.NIC{
		MAC: "52:54:00:00:00:02", Gateway: netip.MustParseAddr("fd00::1"),
		Addresses: []netip.Prefix{netip.MustParsePrefix("fd00::2/64"), netip.MustParsePrefix("192.0.2.4/24")},
	})
	full.HostAliases = []cloudinit.HostAlias{
		{Address: netip.MustParseAddr("172.30.0.1"), Names: []string{"registry.example.com", "registry"}},
	}
	full.NTP = []string{"10.88.0.1"}
	full.Timezone = "Europe/Berlin"
	full.Packages = []string{"htop"}
	full.Repositories = []cloudinit.Repository{
		{Name: "extra", Source: "deb http://deb.example.com/ stable main", Key: "key\n"},
	}
	full.Scripts = []cloudinit.Script{
		{Name: "one", Content: "echo 'one: #1'\n"},
		{Name: "two", Content: "#!/usr/bin/python3\nprint('two')\n", Timeout: time.Hour},
	}
	full.Shares = []cloudinit.Share{
		{
			Path: "/var/backups", Server: "10.90.0.5", Export: "/exports/kaas", Sub: "node-1/var/backups",
			Options: "nfsvers=4,hard",
		},
	}
	full.Health = "systemctl is-active --quiet containerd"
	full.Files = []cloudinit.File{
		{Path: "/etc/motd", Content: []byte("yes\n")},
		{Path: "/opt/blob", Mode: "0600", Owner: "root:adm", Content: []byte{0xff, 0x00, 0x10}},
	}
	for name, g := range map[string]cloudinit.Guest{"master": master(t), "small": small, "full": full} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed, err := cloudinit.Render(g)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			for _, part := range []struct {
				name string
				text []byte
			}{{"meta-data", seed.MetaData}, {"user-data", seed.UserData}, {"network-config", seed.NetworkConfig}} {
				var any map[string]any
				if err := yaml.Unmarshal(part.text, &any); err != nil {
					t.Errorf("%s is not YAML: %v", part.name, err)
				}
				got.WriteString("-- " + part.name + " --\n")
				got.Write(part.text)
			}
			if !bytes.HasPrefix(seed.UserData, []byte("#cloud-config\n")) {
				t.Error("user-data does not start with #cloud-config")
			}
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("run with -update if this is meant (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRenderKeepsBytes(t *testing.T) {
	t.Parallel()
	g := master(t)
	contents := []string{
		"yes", "0123", "a: b\n# c\n", "\tindented\n  text", "line\r\nline", "\xff\xfe", "", "trailing  \n\n", "ünïcode",
	}
	for _, c := range contents {
		g.Files = append(g.Files, cloudinit.File{Path: "/f", Content: []byte(c)})
	}
	seed, err := cloudinit.Render(g)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Files []struct{ Content, Encoding string } `yaml:"write_files"`
		Keys  struct {
			Private string `yaml:"ed25519_private"`
		} `yaml:"ssh_keys"`
	}
	if err := yaml.Unmarshal(seed.UserData, &doc); err != nil {
		t.Fatal(err)
	}
	for i, c := range contents {
		got := doc.Files[i+1].Content
		if doc.Files[i+1].Encoding == "b64" {
			text, err := base64.StdEncoding.DecodeString(got)
			if err != nil {
				t.Fatal(err)
			}
			got = string(text)
		}
		if got != c {
			t.Errorf("content %q came out as %q", c, got)
		}
	}
	if doc.Keys.Private != g.HostKey.Private.Reveal() {
		t.Error("the host key came out changed")
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	other, err := cloudinit.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*cloudinit.Guest)
		path   string
	}{
		"no instance":        {func(g *cloudinit.Guest) { g.InstanceID = "" }, "instance_id"},
		"host name":          {func(g *cloudinit.Guest) { g.Hostname = "Bad_Name" }, "hostname"},
		"no keys":            {func(g *cloudinit.Guest) { g.AuthorizedKeys, g.UserCA = nil, nil }, "authorized_keys"},
		"no authority":       {func(g *cloudinit.Guest) { g.UserCA.Public = "x" }, "user_ca.public"},
		"nobody's authority": {func(g *cloudinit.Guest) { g.UserCA.Principals = nil }, "user_ca.principals"},
		"two principals": {
			func(g *cloudinit.Guest) { g.UserCA.Principals[1] = "a\nroot" }, "user_ca.principals[1]",
		},
		"two keys in one": {
			func(g *cloudinit.Guest) { g.AuthorizedKeys[0] += "\n" + g.AuthorizedKeys[0] }, "authorized_keys[0]",
		},
		"no host key":        {func(g *cloudinit.Guest) { g.HostKey.Private = "" }, "host_key.private"},
		"another's host key": {func(g *cloudinit.Guest) { g.HostKey.Public = other.Public }, "host_key.public"},
		"MAC":                {func(g *cloudinit.Guest) { g.NICs[0].MAC = "52:54:00:00:00:0G" }, "nics[0].mac"},
		"mount with a space": {func(g *cloudinit.Guest) { g.DataDisk.Mount = "/a b" }, "data_disk.mount"},
		"mount with a quote": {func(g *cloudinit.Guest) { g.DataDisk.Mount = "/a'$(x)" }, "data_disk.mount"},
		"relative persist":   {func(g *cloudinit.Guest) { g.DataDisk.Persist[1] = "etc" }, "data_disk.persist[1]"},
		"persist under mount": {
			func(g *cloudinit.Guest) { g.DataDisk.Persist[0] = g.DataDisk.Mount + "/x" }, "data_disk.persist[0]",
		},
		"nested persist": {
			func(g *cloudinit.Guest) { g.DataDisk.Persist[1] = g.DataDisk.Persist[0] + "/x" }, "data_disk.persist[1]",
		},
		"long serial": {
			func(g *cloudinit.Guest) { g.DataDisk.Serial = strings.Repeat("x", 21) }, "data_disk.serial",
		},
		"alias": {
			func(g *cloudinit.Guest) { g.HostAliases = []cloudinit.HostAlias{{Names: []string{"x"}}} },
			"host_aliases[0].address",
		},
		"file mode": {
			func(g *cloudinit.Guest) { g.Files = []cloudinit.File{{Path: "/x", Mode: "rw"}} }, "files[0].mode",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := master(t)
			tt.change(&g)
			_, err := cloudinit.Render(g)
			e, ok := errors.AsType[*director.Error](err)
			if !ok || e.Kind != director.KindInvalid {
				t.Fatalf("got %v, want invalid", err)
			}
			if len(e.Fields) != 1 || e.Fields[0].Path != tt.path {
				t.Errorf("got fields %v, want one at %s", e.Fields, tt.path)
			}
		})
	}
}

func TestNewHostKey(t *testing.T) {
	t.Parallel()
	key, err := cloudinit.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey([]byte(key.Private.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))); got != key.Public {
		t.Errorf("public key is %q, want %q", key.Public, got)
	}
	again, err := cloudinit.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	if again.Public == key.Public {
		t.Error("two keys are alike")
	}
}

// TestScriptIsShell lets sh read the script of the data disk.
func TestScriptIsShell(t *testing.T) {
	t.Parallel()
	seed, err := cloudinit.Render(master(t))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Bootcmd []string }
	if err := yaml.Unmarshal(seed.UserData, &doc); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-n")
	cmd.Stdin = strings.NewReader(doc.Bootcmd[0])
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("sh -n: %v\n%s", err, out)
	}
}
