package appliance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
)

const (
	password = "correct horse battery"
	sshKey   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1e8fJ3gFv2mL2yV6kq0d2m8xq9m3o2m4b1n7c5d9eF ann@example.org"
)

// good are properties that are all right, with changes: an empty value removes one.
func good(changes ...string) map[string]string {
	given := map[string]string{
		"hostname": "director.example.org", "address": "192.0.2.10/24", "gateway": "192.0.2.1", "dns": "192.0.2.53",
		"ntp": "192.0.2.123, ntp.example.org", "search": "example.org", "admin_password": password, "ssh_keys": sshKey,
	}
	for i := 0; i < len(changes); i += 2 {
		given[changes[i]] = changes[i+1]
		if changes[i+1] == "" {
			delete(given, changes[i])
		}
	}
	return given
}

func pair(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "director"},
		DNSNames:  []string{"director.example.org"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

func TestRead(t *testing.T) {
	t.Parallel()
	s, err := Read(good())
	if err != nil {
		t.Fatal(err)
	}
	if bcrypt.CompareHashAndPassword([]byte(s.ConsoleHash), []byte(password)) != nil {
		t.Error("the console does not take the password")
	}
	if err := auth.CheckHash("", s.PasswordHash); err != nil {
		t.Error(err)
	}
	got := s.Values()
	want := good("ntp", "192.0.2.123,ntp.example.org", "admin_password", "")
	want["admin_password_hash"], want["certificate"], want["certificate_key"] = s.PasswordHash, "", ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if again, err := Read(got); err != nil || again.PasswordHash != s.PasswordHash || again.ConsoleHash != "" {
		t.Errorf("read again: %+v, %v", again, err)
	}
	if s, err = Read(good("address", "", "gateway", "", "hostname", "D1")); err != nil || s.Address.IsValid() ||
		s.Hostname != "d1" {
		t.Errorf("by DHCP: %+v, %v", s, err)
	}
}

func TestWrongProperties(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", most+1)
	for name, tt := range map[string]struct {
		changes []string
		want    []string // properties that are named
	}{
		"nothing":             {nil, nil},
		"no host name":        {[]string{"hostname", ""}, []string{"hostname"}},
		"host name":           {[]string{"hostname", "a_b"}, []string{"hostname"}},
		"host name, lines":    {[]string{"hostname", "a\nb"}, []string{"hostname"}},
		"host name, option":   {[]string{"hostname", "-a"}, []string{"hostname"}},
		"host name, localost": {[]string{"hostname", "localhost"}, []string{"hostname"}},
		"no prefix":           {[]string{"address", "192.0.2.10"}, []string{"address"}},
		"network":             {[]string{"address", "192.0.2.0/24"}, []string{"address"}},
		"broadcast":           {[]string{"address", "192.0.2.255/24"}, []string{"address"}},
		"loopback":            {[]string{"address", "127.0.0.1/8", "gateway", ""}, []string{"address"}},
		"first of a pair":     {[]string{"address", "192.0.2.0/31"}, nil},
		"IPv6":                {[]string{"address", "2001:db8::5/64", "gateway", "2001:db8::1"}, nil},
		"gateway elsewhere":   {[]string{"gateway", "198.51.100.1"}, []string{"gateway"}},
		"gateway is itself":   {[]string{"gateway", "192.0.2.10"}, []string{"gateway"}},
		"gateway, DHCP":       {[]string{"address", ""}, []string{"gateway"}},
		"gateway, lines":      {[]string{"gateway", "192.0.2.1\nDNS=6.6.6.6"}, []string{"gateway"}},
		"no gateway":          {[]string{"gateway", ""}, nil},
		"DNS by name":         {[]string{"dns", "ns.example.org"}, []string{"dns"}},
		"one DNS of two":      {[]string{"dns", "192.0.2.53,192.0.2.999"}, []string{"dns"}},
		"NTP":                 {[]string{"ntp", "a;b"}, []string{"ntp"}},
		"NTP, lines":          {[]string{"ntp", "a\nallow"}, nil}, // two names
		"NTP, option":         {[]string{"ntp", "a#b"}, []string{"ntp"}},
		"search":              {[]string{"search", "a/b"}, []string{"search"}},
		"no password":         {[]string{"admin_password", ""}, []string{"admin_password"}},
		"short password":      {[]string{"admin_password", "short"}, []string{"admin_password"}},
		"password, lines":     {[]string{"admin_password", "correct\nhorse battery"}, []string{"admin_password"}},
		"password and hash": {
			[]string{"admin_password_hash", auth.HashPassword(password)},
			[]string{"admin_password_hash"},
		},
		"another hash": {
			[]string{"admin_password", "", "admin_password_hash", "$6$a$b"},
			[]string{"admin_password_hash"},
		},
		"SSH key":           {[]string{"ssh_keys", "nonsense"}, []string{"ssh_keys[0]"}},
		"second SSH key":    {[]string{"ssh_keys", sshKey + ",ssh-rsa AAAA"}, []string{"ssh_keys[1]"}},
		"SSH key, options":  {[]string{"ssh_keys", `command="sh" ` + sshKey}, []string{"ssh_keys[0]"}},
		"certificate alone": {[]string{"certificate", "x"}, []string{"certificate"}},
		"no PEM": {
			[]string{"certificate", "x", "certificate_key", "y"},
			[]string{"certificate", "certificate_key"},
		},
		"too long": {[]string{"search", long}, []string{"search"}},
		"unknown":  {[]string{"color", "red"}, []string{"color"}},
		"all at once": {
			[]string{"hostname", "", "address", "x", "dns", "y", "admin_password", ""},
			[]string{"hostname", "dns", "address", "admin_password"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := good(tt.changes...)
			_, err := Read(given)
			var got []string
			for _, f := range director.FieldsOf(err) {
				got = append(got, f.Path)
				if f.Hint == "" && !strings.HasPrefix(f.Path, "admin_password") {
					t.Errorf("%s has no next action", f.Path)
				}
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (len(tt.want) == 0) {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if p := given["admin_password"]; err != nil && p != "" && strings.Contains(err.Error(), p) {
				t.Errorf("the error holds the password: %v", err)
			}
		})
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	cert, key := pair(t)
	_, other := pair(t)
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	escaped := func(s string) string { return strings.ReplaceAll(s, "\n", `\n`) }
	spaced := func(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", " ") }
	for name, how := range map[string]func(string) string{
		"as it is": strings.TrimSpace, "base64": encode, "escaped": escaped, "one line": spaced,
	} {
		s, err := Read(good("certificate", how(cert), "certificate_key", how(key)))
		if err != nil || s.Certificate != cert || s.Key != key {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Read(good("certificate", cert, "certificate_key", other))
	if fields := director.FieldsOf(err); len(fields) != 1 || fields[0].Path != "certificate" {
		t.Errorf("a key of another certificate: %v", err)
	}
	_, err = Read(good("certificate", cert, "certificate_key", key, "hostname", "another.example.org"))
	if fields := director.FieldsOf(err); len(fields) != 1 || fields[0].Path != "certificate" {
		t.Errorf("a certificate of another name: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "PRIVATE") {
		t.Errorf("the error holds the key: %v", err)
	}
}

func TestOVF(t *testing.T) {
	t.Parallel()
	const text = `<?xml version="1.0" encoding="UTF-8"?>
<Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" xmlns:oe="http://schemas.dmtf.org/ovf/environment/1" ` +
		`oe:id="">
<PlatformSection><Kind>VMware ESXi</Kind></PlatformSection>
<PropertySection>
<Property oe:key="director.hostname" oe:value="d1"/><Property oe:key="director.ssh_keys" oe:value="a&#10;b"/>
<Property oe:key="director.gateway" oe:value=""/><Property oe:key="other.thing" oe:value="x"/>
</PropertySection></Environment>`
	got, err := ParseOVF([]byte(text))
	if diff := cmp.Diff(map[string]string{"hostname": "d1", "ssh_keys": "a\nb"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name, bad := range map[string]string{
		"empty": "", "cut": text[:300], "another document": "<a/>",
		"twice":   strings.Replace(text, "director.ssh_keys", "director.hostname", 1),
		"entity":  `<!DOCTYPE a [<!ENTITY x "y">]>` + strings.Replace(text[38:], "d1", "&x;", 1),
		"charset": strings.Replace(text, "UTF-8", "UTF-7", 1),
	} {
		if got, err := ParseOVF([]byte(bad)); director.KindOf(err) != director.KindInvalid ||
			director.HintOf(err) == "" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestSeeds(t *testing.T) {
	t.Parallel()
	const netplan = "version: 2\n" +
		"ethernets: {any: {addresses: [192.0.2.10/24], routes: [{to: default, via: 192.0.2.1}], " +
		"nameservers: {addresses: [192.0.2.53], search: [example.org]}}}\n"
	full := map[string]string{
		"hostname": "d1", "address": "192.0.2.10/24", "gateway": "192.0.2.1", "dns": "192.0.2.53",
		"search": "example.org",
		"ntp":    "a,b", "ssh_keys": "k1\nk2", "admin_password": "secret",
	}
	user := "#cloud-config\nhostname: d1\nssh_authorized_keys: [k1, k2]\nntp: {servers: [a], pools: [b]}\n" +
		"director: {admin_password: secret}\npackages: [x]\n"
	own := maps.Clone(full)
	own["hostname"], own["dns"] = "d2", "192.0.2.54\n192.0.2.55"
	for name, tt := range map[string]struct {
		seed Seed
		want map[string]string
		bad  string
	}{
		"NoCloud": {Seed{UserData: []byte(user), NetworkConfig: []byte(netplan)}, full, ""},
		"wrapped": {Seed{
			UserData:      []byte(user),
			NetworkConfig: []byte("network: {" + "version: 2, ethernets: {a: {}}}"),
		}, nil, "-"},
		"own counts": {Seed{UserData: []byte(strings.Replace(user, "director: {",
			"director: {hostname: d2, dns: [192.0.2.54, 192.0.2.55], ", 1)), NetworkConfig: []byte(netplan)}, own, ""},
		"script":       {Seed{UserData: []byte("#!/bin/sh\n")}, nil, "user-data"},
		"no YAML":      {Seed{UserData: []byte("#cloud-config\na: [")}, nil, "user-data"},
		"no map":       {Seed{UserData: []byte("#cloud-config\ndirector: secret\n")}, nil, "director"},
		"nested":       {Seed{UserData: []byte("#cloud-config\ndirector: {dns: {a: b}}\n")}, nil, "director.dns"},
		"two adapters": {Seed{NetworkConfig: []byte("version: 2\nethernets: {a: {}, b: {}}\n")}, nil, "network-config"},
		"version 1":    {Seed{NetworkConfig: []byte("version: 1\n")}, nil, "network-config"},
		"config drive": {Seed{
			UserData:  []byte("#cloud-config\ndirector: {admin_password: secret, search: example.org, ntp: 'a,b'}\n"),
			OpenStack: true,
			MetaData:  []byte(`{"hostname": "d1", "public_keys": {"b": "k2\n", "a": "k1"}}`),
			NetworkConfig: []byte(`{"networks": [{"type": "ipv4", "ip_address": "192.0.2.10", "netmask": ` +
				`"255.255.255.0",
				"routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.1"}]}],
				"services": [{"type": "dns", "address": "192.0.2.53"}]}`),
		}, full, ""},
		"netmask": {Seed{
			OpenStack: true,
			NetworkConfig: []byte(`{"networks": [{"type": "ipv4", "ip_address": "192.0.2.10", "netmask": ` +
				`"255.0.255.0"}]}`),
		}, nil, "network_data.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseSeed(tt.seed)
			if tt.bad == "-" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if tt.bad != "" {
				if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), tt.bad) {
					t.Errorf("%v, %v; want an error that names %s", got, err, tt.bad)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
