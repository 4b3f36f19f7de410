package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/libvirturi"
	"github.com/director-kaas/kaas/plugins/libvirt/urioracle"
)

// A URI that runs a program never reaches libvirt, whoever has made the configuration.
func TestOpenRunsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, ran := filepath.Join(dir, "program"), filepath.Join(dir, "ran")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{
		"qemu+ext:///system?command=" +
			program, "qemu+ssh://u@h/system?command=" + program, "qemu+ssh://u@h/system?netcat=" + program,
		"qemu+ssh://-oProxyCommand=" + program + "/system", "qemu+ssh://h/system?COMMAND=" + program,
		"qemu+ssh://h/system?%63ommand=" + program,
		"test:///default",
	} {
		b, err := Open(Config{
			Hosts: []HostConfig{{Name: "h", URI: uri}},
			Doors: Doors{Files: confine.Dirs{"/"}, Sockets: confine.Dirs{"/"}},
		})
		if director.KindOf(err) != director.KindInvalid {
			t.Errorf("%s: %v", uri, err)
		}
		if err == nil {
			_, _ = b.Probe(t.Context())
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the program ran")
	}
}

func TestDoor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys, secret := filepath.Join(dir, "keys"), filepath.Join(dir, "secret")
	if err := errors.Join(
		os.Mkdir(keys, 0o700), os.WriteFile(filepath.Join(keys, "key"), nil, 0o600), os.WriteFile(secret, nil, 0o600),
		os.Symlink(secret, filepath.Join(keys, "link")),
	); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Doors: Doors{Files: confine.Dirs{keys}, Sockets: confine.Dirs{keys}, Networks: confine.Private()}}
	for uri, want := range map[string]string{
		"qemu+ssh://10.0.0.7/system?keyfile=" + keys + "/key":     "",
		"qemu+tls://10.0.0.7/system?pkipath=" + keys + "/key":     "",
		"qemu+unix:///system?socket=" + keys + "/sock":            "",
		"qemu+ssh://10.0.0.7/system?keyfile=" + secret:            "outside",
		"qemu+tls://10.0.0.7/system?pkipath=" + secret:            "outside",
		"qemu+unix:///system?socket=" + secret:                    "outside",
		"qemu+ssh://10.0.0.7/system?keyfile=" + keys + "/link":    "is not allowed",
		"qemu+ssh://10.0.0.7/system?keyfile=" + keys + "/nothing": "cannot be read",
		"qemu+ssh://127.0.0.1/system":                             "may not connect",
		"qemu+ssh://localhost/system":                             "may not connect",
		"qemu+tls://169.254.169.254/system":                       "may not connect",
		"qemu+ssh://[::1]/system":                                 "may not connect",
		"qemu+tls://[::ffff:127.0.0.1]/system":                    "may not connect",
		"qemu+ssh://8.8.8.8/system":                               "may not connect",
		"qemu+ssh://[fd00::7]/system":                             "",
		"qemu+ssh://host.invalid/system":                          "cannot be resolved",
	} {
		d, err := cfg.door(uri)
		if err == nil {
			_, err = d.open("test", "h")
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", uri, err, want)
		}
	}
	for uri, want := range map[string]bool{
		"qemu:///system": false, "qemu+unix:///system?socket=" + keys + "/s": false, "qemu+ssh://root@h/system": true,
		"qemu+tls://h/system": true,
	} {
		if d, err := cfg.door(uri); err != nil || d.remote() != want {
			t.Errorf("%s: remote is %t, %v", uri, !want, err)
		}
	}
}

// FuzzLibvirtURI holds every URI that the director accepts against the installed libvirt: it reads the same host, user,
// port and keys, and none besides.
func FuzzLibvirtURI(f *testing.F) {
	for _, s := range []string{
		"qemu:///system", "qemu+ssh://root@h1/system",
		"qemu+ssh://root@h1:2222/system?keyfile=/etc/director/providers/key", "qemu+ssh://kaas@[fd00::7]/system",
		"qemu+tls://h2.example.org/system?pkipath=/etc/director/providers/h2",
		"qemu+unix:///system?socket=/run/libvirt/libvirt-sock",
		"qemu+ext:///system?command=/bin/true", "qemu+ssh://u@h/system?command=/bin/true",
		"qemu+ssh://u@h/system?netcat=nc", "qemu+ssh://u@h/system?proxy=native",
		"qemu+ssh://h/system?no_verify=1", "qemu+libssh://h/system?known_hosts_verify=ignore", "qemu+tcp://h/system",
		"qemu+ssh://h/system?name=lxc:///",
		"qemu+ssh://h/system?%63ommand=/bin/true", "qemu+ssh://h/system?KeyFile=/x",
		"qemu+ssh://h/system?keyfile=/x&keyfile=/y", "qemu+ssh://h/system?keyfile=/x;command=/y",
		"qemu+ssh://h/system?keyfile=%2Fx", "qemu+ssh://-oProxyCommand=x@h/system", "qemu+ssh://h%00x/system",
		"qemu+ssh://a@b@h/system", "qemu+ssh://h:22:23/system",
		"qemu+SSH://h/system", "QEMU:///system", "qemu+ssh://h/system?keyfile=/x#&command=/y",
		"qemu+ssh://h/system?&keyfile=/x", "qemu+ssh://[::ffff:10.0.0.1]/system",
		"qemu+ssh://h/system?keyfile=/x\x00command=/y", "qemu+ssh://[fe80::1%25eth0]/system",
		"qemu+ssh://10.0.0.1./system", "qemu+ssh://h\\@x/system",
	} {
		f.Add(s)
	}
	if !urioracle.Installed() {
		f.Skip("libvirt's client library is not installed: run test/lab/need.sh libvirt0")
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := libvirturi.Parse(text)
		if err != nil {
			return
		}
		if again, err := libvirturi.Parse(u.String()); err != nil || again != u {
			t.Fatalf("%q is written as %q, which is read as %+v, %v", text, u, again, err)
		}
		for _, form := range []string{text, u.String()} {
			got, ok := urioracle.Parse(form)
			if !ok {
				t.Fatalf("libvirt refuses %q", form)
			}
			want := urioracle.URI{
				Scheme: "qemu", Server: strings.Trim(u.Host, "[]"), User: u.User, Port: u.Port, Path: "/system",
			}
			if u.Transport != "" {
				want.Scheme += "+" + u.Transport
			}
			for _, p := range [][2]string{{"keyfile", u.KeyFile}, {"pkipath", u.PKIPath}, {"socket", u.Socket}} {
				if p[1] != "" {
					want.Params = append(want.Params, p)
				}
			}
			if _, query, _ := strings.Cut(form, "?"); got.Query != query {
				t.Fatalf("libvirt's query of %q is %q", form, got.Query)
			}
			got.Query = ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%q (-director +libvirt):\n%s", form, diff)
			}
		}
	})
}
