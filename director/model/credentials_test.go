package model

import (
	"strings"
	"testing"
)

// A URI is shown to everybody who may read documents.
func TestNoPasswordInAURI(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"qemu+ssh://root@host/system?keyfile=/etc/director/key": "",
		"qemu:///system":                          "",
		"qemu+tcp://root:hunter2@host/system":     "spec.libvirt.hosts[0].uri: holds a password",
		"qemu+libssh://root:@host/system?pool=1":  "spec.libvirt.hosts[0].uri: holds a password",
		"qemu+ext:///system?command=/bin/true":    "spec.libvirt.hosts[0].uri: has the transport",
		"qemu+ssh://u@h/system?command=/bin/true": "spec.libvirt.hosts[0].uri: has the key \"command\"",
	} {
		docs, err := Parse(
			[]byte(
				"apiVersion: kaas/v1\nkind: Provider\nmetadata: {name: p}\nspec: {type: libvirt, libvirt: {hosts: "+
					"[{name: h, uri: '"+uri+"'}]}}\n",
			),
			"",
		)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Validate(&docs[0])
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", uri, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats the password: %v", err)
		}
	}
}
