package step

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Needs is what a plan must find until its end, for its steps and for what undoes them.
type Needs struct {
	Documents map[model.Ref]bool
	Images    map[string]bool // by the name on providers
	Files     map[string]bool // imported images, by checksum
	Bundles   map[string]bool // directories of release bundles
	Digests   map[string]bool // of release bundles
}

// NeedsOf reads what the plan needs out of its content. The own document of the cluster or the director is not among
// it: its deletion gives plans up.
func NeedsOf(c plan.Content) (Needs, error) {
	n := Needs{
		Documents: map[model.Ref]bool{}, Images: map[string]bool{}, Files: map[string]bool{},
		Bundles: map[string]bool{}, Digests: map[string]bool{},
	}
	for _, m := range c.Models {
		if kind := model.Kind(m.Kind); kind != model.KindCluster && kind != model.KindDirector {
			n.document(kind, m.Name)
		}
	}
	if len(c.Facts) > 0 {
		f, err := DecodeFacts(c)
		if err != nil {
			return n, err
		}
		n.release(f.Bundle, f.Digest)
		for _, former := range f.Former {
			n.release(former.Bundle, former.Digest)
		}
		for _, m := range f.Nodes {
			n.machine(m)
		}
	}
	for _, s := range c.Steps {
		add := kinds[s.Kind]
		if add == nil {
			continue
		}
		if err := add(n, s.Params); err != nil {
			return n, fmt.Errorf("step: %s: %w", s.ID, err)
		}
	}
	return n, nil
}

func (n Needs) document(kind model.Kind, name string) {
	if name != "" {
		n.Documents[model.Ref{Kind: kind, Name: name}] = true
	}
}

func (n Needs) release(bundle, digest string) {
	if bundle != "" {
		n.Bundles[bundle] = true
	}
	if digest != "" {
		n.Digests[digest] = true
	}
}

func (n Needs) machine(m plan.MachineSpec) {
	n.document(model.KindProvider, m.Provider)
	n.document(model.KindNetwork, m.Network)
	for _, nic := range m.NICs {
		n.document(model.KindNetwork, nic.Network)
	}
}

// Issuers returns the names of the CertificateAuthorities that the plan has issue something.
func Issuers(c plan.Content) (names []string) {
	for _, s := range c.Steps {
		var name string
		switch s.Kind {
		case ClusterPKI:
			var p ClusterParams
			if json.Unmarshal(s.Params, &p) == nil {
				name = p.Document.Certificates.Authority
			}
		case AuthorityChange:
			var p AuthorityParams
			if json.Unmarshal(s.Params, &p) == nil {
				name = p.Issuer
			}
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// needs decodes the parameters of a step for the method that adds what the step needs.
func needs[P any](add func(Needs, P)) func(Needs, json.RawMessage) error {
	return func(n Needs, params json.RawMessage) error {
		var p P
		if err := json.Unmarshal(params, &p); err != nil {
			return err
		}
		add(n, p)
		return nil
	}
}

func (n Needs) ofImage(p ImageParams) {
	n.document(model.KindProvider, p.Provider)
	n.document(model.KindImage, p.Document)
	n.Images[p.Name] = true
	if p.Image.Source == "" {
		n.Files[p.Image.SHA256] = true
	}
}

func (n Needs) ofVM(p VMParams) { n.machine(p.Machine) }

func (n Needs) ofPKI(p ClusterParams) {
	n.document(model.KindCertificateAuthority, p.Document.Certificates.Authority)
}

func (n Needs) ofAuthority(p AuthorityParams) { n.document(model.KindCertificateAuthority, p.Issuer) }

func (n Needs) ofDirectorBackup(p DirectorBackupParams) { n.document(model.KindBackupTarget, p.Target) }

func (n Needs) ofSnapshot(p SnapshotParams) { n.machine(p.Machine) }

func (n Needs) ofCopy(p CopyParams) { n.machine(p.Machine) }

func (n Needs) ofNewVM(p VMParams) {
	n.ofVM(p)
	if p.ImageName != "" {
		n.Images[p.ImageName] = true
	}
}

func (n Needs) ofNetwork(p NetworkParams) {
	n.document(model.KindProvider, p.Provider)
	n.document(model.KindNetwork, p.Name)
}

func (n Needs) ofRelease(p ReleaseParams) {
	n.document(model.KindRelease, p.Name)
	n.release(p.Bundle, p.Digest)
}
