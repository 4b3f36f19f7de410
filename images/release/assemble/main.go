// Command assemble puts built parts together to a release bundle, and seals bundles that were filled by hand.
//
//	assemble build -out DIR -kubernetes v1.37.1 ... -part NAME=DIR ...
//	assemble seal -dir DIR -kubernetes v1.37.1 -component etcd=v3.7.3 ...
//	assemble verify -dir DIR
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "assemble:", err)
		if hint := director.HintOf(err); hint != "" {
			fmt.Fprintln(os.Stderr, "assemble:", hint)
		}
		os.Exit(1)
	}
}

// pairs is a flag of the form NAME=VALUE that may be repeated.
type pairs map[string]string

// String returns nothing: there is no default.
func (p pairs) String() string { return "" }

// Set adds one pair.
func (p pairs) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" || value == "" {
		return errors.New("want NAME=VALUE")
	}
	p[name] = value
	return nil
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("want one of: build, seal, verify")
	}
	flags := flag.NewFlagSet("assemble "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "", "the directory of the bundle")
	kubernetes := flags.String("kubernetes", "", "the version of Kubernetes, with the leading v")
	arch := flags.String("arch", "amd64", "the architecture")
	sources := flags.String("calico-node", "", "build: the directory with what Calico's node image holds besides the programs")
	components, parts := pairs{}, pairs{}
	flags.Var(components, "component", "NAME=VERSION of another component; may be repeated")
	flags.Var(parts, "part", "build: NAME=DIR of a built part; may be repeated")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return errors.New("-dir is required, and nothing but flags")
	}
	release := bundle.Release{
		Name: "k8s-" + strings.TrimPrefix(*kubernetes, "v"), Kubernetes: *kubernetes, Arch: *arch, Components: components,
	}
	switch args[0] {
	case "build":
		in := input{parts: parts, release: release, calicoNode: *sources}
		if err := in.fill(*dir); err != nil {
			return err
		}
	case "seal":
	case "verify":
		b, err := bundle.Open(*dir)
		if err != nil {
			return err
		}
		return b.Verify(ctx)
	default:
		return fmt.Errorf("unknown command %q; want one of: build, seal, verify", args[0])
	}
	return bundle.Seal(ctx, *dir, release)
}

// input is what a bundle is built from.
type input struct {
	parts      map[string]string // directory of each built part by its name
	release    bundle.Release    // names the versions
	calicoNode string            // directory with what Calico's node image holds besides the programs
}

// part returns the path of a file of a part.
func (in input) part(name, file string) (string, error) {
	dir, ok := in.parts[name]
	if !ok {
		return "", fmt.Errorf("the part %s is missing", name)
	}
	return filepath.Join(dir, file), nil
}

// binaries lists the programs in bin/ by part.
var binaries = []struct{ part, program string }{
	{"kubernetes", "kubeadm"},
	{"kubernetes", "kubelet"},
	{"kubernetes", "kubectl"},
	{"etcd", "etcdctl"},
	{"etcdutl", "etcdutl"},
	{"containerd", "containerd"},
	{"containerd", "containerd-shim-runc-v2"},
	{"containerd", "ctr"},
	{"cri-tools", "crictl"},
}

// fill writes everything but release.yaml to dir.
func (in input) fill(dir string) error {
	for _, sub := range []string{"bin", "cni", "manifests"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	for _, b := range binaries {
		from, err := in.part(b.part, b.program)
		if err != nil {
			return err
		}
		if err := link(from, filepath.Join(dir, "bin", b.program)); err != nil {
			return err
		}
	}
	if err := in.fillCNI(filepath.Join(dir, "cni")); err != nil {
		return err
	}
	if err := in.writeManifest(filepath.Join(dir, "manifests", "calico.yaml")); err != nil {
		return err
	}
	packages, err := in.part("debian", "packages.txt")
	if err != nil {
		return err
	}
	if err := link(packages, filepath.Join(dir, "debian-packages.txt")); err != nil {
		return err
	}
	return in.writeImages(filepath.Join(dir, bundle.ImagesDir))
}

// fillCNI links the plugins and Calico to dir.
func (in input) fillCNI(dir string) error {
	plugins, err := in.part("cni-plugins", "")
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(plugins)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := link(filepath.Join(plugins, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	// One program that looks at the name it is called by.
	calico, err := in.part("calico", "calico")
	if err != nil {
		return err
	}
	for _, name := range []string{"calico", "calico-ipam"} {
		if err := link(calico, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// writeManifest writes Calico's manifest, with the bundle's images, to path.
func (in input) writeManifest(path string) error {
	upstream, err := in.part("calico", "calico-vxlan.yaml")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(upstream)
	if err != nil {
		return err
	}
	manifest, err := calicoManifest(text, in.release.Components["calico"])
	if err != nil {
		return fmt.Errorf("the manifest of Calico: %w", err)
	}
	return os.WriteFile(path, manifest, 0o644)
}

// link makes a hard link, or a copy where that is not possible.
func link(from, to string) error {
	if err := os.Link(from, to); err == nil {
		return nil
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		_ = target.Close()
		return err
	}
	return target.Close()
}
