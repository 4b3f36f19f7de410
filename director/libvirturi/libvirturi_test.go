package libvirturi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]URI{
		"qemu:///system":            {},
		"qemu+ssh://root@H1/system": {Transport: SSH, User: "root", Host: "H1"},
		"qemu+ssh://h1.example.org:2222/system?keyfile=/etc/director/providers/key": {
			Transport: SSH, Host: "h1.example.org", Port: 2222, KeyFile: "/etc/director/providers/key",
		},
		"qemu+ssh://kaas@10.0.0.7/system": {
			Transport: SSH, User: "kaas", Host: "10.0.0.7",
		},
		"qemu+ssh://kaas@[fd00::7]:22/system": {
			Transport: SSH, User: "kaas", Host: "fd00::7", Port: 22,
		},
		"qemu+tls://h2/system": {Transport: TLS, Host: "h2"},
		"qemu+tls://[fd00::7]/system?pkipath=/etc/director/providers/h2": {
			Transport: TLS, Host: "fd00::7", PKIPath: "/etc/director/providers/h2",
		},
		"qemu+unix:///system?socket=/run/lab/libvirt-sock": {
			Transport: Unix, Socket: "/run/lab/libvirt-sock",
		},
	} {
		u, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, u); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if u.String() != text {
			t.Errorf("%s is written as %s", text, u)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "is not a libvirt connection URI", "qemu": "is not a libvirt", "QEMU:///system": "is not a libvirt",
		"test:///default": "is not a libvirt", "qemu:///session": "is not a libvirt",
		"qemu:///system/": "is not a libvirt", "qemu:/system": "is not a libvirt", "qemu://h/system": "no transport",
		"qemu+:///system":                                     "transport",
		"qemu+ext:///system?command=/bin/true":                "transport",
		"qemu+tcp://h/system":                                 "transport",
		"qemu+libssh://h/system":                              "transport",
		"qemu+libssh2://h/system":                             "transport",
		"qemu+ssh:///system":                                  `host ""`,
		"qemu+ssh://root:hunter2@h/system":                    "password",
		"qemu+ssh://root:@h/system":                           "password",
		"qemu+ssh://-oProxyCommand=x@h/system":                "user",
		"qemu+ssh://-oProxyCommand=x/system":                  "host",
		"qemu+ssh://a@b@h/system":                             "host",
		"qemu+ssh://h..x/system":                              "host",
		"qemu+ssh://[fd00::7%25eth0]/system":                  "character",
		"qemu+ssh://[10.0.0.7]/system":                        "host",
		"qemu+ssh://[fd00::7]x/system":                        "host",
		"qemu+ssh://h:0/system":                               "port",
		"qemu+ssh://h:022/system":                             "port",
		"qemu+ssh://h:65536/system":                           "port",
		"qemu+ssh://h:/system":                                "port",
		"qemu+tls://root@h/system":                            "user",
		"qemu+ssh://h/system?command=/bin/true":               `"command"`,
		"qemu+ssh://h/system?netcat=/bin/true":                `"netcat"`,
		"qemu+ssh://h/system?socket=/x":                       `"socket"`,
		"qemu+ssh://h/system?proxy=native":                    `"proxy"`,
		"qemu+ssh://h/system?name=qemu:///system":             `"name"`,
		"qemu+ssh://h/system?no_verify=1":                     `"no_verify"`,
		"qemu+ssh://h/system?known_hosts_verify=ignore":       `"known_hosts_verify"`,
		"qemu+tls://h/system?keyfile=/x":                      `"keyfile"`,
		"qemu+ssh://h/system?KEYFILE=/x":                      `"KEYFILE"`,
		"qemu+ssh://h/system?keyfile=/x&keyfile=/y":           "twice",
		"qemu+ssh://h/system?keyfile=/x;command=/y":           "character",
		"qemu+ssh://h/system?%63ommand=/y":                    "character",
		"qemu+ssh://h/system?keyfile=/x&amp":                  `"amp"`,
		"qemu+ssh://h/system?keyfile=x":                       "path",
		"qemu+ssh://h/system?keyfile=/x/../y":                 "path",
		"qemu+ssh://h/system?keyfile=/x//y":                   "path",
		"qemu+ssh://h/system?keyfile=":                        "path",
		"qemu+ssh://h/system?":                                `""`,
		"qemu+ssh://h/system?keyfile=/x?command=/y":           "path",
		"qemu+ssh://h/system#x":                               "character",
		"qemu+ssh://h/system\n":                               "0x0a",
		"qemu+ssh://h/system?keyfile=/x y":                    "0x20",
		"qemu:///system?socket=/x":                            `"socket"`,
		"qemu+unix:///system":                                 "no socket",
		"qemu+unix://h/system?socket=/x":                      "no transport",
		"qemu+ssh://" + strings.Repeat("h", 2000) + "/system": "2018 bytes",
	} {
		u, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %s", text, u, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error repeats the password: %v", text, err)
		}
	}
}
