package appliance

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func somewhere(t *testing.T) Place {
	t.Helper()
	p := Place{Root: t.TempDir(), Data: t.TempDir(), User: -1}
	if err := Accept(p.Data, ""); err != nil {
		t.Fatal(err)
	}
	return p
}

// tree returns the files below a directory with their modes and times, which show whether one was written again.
func tree(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		if err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() {
				all[path] = info.Mode().String() + " " + info.ModTime().String()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestWrite(t *testing.T) {
	t.Parallel()
	p := somewhere(t)
	if _, err := p.Load(); director.KindOf(err) != director.KindNotFound {
		t.Fatalf("before the first setup: %v", err)
	}
	cert, key := pair(t)
	s, err := Read(good("certificate", cert, "certificate_key", key))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if saved, err := p.SaveFirst(s); err != nil || saved != want {
			t.Fatalf("SaveFirst: %v, %v; want %v", saved, err, want)
		}
	}
	got, err := p.Load()
	if diff := cmp.Diff(s, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || err != nil {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	if err := p.Write(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	first := tree(t, p.Root, p.Data)
	if err := p.Write(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, tree(t, p.Root, p.Data)); diff != "" {
		t.Errorf("a second run changed something:\n%s", diff)
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	const network = "[Match]\nName=eth0\n\n[Network]\nDHCP=no\nIPv6AcceptRA=no\nAddress=192.0.2.10/24\n" +
		"Gateway=192.0.2.1\n" +
		"DNS=192.0.2.53\nDomains=example.org\n"
	for file, want := range map[string]string{
		"hostname": "director.example.org\n", "systemd/network/10-director.network": network,
		"ssh/keys/admin":                    sshKey + "\n",
		"chrony/sources.d/director.sources": "server 192.0.2.123 iburst\nserver ntp.example.org iburst\n",
		"hosts": "127.0.0.1 localhost\n127.0.1.1 director.example.org director\n" +
			"::1 localhost ip6-localhost ip6-loopback\n",
	} {
		if diff := cmp.Diff(want, read(p.etc(file))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
	for file := range tree(t, p.Root, p.Data) {
		if strings.Contains(read(file), password) {
			t.Errorf("%s has the password", file)
		}
	}
	for _, file := range []string{
		"setup/setup.json", "setup/admin-password-hash", "setup/certificate.key",
		"ssh/ssh_host_ed25519_key",
	} {
		if info, err := os.Stat(p.data(file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	s.Certificate, s.Key = "", ""
	if err := p.Write(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.data("setup/certificate.key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key of a former certificate is still there: %v", err)
	}
}

// person answers questions with what is in the list.
type person struct {
	answers []string
	seen    strings.Builder
}

func (p *person) Write(b []byte) (int, error) { return p.seen.Write(b) }

func (p *person) Line(prompt string) (string, error) {
	p.seen.WriteString(prompt)
	if len(p.answers) == 0 {
		return "", io.EOF
	}
	answer := p.answers[0]
	p.answers = p.answers[1:]
	return answer, nil
}

func (p *person) Password(prompt string) (string, error) { return p.Line(prompt) }

func TestForm(t *testing.T) {
	t.Parallel()
	p := &person{answers: []string{
		"bad name", "192.0.2.10/24", "198.51.100.1", "192.0.2.53", "", "192.0.2.123", password, "another one", password,
		password, sshKey,
		"d1", "192.0.2.1", "no",
		"", "dhcp", "-", "", "", "", "", "y",
	}}
	s, err := Form(p, nil, nil)
	if err != nil {
		t.Fatalf("%v, after:\n%s", err, p.seen.String())
	}
	if s.Hostname != "d1" || s.Address.IsValid() || len(s.DNS) != 0 || len(s.NTP) != 1 || len(s.SSHKeys) != 1 {
		t.Errorf("%+v", s)
	}
	for _, want := range []string{
		"hostname: ", "gateway: ", "The two differ",
		"Address              192.0.2.10/24", "by DHCP",
	} {
		if !strings.Contains(p.seen.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, p.seen.String())
		}
	}
	if strings.Contains(p.seen.String(), password) {
		t.Error("it shows the password")
	}
}

// With wrong properties only those are asked for again.
func TestFormAfterWrongProperties(t *testing.T) {
	t.Parallel()
	given := good("dns", "x", "color", "red")
	_, problem := Read(given)
	p := &person{answers: []string{"192.0.2.53", "yes"}}
	s, err := Form(p, given, problem)
	if err != nil || s.DNS[0].String() != "192.0.2.53" || s.Hostname != "director.example.org" {
		t.Errorf("%+v, %v, after:\n%s", s, err, p.seen.String())
	}
	if _, err := Form(&person{}, nil, nil); !errors.Is(err, io.EOF) {
		t.Errorf("at the end of the terminal: %v", err)
	}
}

func TestFromDirectory(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, files map[string]string) string {
		t.Helper()
		dir := t.TempDir()
		for name, text := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	const user = "#cloud-config\nhostname: d1\n"
	for name, tt := range map[string]struct {
		files  map[string]string
		source string
	}{
		"nothing":      {map[string]string{"readme": ""}, ""},
		"NoCloud":      {map[string]string{"user-data": user, "meta-data": ""}, "the NoCloud seed on here"},
		"config drive": {map[string]string{"openstack/latest/user_data": user}, "the config drive on here"},
		"OVF": {map[string]string{"ovf-env.xml": `<Environment><PropertySection><Property key="director.hostname" ` +
			`value="d1"/>` +
			`</PropertySection></Environment>`}, "ovf-env.xml on here"},
	} {
		got, err := FromDirectory(write(t, tt.files), "here")
		if err != nil || got.Source != tt.source || tt.source != "" && got.Properties["hostname"] != "d1" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	dir := write(t, map[string]string{"meta-data": ""})
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "user-data")); err != nil {
		t.Fatal(err)
	}
	if got, err := FromDirectory(dir, "here"); err == nil {
		t.Errorf("a link out of the seed: %+v", got)
	}
	if _, err := FromDirectory(write(t, map[string]string{"user-data": strings.Repeat("a", mostSeed+1)}),
		"here"); err == nil {
		t.Error("a seed without bounds was read")
	}
}

func TestAskVMware(t *testing.T) {
	t.Parallel()
	tool := func(script string) string {
		path := filepath.Join(t.TempDir(), "tool")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got, err := askVMware(t.Context(),
		tool(`[ "$1" = "info-get guestinfo.ovfEnv" ] && echo '<Environment><PropertySection><Property `+
			`key="director.hostname" value="d1"/></PropertySection></Environment>'`))
	if err != nil || got.Properties["hostname"] != "d1" {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = askVMware(t.Context(), tool(`case $1 in
*.userdata) printf '#cloud-config\nhostname: d2\n' | base64 -w0 ;;
*.userdata.encoding) echo base64 ;;
*) echo 'No value found'; exit 1 ;;
esac`))
	if err != nil || got.Source != "guestinfo.userdata" || got.Properties["hostname"] != "d2" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := askVMware(t.Context(), tool("echo 'No value found'; exit 1")); err != nil || got.Source != "" {
		t.Errorf("without properties: %+v, %v", got, err)
	}
	if _, err := askVMware(t.Context(), tool("echo '<Env'")); director.KindOf(err) != director.KindInvalid {
		t.Errorf("nonsense: %v", err)
	}
}

// ntp serves the time to who asks.
func ntp(t *testing.T, stratum byte, theirs time.Time) (address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 48)
		for {
			_, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			reply := make([]byte, 48)
			reply[0], reply[1] = 0x24, stratum
			seconds := uint32(theirs.Unix() + 2208988800)
			binary.BigEndian.PutUint32(reply[40:], seconds)
			_, _ = conn.WriteTo(reply, from)
		}
	}()
	return conn.LocalAddr().String()
}

// A clock that is years off is named in days, with what sets it.
func TestClockIsYearsOff(t *testing.T) {
	t.Parallel()
	theirs := time.Unix(1750000000, 0)
	server := ntp(t, 2, theirs)
	for years, want := range map[int]string{
		5:   "the clock of this VM is 1826 days ahead of its time",
		-5:  "the clock of this VM is 1826 days behind its time",
		-55: "20089 days behind",
	} {
		f := checkNTP(t.Context(), server, func() time.Time { return theirs.AddDate(years, 0, 0) })
		if f.Err == nil || !strings.Contains(f.Err.Error(), want) ||
			!strings.Contains(director.HintOf(f.Err), "chronyc makestep") {
			t.Errorf("%d years: %v (%s)", years, f.Err, director.HintOf(f.Err))
		}
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	now := time.Unix(1750000000, 0)
	clock := func() time.Time { return now }
	if f := checkNTP(t.Context(), ntp(t, 2, now), clock); f.Err != nil {
		t.Error(f.Err)
	}
	if f := checkNTP(t.Context(), ntp(t, 2, now.Add(-time.Hour)), clock); f.Err == nil ||
		!strings.Contains(f.Err.Error(), "-1h0m0s") {
		t.Errorf("a clock that is wrong: %+v", f)
	}
	if f := checkNTP(t.Context(), ntp(t, 16, now), clock); f.Err == nil {
		t.Errorf("a server without time: %+v", f)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if f := checkTarget(t.Context(), "https://"+address+"/sdk"); f.Err != nil {
		t.Error(f.Err)
	}
	_ = listener.Close()
	if f := checkTarget(t.Context(), address); f.Err == nil || director.HintOf(f.Err) == "" {
		t.Errorf("nothing listens: %+v", f)
	}
	if f := checkDNS(t.Context(), address, "a.example.org"); f.Err == nil {
		t.Errorf("no DNS server: %+v", f)
	}
	for target, want := range map[string]string{
		"https://vc": "vc:443", "qemu+ssh://root@h/system": "h:22", "qemu+tls://h/system": "h:16514", "h:5": "h:5",
		"[::1]:22": "[::1]:22", "https://[2001:db8::1]:8443/": "[2001:db8::1]:8443",
	} {
		if got, err := addressOf(target); got != want || err != nil {
			t.Errorf("%s: %s, %v", target, got, err)
		}
	}
	for _, target := range []string{"vc", "ftp://vc", "https://", ""} {
		if f := checkTarget(t.Context(), target); f.Err == nil {
			t.Errorf("%q: %+v", target, f)
		}
	}
}
