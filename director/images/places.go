package images

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
)

// Places returns where the contents of the image's document may be: what is known to be on providers, and what each of
// them may have under its names. docs are all documents.
func (s *Service) Places(
	ctx context.Context, doc model.Stored, docs []model.Stored,
) ([]director.ProviderImage, error) {
	brought, err := s.store.ProviderImages(ctx)
	if err != nil {
		return nil, err
	}
	name := doc.Metadata.Name
	var out []director.ProviderImage
	for _, d := range docs {
		if d.Provider == nil {
			continue
		}
		// the first is how it was called before its checksum was part of the name
		there := []string{name, doc.Image.NameOnProviders(name)}
		for _, k := range brought {
			if k.Provider == d.Metadata.Name && k.Image == name && !slices.Contains(there, k.Name) {
				there = append(there, k.Name)
			}
		}
		for _, n := range there {
			out = append(out, director.ProviderImage{
				Provider: d.Metadata.Name, Name: n, Image: name, SHA256: doc.Image.SHA256,
			})
		}
	}
	return out, nil
}

// Remove deletes the images of a document that is gone at the places. What stays is in the record, and goes with the
// next prune.
func (s *Service) Remove(ctx context.Context, doc model.Stored, places []director.ProviderImage) error {
	var left []error
	for _, p := range places {
		if err := s.remove(ctx, p.Provider, p.Name); err != nil {
			left = append(left, fmt.Errorf("%s on provider %s: %w", p.Name, p.Provider, err))
		}
	}
	if len(left) == 0 {
		return nil
	}
	return &director.Error{
		Kind: director.KindOf(left[0]), Op: "images.delete",
		Msg:  doc.Ref().String() + " is deleted, and not yet all of its images: " + errors.Join(left...).Error(),
		Hint: "remove the rest later: directorctl image prune", Err: errors.Join(left...),
	}
}

// remove deletes an image on a provider. No error if it is gone; conflict while VMs are linked to it.
func (s *Service) remove(ctx context.Context, provider, name string) error {
	b, err := s.backends.Backend(ctx, provider)
	if err != nil {
		return err
	}
	if im, ok := hypervisor.Capability[hypervisor.Imaging](b); ok {
		if err := im.DeleteImage(ctx, name); err != nil {
			return err
		}
	}
	return s.store.ForgetImage(ctx, provider, name)
}
