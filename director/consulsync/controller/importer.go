package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/director-kaas/kaas/director/consulsync"
)

// importer brings the imported Services and their slices to what Consul says.
type importer struct {
	client   kubernetes.Interface
	cluster  *cluster
	identity consulsync.Identity
	cfg      consulsync.Config
	known    func(consulsync.Import) ([]consulsync.Instance, bool)
}

// imported is what a pass found out.
type imported struct {
	holds     []consulsync.Hold
	refusals  []consulsync.Refusal
	endpoints int
	skipped   int
	errs      []error
}

// target is an import with its Service and what its endpoints should be.
type target struct {
	consulsync.Import
	service *corev1.Service
	usable  []consulsync.Instance // all of Consul's, passing or not
	wanted  []consulsync.Instance
	present []consulsync.Instance
	gone    []consulsync.Instance // present, but not in Consul any more
}

// pass does everything once. A failure with one import does not keep the others.
func (m *importer) pass(ctx context.Context, confirmed []string) imported {
	var out imported
	var targets []*target
	for _, i := range m.cfg.Import {
		s, err := m.service(ctx, i, &out)
		if err != nil {
			out.errs = append(out.errs, fmt.Errorf("import %s: %w", i.Key(), err))
		}
		all, known := m.known(i)
		// Before Consul has answered, the endpoints that are there stay.
		if s == nil || !known {
			continue
		}
		t := &target{Import: i, service: s}
		var skipped int
		t.usable, skipped = i.Usable(m.identity, all)
		out.skipped += skipped
		targets = append(targets, t)
	}
	m.decide(targets, confirmed, &out)
	for _, t := range targets {
		out.endpoints += len(t.wanted)
		if err := m.slices(ctx, t); err != nil {
			out.errs = append(out.errs, fmt.Errorf("import %s: %w", t.Key(), err))
		}
	}
	m.prune(ctx, confirmed, &out)
	return out
}

// service returns the Service of an import, made or corrected, or nil if there is none of ours.
func (m *importer) service(ctx context.Context, i consulsync.Import, out *imported) (*corev1.Service, error) {
	services := m.client.CoreV1().Services(i.Namespace)
	s := m.cluster.service(i.Key())
	if s == nil {
		made, err := services.Create(ctx, i.NewService(m.identity), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			if err != nil {
				return nil, err
			}
			return made, nil
		}
		if s, err = services.Get(ctx, i.Name, metav1.GetOptions{}); err != nil {
			return nil, err
		}
	}
	if !consulsync.Imported(m.identity, s.Labels) {
		out.refusals = append(out.refusals, consulsync.Refusal{
			Object: consulsync.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)},
			Reason: consulsync.ReasonExists,
			Message: fmt.Sprintf("the service %s of Consul is not imported, because this Service exists and was not "+
				"imported; give the import another name, or delete the Service", i.Service),
		})
		return nil, nil
	}
	if s.DeletionTimestamp != nil || !i.Adjust(s.DeepCopy()) {
		return s, nil
	}
	// The cache has only a part of it.
	full, err := services.Get(ctx, i.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if full.UID != s.UID || !consulsync.Imported(m.identity, full.Labels) || !i.Adjust(full) {
		return s, nil // changed since; the next pass looks again
	}
	return services.Update(ctx, full, metav1.UpdateOptions{})
}

// decide fills in what is wanted. Instances that fail leave at once. Those that Consul knows no more leave too, unless
// they are too many: then they stay until a person has confirmed it.
func (m *importer) decide(targets []*target, confirmed []string, out *imported) {
	var gone []string
	total := 0
	for _, t := range targets {
		t.present = endpoints(m.cluster.slicesOf(t.Key()))
		total += len(t.present)
		known := map[string]bool{}
		for _, n := range t.usable {
			known[place(n)] = true
			if n.Passing {
				t.wanted = append(t.wanted, n)
			}
		}
		for _, n := range t.present {
			if !known[place(n)] {
				t.gone = append(t.gone, n)
				gone = append(gone, t.Key()+" "+place(n))
			}
		}
	}
	hold := m.cfg.Guard.Check(consulsync.HoldImport, gone, total, confirmed)
	if hold == nil {
		return
	}
	out.holds = append(out.holds, *hold)
	for _, t := range targets {
		t.wanted, _ = t.Usable(m.identity, append(t.wanted, t.gone...))
	}
}

func place(n consulsync.Instance) string { return fmt.Sprintf("%s:%d", n.Address, n.Port) }

// endpoints returns the instances in slices of ours.
func endpoints(all []*discoveryv1.EndpointSlice) []consulsync.Instance {
	var out []consulsync.Instance
	for _, s := range all {
		if len(s.Ports) != 1 || s.Ports[0].Port == nil {
			continue
		}
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				out = append(out, consulsync.Instance{Address: a, Port: int(*s.Ports[0].Port), Passing: true})
			}
		}
	}
	return out
}

// slices brings the slices of a target to what is wanted: new ones first, so that no endpoint is missing meanwhile.
func (m *importer) slices(ctx context.Context, t *target) error {
	api := m.client.DiscoveryV1().EndpointSlices(t.Namespace)
	have := map[string]*discoveryv1.EndpointSlice{}
	for _, s := range m.cluster.slicesOf(t.Key()) {
		have[s.Name] = s
	}
	var errs []error
	for _, want := range t.Slices(m.identity, t.service, t.wanted) {
		s, ok := have[want.Name]
		delete(have, want.Name)
		switch {
		case !ok:
			_, err := api.Create(ctx, want, metav1.CreateOptions{})
			errs = append(errs, err)
		case s.AddressType != want.AddressType:
			// It cannot be changed. The name says the family, so someone else made this one.
			errs = append(errs, m.deleteSlice(ctx, s))
		case !sameSlice(s, want):
			changed := s.DeepCopy()
			changed.Labels, changed.OwnerReferences = want.Labels, want.OwnerReferences
			changed.Endpoints, changed.Ports = want.Endpoints, want.Ports
			_, err := api.Update(ctx, changed, metav1.UpdateOptions{})
			errs = append(errs, err)
		}
	}
	for _, s := range have {
		errs = append(errs, m.deleteSlice(ctx, s))
	}
	return errors.Join(errs...)
}

func sameSlice(a, b *discoveryv1.EndpointSlice) bool {
	return equality.Semantic.DeepEqual(a.Endpoints, b.Endpoints) && equality.Semantic.DeepEqual(a.Ports, b.Ports) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

func (m *importer) deleteSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	err := m.client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, only(&s.ObjectMeta))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// only has exactly the object deleted that was read.
func only(m *metav1.ObjectMeta) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion}}
}

// prune deletes the Services whose imports are gone, and slices that are left of them.
func (m *importer) prune(ctx context.Context, confirmed []string, out *imported) {
	configured := map[string]bool{}
	for _, i := range m.cfg.Import {
		configured[i.Key()] = true
	}
	var stale []*corev1.Service
	var names []string
	total := 0
	for _, o := range m.cluster.services.GetStore().List() {
		s := o.(*corev1.Service)
		if !consulsync.Imported(m.identity, s.Labels) {
			continue
		}
		total++
		if key := s.Namespace + "/" + s.Name; !configured[key] && s.DeletionTimestamp == nil {
			stale, names = append(stale, s), append(names, key)
		}
	}
	if hold := m.cfg.Guard.Check(consulsync.HoldServices, names, total, confirmed); hold != nil {
		out.holds = append(out.holds, *hold)
		return
	}
	for _, s := range stale {
		err := m.client.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, only(&s.ObjectMeta))
		if err != nil && !apierrors.IsNotFound(err) {
			out.errs = append(out.errs, fmt.Errorf("delete the Service %s/%s: %w", s.Namespace, s.Name, err))
			continue
		}
		m.deleteSlices(ctx, s.Namespace+"/"+s.Name, out)
	}
	for _, key := range m.cluster.sliceOwners() {
		if !configured[key] && m.cluster.service(key) == nil && !slices.Contains(names, key) {
			m.deleteSlices(ctx, key, out)
		}
	}
}

func (m *importer) deleteSlices(ctx context.Context, key string, out *imported) {
	for _, s := range m.cluster.slicesOf(key) {
		if err := m.deleteSlice(ctx, s); err != nil {
			out.errs = append(out.errs, fmt.Errorf("delete a slice of %s: %w", key, err))
		}
	}
}
