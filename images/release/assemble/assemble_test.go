package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"

	"github.com/director-kaas/kaas/director/bundle"
)

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// upstream is the form of the project's manifest, with what the rewriting looks at.
const upstream = `---
# Source: a comment
kind: ConfigMap
apiVersion: v1
metadata:
  name: calico-config
data:
  calico_backend: "vxlan"
  veth_mtu: "0"
  cni_network_config: |-
    {"mtu": __CNI_MTU__}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: ippools.crd.projectcalico.org
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: calico-node
---
kind: DaemonSet
apiVersion: apps/v1
metadata:
  name: calico-node
spec:
  template:
    spec:
      initContainers:
        - name: install-cni
          image: docker.io/calico/cni:v3.28.5
      containers:
        - name: calico-node
          image: docker.io/calico/node:v3.28.5
          livenessProbe: {exec: {command: [calico-node, -felix-live]}}
          volumeMounts:
            - {name: cni-net-dir, mountPath: /host/etc/cni/net.d}
            - {name: lib-modules, mountPath: /lib/modules}
            - {name: xtables-lock, mountPath: /run/xtables.lock}
            - {name: var-run-calico, mountPath: /var/run/calico}
            - {name: var-lib-calico, mountPath: /var/lib/calico}
            - {name: bpffs, mountPath: /sys/fs/bpf}
      volumes:
        - {name: cni-net-dir, hostPath: {path: /etc/cni/net.d}}
        - {name: lib-modules, hostPath: {path: /lib/modules}}
        - {name: xtables-lock, hostPath: {path: /run/xtables.lock}}
        - {name: var-run-calico, hostPath: {path: /var/run/calico}}
        - {name: var-lib-calico, hostPath: {path: /var/lib/calico}}
        - {name: bpffs, hostPath: {path: /sys/fs/bpf}}
---
kind: Deployment
apiVersion: apps/v1
metadata:
  name: calico-kube-controllers
spec:
  template:
    spec:
      containers:
        - name: calico-kube-controllers
          image: docker.io/calico/kube-controllers:v3.28.5
          livenessProbe: {exec: {command: [/usr/bin/check-status, -l]}}
          readinessProbe: {exec: {command: [/usr/bin/check-status, -r]}, initialDelaySeconds: 5}
`

func TestCalicoManifest(t *testing.T) {
	t.Parallel()
	out, err := calicoManifest([]byte(upstream), "v3.28.5")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"image: '@REGISTRY@/calico-node:v3.28.5'", "image: '@REGISTRY@/calico-kube-controllers:v3.28.5'",
		"value: '@POD_CIDR@'", "value: '@VXLAN_PORT@'", "veth_mtu: '@MTU@'", "path: /liveness",
		"startupProbe:\n          exec:\n            command:\n            - /usr/bin/check-status\n            - -r",
		// The kubelet asks as soon as the start-up probe has succeeded, but not within an initial delay.
		"- -r\n          initialDelaySeconds: 0\n          periodSeconds: 10\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the manifest lacks %q", want)
		}
	}
	for _, no := range []string{"docker.io", "bpffs", "initContainers", "-felix-live"} {
		if strings.Contains(string(out), no) {
			t.Errorf("the manifest still has %q", no)
		}
	}
	// What the placeholders become must be YAML of the right types.
	filled := strings.NewReplacer("@REGISTRY@", "172.30.0.1:5000/kaas", "@POD_CIDR@", "10.244.0.0/16", "@VXLAN_PORT@", "4789", "@MTU@", "1450").
		Replace(string(out))
	for _, text := range strings.Split(filled, "---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if o["kind"] != "ConfigMap" {
			continue
		}
		for key, v := range at(o, "data") {
			if _, ok := v.(string); !ok {
				t.Errorf("%s is a %T, not a string", key, v)
			}
		}
	}
}

func TestCalicoManifestRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no deployment":     upstream[:strings.Index(upstream, "kind: Deployment")],
		"another container": strings.Replace(upstream, "- name: calico-node", "- name: other", 1),
		"a volume is gone":  strings.Replace(upstream, "- {name: lib-modules, hostPath: {path: /lib/modules}}", "", 1),
		"not YAML":          "kind: [",
		"a stray image":     upstream + "---\nkind: Pod\nspec: {image: docker.io/x}\n",
	} {
		if _, err := calicoManifest([]byte(text), "v3.28.5"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// parts makes stand-ins for every built part.
func parts(t *testing.T) input {
	t.Helper()
	root := t.TempDir()
	in := input{parts: pairs{}, calicoNode: filepath.Join(root, "node"), release: bundle.Release{
		Name: "k8s-1.37.1", Kubernetes: "v1.37.1", Arch: "amd64",
		Components: map[string]string{"etcd": "v3.7.3", "coredns": "v1.14.6", "pause": "3.10.2", "calico": "v3.28.5"},
	}}
	for part, programs := range map[string]string{
		"kubernetes":  "kubeadm kubelet kubectl kube-apiserver kube-controller-manager kube-scheduler kube-proxy",
		"etcd":        "etcd etcdctl",
		"etcdutl":     "etcdutl",
		"coredns":     "coredns",
		"containerd":  "containerd containerd-shim-runc-v2 ctr",
		"cni-plugins": "bridge portmap",
		"cri-tools":   "crictl",
		"calico":      "calico-node calico kube-controllers check-status",
		"pause":       "pause",
		"toolbox":     "toolbox",
		"consul-sync": "consul-sync",
	} {
		in.parts[part] = filepath.Join(root, part)
		for _, p := range strings.Fields(programs) {
			write(t, filepath.Join(root, part, p), "program "+p, 0o755)
		}
	}
	write(t, filepath.Join(root, "calico", "calico-vxlan.yaml"), upstream, 0o644)
	in.parts["debian"] = filepath.Join(root, "debian")
	write(t, filepath.Join(root, "debian", "packages.txt"), "busybox 1\n", 0o644)
	write(t, filepath.Join(root, "debian", "rootfs", "usr", "bin", "busybox"), "busybox", 0o755)
	if err := os.Symlink("busybox", filepath.Join(root, "debian", "rootfs", "usr", "bin", "sh")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "node", "calico-run"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(root, "node", "felix.cfg"), "[global]\n", 0o644)
	return in
}

// build makes a whole bundle from stand-ins.
func build(t *testing.T, in input) string {
	t.Helper()
	dir := t.TempDir()
	if err := in.fill(dir); err != nil {
		t.Fatal(err)
	}
	if err := bundle.Seal(t.Context(), dir, in.release); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestBuild(t *testing.T) {
	t.Parallel()
	in := parts(t)
	dir := build(t, in)
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, i := range b.Images() {
		refs = append(refs, i.Ref())
	}
	want := []string{
		"calico-kube-controllers:v3.28.5", "calico-node:v3.28.5", "consul-sync:v1.37.1", "coredns:v1.14.6", "etcd:v3.7.3", "kube-apiserver:v1.37.1",
		"kube-controller-manager:v1.37.1", "kube-proxy:v1.37.1", "kube-scheduler:v1.37.1", "pause:3.10.2", "toolbox:v1.37.1",
	}
	if diff := cmp.Diff(want, refs); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	for _, path := range []string{"cni/calico-ipam", "bin/etcdctl", "bin/etcdutl"} {
		if _, err := b.Path(path); err != nil {
			t.Error(err)
		}
	}

	// The same parts give the same bundle, to the byte.
	again := build(t, in)
	for _, name := range []string{"release.yaml", "images/index.json"} {
		first, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		second, err := os.ReadFile(filepath.Join(again, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s differs between two builds of the same parts", name)
		}
	}
}

func TestImageContents(t *testing.T) {
	t.Parallel()
	b, err := bundle.Open(build(t, parts(t)))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, i := range b.Images() {
		image, err := b.Layout().Image(i.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != "amd64" || config.OS != "linux" || len(config.Config.Entrypoint)+len(config.Config.Cmd) == 0 {
			t.Errorf("%s: configuration %+v", i.Ref(), config)
		}
		got[i.Name] = listing(t, image)
		if i.Name == "consul-sync" && (config.Config.User != "65532:65532" || config.Config.Entrypoint[0] != "/consul-sync") {
			t.Errorf("%s: configuration %+v, want the program as a user without rights", i.Ref(), config.Config)
		}
	}
	for name, want := range map[string][]string{
		"pause":       {"0755 pause"},
		"consul-sync": {"0755 etc/", "1777 tmp/", "0644 etc/group", "0644 etc/nsswitch.conf", "0644 etc/passwd", "0755 consul-sync"},
		"etcd":        {"0755 etc/", "1777 tmp/", "0644 etc/group", "0644 etc/nsswitch.conf", "0644 etc/passwd", "0755 usr/", "0755 usr/local/", "0755 usr/local/bin/", "0755 usr/local/bin/etcd", "0755 usr/local/bin/etcdctl"},
		"kube-proxy":  {"0755 usr/", "0755 usr/bin/", "0755 usr/bin/busybox", "0777 usr/bin/sh", "0755 usr/", "0755 usr/local/", "0755 usr/local/bin/", "0755 usr/local/bin/kube-proxy"},
	} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// listing returns mode and name of everything in the layers.
func listing(t *testing.T, image v1.Image) []string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		archive := tar.NewReader(r)
		for {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if !h.ModTime.Equal(epoch) {
				t.Errorf("%s has the time %s", h.Name, h.ModTime)
			}
			all = append(all, strings.TrimSpace(octal(h.Mode)+" "+h.Name))
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func octal(mode int64) string {
	digits := make([]byte, 4)
	for i := range digits {
		digits[len(digits)-1-i] = byte('0' + mode>>(3*i)&7)
	}
	return string(digits)
}

func TestMissingPart(t *testing.T) {
	t.Parallel()
	in := parts(t)
	delete(in.parts, "coredns")
	if err := in.fill(t.TempDir()); err == nil || !strings.Contains(err.Error(), "coredns") {
		t.Errorf("error = %v, want one that names the part", err)
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"dance", "-dir", "x"}, {"seal"}, {"seal", "-dir", t.TempDir(), "-component", "x"}, {"verify", "-dir", t.TempDir()}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
