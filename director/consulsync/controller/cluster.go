package controller

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulsync"
)

// cluster is what the informers know. Objects keep only what the sync looks at, so that 10,000 of them are small.
type cluster struct {
	services  cache.SharedIndexInformer
	slices    cache.SharedIndexInformer
	ingresses cache.SharedIndexInformer // nil unless Ingresses are exported
	nodes     cache.SharedIndexInformer // nil unless annotated Services are exported
	status    cache.SharedIndexInformer

	factories []informers.SharedInformerFactory
}

// byService indexes our own slices by namespace/name of their Service.
const byService = "service"

// newCluster prepares the informers. changed is called for every change that may matter.
func newCluster(
	client kubernetes.Interface, cfg consulsync.Config, identity consulsync.Identity, changed func(),
) (*cluster, error) {
	all := informers.NewSharedInformerFactory(client, 0)
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(cfg.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", StatusName).String()
		}))
	c := &cluster{
		services: all.Core().V1().Services().Informer(),
		slices:   all.Discovery().V1().EndpointSlices().Informer(),
		status:   own.Core().V1().ConfigMaps().Informer(),

		factories: []informers.SharedInformerFactory{all, own},
	}
	informer := []cache.SharedIndexInformer{c.services, c.slices, c.status}
	transforms := []cache.TransformFunc{smallService, smallSlice(identity), smallAny}
	if cfg.Export.Ingress || cfg.Export.Annotated {
		c.ingresses = all.Networking().V1().Ingresses().Informer()
		informer, transforms = append(informer, c.ingresses), append(transforms, smallAny)
	}
	if cfg.Export.Annotated {
		c.nodes = all.Core().V1().Nodes().Informer()
		informer, transforms = append(informer, c.nodes), append(transforms, smallNode)
	}
	for n, i := range informer {
		if err := i.SetTransform(transforms[n]); err != nil {
			return nil, err
		}
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed() },
			DeleteFunc: func(any) { changed() },
			UpdateFunc: func(before, after any) {
				if !unchanged(before, after) {
					changed()
				}
			},
		}); err != nil {
			return nil, err
		}
	}
	return c, c.slices.AddIndexers(cache.Indexers{byService: func(obj any) ([]string, error) {
		s, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok || !consulsync.Imported(identity, s.Labels) {
			return nil, nil
		}
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
	}})
}

// start runs the informers until ctx ends and returns when their lists are complete. It fails if they are not within
// the limit: a right may be missing.
func (c *cluster) start(ctx context.Context, limit time.Duration) error {
	for _, f := range c.factories {
		f.Start(ctx.Done())
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, f := range c.factories {
		for kind, ok := range f.WaitForCacheSync(ctx.Done()) {
			if !ok {
				return director.Errorf(
					director.KindUnavailable, "consulsync.list", "the list of %s is not complete after %s", kind, limit,
				).WithHint("check that the API server answers and that the service account may list them")
			}
		}
	}
	return nil
}

// stop waits for the informers, whose context has ended.
func (c *cluster) stop() {
	for _, f := range c.factories {
		f.Shutdown()
	}
}

// world returns what the export depends on.
func (c *cluster) world() consulsync.World {
	w := consulsync.World{Ready: map[string]consulsync.Readiness{}}
	for _, o := range c.services.GetStore().List() {
		w.Services = append(w.Services, o.(*corev1.Service))
	}
	for _, o := range c.slices.GetStore().List() {
		s := o.(*discoveryv1.EndpointSlice)
		name := s.Labels[discoveryv1.LabelServiceName]
		if name == "" {
			continue
		}
		key := s.Namespace + "/" + name
		for _, e := range s.Endpoints {
			if !ready(e) {
				continue
			}
			if w.Ready[key] == nil {
				w.Ready[key] = consulsync.Readiness{}
			}
			if e.NodeName != nil {
				w.Ready[key][*e.NodeName] = true
			}
		}
	}
	if c.ingresses != nil {
		for _, o := range c.ingresses.GetStore().List() {
			w.Ingresses = append(w.Ingresses, o.(*networkingv1.Ingress))
		}
	}
	if c.nodes != nil {
		for _, o := range c.nodes.GetStore().List() {
			n := o.(*corev1.Node)
			var addresses []string
			for _, a := range n.Status.Addresses {
				addresses = append(addresses, a.Address)
			}
			if len(addresses) > 0 {
				w.Nodes = append(w.Nodes, consulsync.Node{Name: n.Name, Addresses: addresses})
			}
		}
	}
	return w
}

func ready(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// service returns a Service, or nil.
func (c *cluster) service(key string) *corev1.Service {
	o, ok, err := c.services.GetStore().GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	return o.(*corev1.Service)
}

// slicesOf returns our own slices of a Service.
func (c *cluster) slicesOf(key string) []*discoveryv1.EndpointSlice {
	list, err := c.slices.GetIndexer().ByIndex(byService, key)
	if err != nil {
		return nil
	}
	all := make([]*discoveryv1.EndpointSlice, len(list))
	for i, o := range list {
		all[i] = o.(*discoveryv1.EndpointSlice)
	}
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// sliceOwners returns the Services, as namespace/name, that we have slices of.
func (c *cluster) sliceOwners() []string {
	return c.slices.GetIndexer().ListIndexFuncValues(byService)
}

// statusMap returns the config map of the status, or nil.
func (c *cluster) statusMap(namespace string) *corev1.ConfigMap {
	o, ok, err := c.status.GetStore().GetByKey(namespace + "/" + StatusName)
	if err != nil || !ok {
		return nil
	}
	return o.(*corev1.ConfigMap)
}

// small returns the part of the metadata that the sync looks at.
func small(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Generation: m.Generation,
	}
	for k, v := range m.Annotations {
		if strings.HasPrefix(k, "consul.kaas/") {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[k] = v
		}
	}
	for _, k := range []string{
		consulsync.LabelManagedBy, consulsync.LabelCluster, discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy,
	} {
		if v, ok := m.Labels[k]; ok {
			if out.Labels == nil {
				out.Labels = map[string]string{}
			}
			out.Labels[k] = v
		}
	}
	return out
}

func smallAny(o any) (any, error) {
	if m, ok := o.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	return o, nil
}

func smallService(o any) (any, error) {
	s, ok := o.(*corev1.Service)
	if !ok {
		return o, nil
	}
	out := &corev1.Service{ObjectMeta: small(s.ObjectMeta)}
	out.Spec.Type, out.Spec.ExternalTrafficPolicy = s.Spec.Type, s.Spec.ExternalTrafficPolicy
	out.Spec.ExternalIPs, out.Spec.Ports = s.Spec.ExternalIPs, s.Spec.Ports
	out.Status.LoadBalancer = s.Status.LoadBalancer
	if s.Labels[consulsync.LabelManagedBy] == consulsync.ManagedBy {
		out.Spec.Selector = s.Spec.Selector
	}
	return out, nil
}

// smallSlice keeps our own slices whole, and of others one endpoint for each node that has a ready one.
func smallSlice(identity consulsync.Identity) cache.TransformFunc {
	return func(o any) (any, error) {
		s, ok := o.(*discoveryv1.EndpointSlice)
		if !ok {
			return o, nil
		}
		if consulsync.Imported(identity, s.Labels) {
			return smallAny(o)
		}
		out := &discoveryv1.EndpointSlice{ObjectMeta: small(s.ObjectMeta)}
		seen := map[string]bool{}
		for _, e := range s.Endpoints {
			var node string
			if e.NodeName != nil {
				node = *e.NodeName
			}
			if ready(e) && !seen[node] {
				seen[node] = true
				out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{NodeName: e.NodeName})
			}
		}
		return out, nil
	}
}

// smallNode keeps the internal addresses of a node that is ready, and none of another one. Informers may give it what
// it has returned before, so it keeps what it goes by.
func smallNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}}
	if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		return out, nil
	}
	out.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out.Status.Addresses = append(out.Status.Addresses, corev1.NodeAddress{Type: a.Type, Address: a.Address})
		}
	}
	return out, nil
}

// unchanged says whether an update has nothing for the sync, such as the heartbeat of a node or the renewal of a list.
func unchanged(before, after any) bool {
	switch a := after.(type) {
	case *corev1.Node:
		b, ok := before.(*corev1.Node)
		return ok && slices.Equal(a.Status.Addresses, b.Status.Addresses)
	case metav1.Object:
		b, ok := before.(metav1.Object)
		return ok && a.GetResourceVersion() == b.GetResourceVersion()
	}
	return false
}
