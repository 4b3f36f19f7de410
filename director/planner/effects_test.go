package planner

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// alter changes the field of the spec; [] in the path is the first item of a list, and at its end one item more.
func alter(t *testing.T, spec any, path string) {
	t.Helper()
	v := reflect.ValueOf(spec).Elem()
	parts := strings.Split(strings.TrimPrefix(path, "spec."), ".")
	for i, part := range parts {
		name, item := strings.CutSuffix(part, "[]")
		v = field(t, v, name)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		if !item {
			continue
		}
		copied := reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()+1), v)
		if copied.Len() == 0 {
			copied = reflect.Append(copied, reflect.Zero(v.Type().Elem()))
		}
		v.Set(copied)
		if i == len(parts)-1 {
			another := reflect.New(v.Type().Elem()).Elem()
			another.Set(v.Index(0))
			another.FieldByName("Name").SetString("another")
			v.Set(reflect.Append(v, another))
			return
		}
		v = v.Index(0)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x" + v.String())
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int:
		v.SetInt(v.Int() + 1)
	case reflect.Int64: // sizes are whole MiB
		v.SetInt(v.Int() + 1<<30)
	case reflect.Slice:
		v.Set(
			reflect.Append(
				reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()+1), v), reflect.Zero(v.Type().Elem()),
			),
		)
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf("x"), reflect.ValueOf("y"))
		v.Set(m)
	default:
		t.Fatalf("%s is a %s, which this test does not alter", path, v.Kind())
	}
}

func field(t *testing.T, v reflect.Value, name string) reflect.Value {
	t.Helper()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name && !f.Anonymous {
			return v.FieldByIndex(f.Index)
		}
	}
	t.Fatalf("%s has no field %s", v.Type(), name)
	return reflect.Value{}
}

// What model.EffectOf says of fields that are not refused is what the next plan does: what is planned has steps that
// touch nodes, and everything else at most writes the document down.
func TestFieldsHaveTheEffectThatIsSaid(t *testing.T) {
	t.Parallel()
	// What is more than another value.
	special := map[string]func(*World){
		"Cluster spec.release":       func(w *World) { former(w); release(w, "v1.38.0") },
		"Release spec.kubernetes":    func(w *World) { former(w); w.Release.Release.Kubernetes = "v1.38.0" },
		"Cluster spec.masters.count": func(w *World) { w.Cluster.Cluster.Masters.Count = 5 },
		"Cluster spec.registries":    func(w *World) { pulling(w, "quay.io") },
		"Cluster spec.maintenance.strategy": func(w *World) {
			w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeReplace
		},
	}
	kinds := []model.Kind{ // that plans of clusters read
		model.KindProvider, model.KindImage, model.KindRelease, model.KindNetwork, model.KindCluster,
	}
	for _, kind := range kinds {
		for _, path := range model.Leaves(kind) {
			effect, _ := model.EffectOf(kind, path)
			if effect.Effect == model.Refused {
				continue
			}
			w := running(t, 3, 2, v)
			want(&w, func(c *model.Cluster) { c.Maintenance.Strategy = model.UpgradeReconstitute })
			if strings.HasPrefix(path, "spec.discovery") || strings.HasSuffix(path, "s.services") ||
				strings.HasSuffix(path, "[].services") {
				w.Cluster.Cluster.Discovery = model.Discovery{
					Consul: "dc1", DNS: true, Agents: true,
					Export: model.DiscoveryExport{LoadBalancer: true, Ingress: true, Annotated: true},
				}
				w.Consul.Consul = &model.Consul{}
				w.Bundle.ImageTags = map[string]string{"consul-sync": v}
			}
			if path == "spec.discovery.consul" { // alone it is followed without a plan
				w.Cluster.Cluster.Discovery = model.Discovery{}
			}
			if kind == model.KindRegistry || path == "spec.registries" {
				pulling(&w, "docker.io")
				w.Installed.Registries = step.DigestOf(outerRegistries{w}.list())
			}
			w.Installed.Cluster = *w.Cluster.Cluster
			for i := range w.Machines {
				w.Machines[i].Image = w.image()
			}
			if path == "spec.maintenance.strategy" {
				w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeInPlace
				for i := range w.Machines {
					w.Machines[i].Image = "node-of-old"
				}
			}
			w.Cluster.Generation++
			if f := special[string(kind)+" "+path]; f != nil {
				f(&w)
			} else {
				doc := map[model.Kind]*model.Stored{
					model.KindProvider: &w.Provider, model.KindImage: &w.Image, model.KindRelease: &w.Release,
					model.KindNetwork: &w.Network,
					model.KindCluster: &w.Cluster,
				}[kind]
				if kind == model.KindRegistry {
					doc = &w.Registries[0].Stored
				}
				alter(t, doc.Spec(), path)
			}
			c, err := Apply(w, plan.Request{})
			if err != nil {
				t.Errorf("%s %s: %v", kind, path, err)
				continue
			}
			touches := slices.ContainsFunc(c.Steps, func(s plan.Step) bool { return s.Kind != step.ClusterReady })
			if touches != (effect.Effect == model.Planned) {
				t.Errorf(
					"a change of %s %s is %s, and the plan has the steps %v", kind, path, effect.Effect, ids(t, c, nil),
				)
			}
		}
	}
}
