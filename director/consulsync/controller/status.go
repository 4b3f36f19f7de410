package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/director-kaas/kaas/director/consulsync"
)

const (
	// StatusName is the config map that shows what the sync waits for, and on which a person confirms it.
	StatusName = "consul-sync-status"
	statusKey  = "status.json"
	maxShown   = 50 // refusals in the status
	component  = "consul-sync"

	reasonHeld = "RemovalHeld"
)

// status is what the config map shows. It changes only when there is something new to read.
type status struct {
	Holds     []consulsync.Hold `json:"holds"`
	Refusals  []refusal         `json:"refusals"`
	Refused   int               `json:"refused"`
	Strangers []string          `json:"strangers,omitempty"`
}

type refusal struct {
	Object  string `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// reporter tells people: by events, by the log and by the status. It says everything once.
type reporter struct {
	client   kubernetes.Interface
	events   record.EventRecorder
	log      *slog.Logger
	space    string
	refused  map[string]string // what was said, by object
	held     map[string]bool   // ids
	stranger string
}

// newReporter returns a reporter, and what ends the sending of its events.
func newReporter(client kubernetes.Interface, namespace string, log *slog.Logger) (*reporter, func()) {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &reporter{
		client: client, events: b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component}), log: log,
		space: namespace, refused: map[string]string{}, held: map[string]bool{},
	}, b.Shutdown
}

// refusals tells about objects that were refused, each once as long as it stays refused for the same reason.
func (r *reporter) refusals(ctx context.Context, all []consulsync.Refusal) {
	now := make(map[string]string, len(all))
	for _, f := range all {
		key := f.Object.Key()
		now[key] = f.Message
		if r.refused[key] == f.Message {
			continue
		}
		r.events.Event(&corev1.ObjectReference{
			APIVersion: apiVersion(f.Object.Kind), Kind: f.Object.Kind, Namespace: f.Object.Namespace,
			Name: f.Object.Name, UID: types.UID(f.Object.UID),
		}, corev1.EventTypeWarning, f.Reason, f.Message)
		r.log.WarnContext(ctx, "An object is not synced", "object", key, "reason", f.Reason, "message", f.Message)
	}
	r.refused = now
}

func apiVersion(kind string) string {
	if kind == "Ingress" {
		return "networking.k8s.io/v1"
	}
	return "v1"
}

// holds tells about removals that wait for a person.
func (r *reporter) holds(ctx context.Context, all []consulsync.Hold) {
	now := map[string]bool{}
	for _, h := range all {
		now[h.ID] = true
		if r.held[h.ID] {
			continue
		}
		command := fmt.Sprintf("kubectl -n %s annotate configmap %s --overwrite %s=%s", r.space, StatusName,
			consulsync.AnnotationConfirm, h.ID)
		r.events.Eventf(&corev1.ObjectReference{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: r.space, Name: StatusName,
		}, corev1.EventTypeWarning, reasonHeld,
			"%d of %d %s would be removed at once, and are kept. If that is meant: %s", h.Count, h.Total,
			h.What, command)
		r.log.WarnContext(ctx, "A removal waits for a person", "what", h.What, "id", h.ID, "count", h.Count,
			"total", h.Total, "sample", h.Sample, "confirm", command)
	}
	r.held = now
}

// strangers tells about entries on our node that are not ours.
func (r *reporter) strangers(ctx context.Context, ids []string) {
	if text := strings.Join(ids, " "); text != r.stranger {
		r.stranger = text
		if text != "" {
			r.log.WarnContext(ctx, "The node in Consul has entries of someone else",
				"ids", ids[:min(len(ids), maxShown)])
		}
	}
}

// confirmed returns the ids that a person has confirmed.
func confirmed(m *corev1.ConfigMap) []string {
	if m == nil {
		return nil
	}
	ids := strings.Split(m.Annotations[consulsync.AnnotationConfirm], ",")
	for i := range ids {
		ids[i] = strings.TrimSpace(ids[i])
	}
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" })
}

// show writes the status if it differs from what is there. A confirmation goes when nothing waits for one, so that it
// holds once.
func (r *reporter) show(ctx context.Context, have *corev1.ConfigMap, s status) error {
	if s.Holds == nil {
		s.Holds = []consulsync.Hold{}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	maps := r.client.CoreV1().ConfigMaps(r.space)
	if have == nil {
		_, err := maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.space, Name: StatusName,
				Labels: map[string]string{consulsync.LabelManagedBy: component},
			},
			Data: map[string]string{statusKey: string(text)},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache is behind; the next pass sees it
		}
		return err
	}
	_, marked := have.Annotations[consulsync.AnnotationConfirm]
	spent := marked && len(s.Holds) == 0
	if have.Data[statusKey] == string(text) && !spent {
		return nil
	}
	changed := have.DeepCopy()
	changed.Data = map[string]string{statusKey: string(text)}
	if spent {
		delete(changed.Annotations, consulsync.AnnotationConfirm)
	}
	_, err = maps.Update(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// shown returns the first refusals for the status.
func shown(all []consulsync.Refusal) []refusal {
	byKey := map[string]refusal{}
	for _, f := range all {
		byKey[f.Object.Key()] = refusal{Object: f.Object.Key(), Reason: f.Reason, Message: f.Message}
	}
	out := []refusal{}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if len(out) == maxShown {
			break
		}
		out = append(out, byKey[key])
	}
	return out
}
