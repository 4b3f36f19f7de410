package steps

import (
	"context"
	"crypto/x509"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// sourceSteps bring networks and images to providers.
type sourceSteps struct {
	Installation
	Machines
	Sources
}

// releaseSteps bring releases to the registry.
type releaseSteps struct {
	Installation
	Sources
	Registry
}

func (e sourceSteps) networkEnsure(ctx context.Context, _ plan.Run, p step.NetworkParams) error {
	b, err := e.backend(ctx, p.Provider)
	if err != nil {
		return err
	}
	n, ok := hypervisor.Capability[hypervisor.Networking](b)
	if !ok {
		return director.Errorf(director.KindInvalid, "steps.network", "provider %s cannot make networks", p.Provider)
	}
	return n.EnsureNetwork(ctx, hypervisor.NetworkSpec{
		Owner: e.stamp(p.UID), Name: p.Name, Mode: p.Network.Mode, Bridge: p.Network.Bridge,
		PortGroup: p.Network.PortGroup, CIDR: p.Network.CIDR, Gateway: p.Network.Gateway,
		VLAN: p.Network.VLAN, OpenVSwitch: p.Network.Switch == "openvswitch",
	})
}

func (e sourceSteps) networkDelete(ctx context.Context, r plan.Run, p step.NetworkParams) error {
	b, err := e.backend(ctx, p.Provider)
	if err != nil {
		return err
	}
	n, ok := hypervisor.Capability[hypervisor.Networking](b)
	if !ok {
		return nil
	}
	// A creation may have been started since the plan was made.
	if user, err := e.Ledger.NetworkUser(ctx, p.Provider, p.Name); err != nil || user != "" {
		if err == nil {
			r.Note(ctx, "the network stays: cluster "+user+" uses it now")
		}
		return err
	}
	return n.DeleteNetwork(ctx, p.Name, e.stamp(p.UID))
}

func (e sourceSteps) imageEnsure(ctx context.Context, r plan.Run, p step.ImageParams) error {
	b, err := e.backend(ctx, p.Provider)
	if err != nil {
		return err
	}
	im, ok := hypervisor.Capability[hypervisor.Imaging](b)
	if !ok {
		return director.Errorf(director.KindInvalid, "steps.image", "provider %s cannot keep images", p.Provider)
	}
	path := e.ImagePath(p.Image)
	if p.Image.Source != "" {
		if path, err = e.confined(func(r confine.Rules) confine.Dirs { return r.Images }, path); err != nil {
			return err
		}
	}
	if _, err := e.Gate.Image(p.Image, path); err != nil {
		return err
	}
	lastTenth := int64(-1)
	if e.Images != nil { // before anything is there, so that nothing is there unknown
		if err := e.Images.NoteImage(ctx, director.ProviderImage{
			Provider: p.Provider, Name: p.Name, Image: p.Document, SHA256: p.Image.SHA256, At: e.Now(),
		}); err != nil {
			return err
		}
	}
	return im.EnsureImage(ctx, hypervisor.ImageSpec{
		Name: p.Name, Path: path, SHA256: p.Image.SHA256, Format: p.Image.Format,
	},
		func(done, total int64) {
			if tenth := done * 10 / max(total, 1); tenth != lastTenth {
				lastTenth = tenth
				r.Note(ctx, "uploading, "+tenths[min(tenth, 10)])
			}
		})
}

var tenths = [...]string{"0 %", "10 %", "20 %", "30 %", "40 %", "50 %", "60 %", "70 %", "80 %", "90 %", "100 %"}

// confined returns where a file or directory is that a document names, with no link left to follow: links may have
// changed since the plan was made.
func (e Sources) confined(dirs func(confine.Rules) confine.Dirs, path string) (string, error) {
	if e.Confine == nil {
		return path, nil
	}
	real, err := dirs(*e.Confine).Find(path)
	if errors.Is(err, confine.ErrOutside) {
		return "", director.Errorf(director.KindInvalid, "steps.files", "a file of the plan is not allowed: %s", err).
			WithHint(
				"move it there, apply its document again and plan again; imageDirs and bundleDirs of the director's " +
					"configuration name the directories",
			)
	}
	if err != nil {
		return path, nil // who opens it says what is wrong
	}
	return real, nil
}

// ImagePath returns where the file of the image is on this director, or would be.
func (e Sources) ImagePath(i model.Image) string {
	if i.Source == "" && e.Imported != nil {
		return e.Imported(i.SHA256)
	}
	return i.Source
}

// bundle opens the bundle that the plan was made for: an imported one if dir is empty.
func (e Sources) bundle(dir, digest string) (*bundle.Bundle, error) {
	real := ""
	var err error
	if dir == "" && e.ImportedRelease != nil {
		real = e.ImportedRelease(digest)
	} else if real, err = e.confined(func(r confine.Rules) confine.Dirs { return r.Bundles }, dir); err != nil {
		return nil, err
	}
	b, err := bundle.Open(real)
	if err != nil {
		return nil, err
	}
	if b.Digest() != digest {
		return nil, director.Errorf(
			director.KindConflict, "steps.release", "the bundle in %s is not the one that the plan was made for", real,
		).
			WithHint("discard the plan and plan again")
	}
	return b, nil
}

func (e releaseSteps) releasePush(ctx context.Context, r plan.Run, p step.ReleaseParams) error {
	b, err := e.bundle(p.Bundle, p.Digest)
	if err != nil {
		return err
	}
	if e.away() {
		return waitForRegistry()
	}
	err = e.pushRelease(ctx, p.Name, b, p.Unsigned, func(i bundle.Image) { r.Note(ctx, "image "+i.Ref()) })
	if err != nil && e.away() {
		return waitForRegistry()
	}
	return err
}

// away reports whether the registry's bucket is known to be away.
func (e Registry) away() bool { return e.Content != nil && e.Content() != nil }

// waitForRegistry costs no attempts: a storage that is away for an hour fails no plan.
func waitForRegistry() error {
	return plan.After(10*time.Second, "waits for the registry, whose bucket does not answer")
}

// PushRelease fills the registry with the images of a release, and keeps the programs that nodes fetch. It is
// idempotent. Errors: those of the gate if the bundle may not be used, and of bundle.Push.
func (e Env) PushRelease(ctx context.Context, name string, b *bundle.Bundle, unsigned string) error {
	return e.releases().pushRelease(ctx, name, b, unsigned, func(bundle.Image) {})
}

func (e releaseSteps) pushRelease(
	ctx context.Context, name string, b *bundle.Bundle, unsigned string, begins func(bundle.Image),
) error {
	if _, err := e.Gate.Release(b, unsigned); err != nil {
		return err
	}
	opts := e.Push
	if ca := e.registryCA(); ca != "" {
		opts.RootCAs = x509.NewCertPool()
		opts.RootCAs.AppendCertsFromPEM([]byte(ca))
	}
	opts.Progress = func(ev bundle.PushEvent) {
		if !ev.Done {
			begins(ev.Image)
		}
	}
	if e.Hold != nil {
		if err := e.Hold(ctx, name, b); err != nil {
			return err
		}
	}
	if _, err := b.Push(ctx, e.PushHost, RegistryPrefix, opts); err != nil {
		return err
	}
	return b.CopyFiles(ctx, filepath.Join(e.Artifacts, b.Digest()), Programs(b))
}

// registryCA returns the authorities that nodes trust the registry by.
func (e Registry) registryCA() string {
	if e.CA == nil {
		return ""
	}
	return e.CA()
}

// programs are the files of a bundle that an upgrade in place puts on nodes.
var programs = []string{"bin/kubeadm", "bin/kubelet", "bin/kubectl"}

// Programs returns the files of the bundle that an upgrade in place puts on nodes.
func Programs(b *bundle.Bundle) []bundle.File {
	return slices.DeleteFunc(slices.Clone(
		b.Release().Files,
	), func(f bundle.File) bool { return !slices.Contains(programs, f.Path) })
}
