package api

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/wire"
)

// Items of which all fields are chosen are written as they are without a choice.
func TestAllFieldsChosen(t *testing.T) {
	t.Parallel()
	t.Run("clusters", allFields[wire.Cluster])
	t.Run("plans", allFields[wire.PlanSummary])
	t.Run("steps", allFields[wire.Step])
	t.Run("nodes", allFields[wire.FleetNode])
	t.Run("documents", allFields[wire.Document])
	t.Run("addresses", allFields[wire.NetworkAddress])
	t.Run("certificates", allFields[wire.SeenCertificate])
	t.Run("users", allFields[wire.User])
	t.Run("audit", allFields[wire.AuditEntry])
}

func allFields[T any](t *testing.T) {
	t.Parallel()
	items := make([]T, 2) // one without values, and one with a value in each field
	fill(t, reflect.ValueOf(&items[1]).Elem())
	var names []string
	for _, f := range jsonFields(reflect.TypeFor[T]()) {
		names = append(names, f.name)
	}
	some, err := choose(items, names)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.Marshal(some)
	if err != nil {
		t.Fatal(err)
	}
	want, err := wire.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkChosenFields writes one part of a fleet's list with the fields that directorctl asks for.
func BenchmarkChosenFields(b *testing.B) {
	items := make([]wire.Cluster, 500)
	for i := range items {
		fill(b, reflect.ValueOf(&items[i]).Elem())
	}
	b.ReportAllocs()
	for b.Loop() {
		some, err := choose(items, []string{"name", "status", "release", "endpoint", "nodes", "plan", "plan_status"})
		if err == nil {
			_, err = wire.Marshal(map[string]any{"items": some})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// fill gives everything that can be set a value.
func fill(t testing.TB, v reflect.Value) {
	t.Helper()
	switch v.Type() {
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		return
	case reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{"list":[]}`))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x<y")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(t, v.Field(i))
			}
		}
	default:
		t.Fatalf("there is no value for a %s", v.Kind())
	}
}
