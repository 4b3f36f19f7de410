// Package etcdfile reads objects of Kubernetes out of a snapshot of etcd, without an etcd.
package etcdfile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/crypto/nacl/secretbox"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/director-kaas/kaas/director"
)

// Query says which objects are read. Namespace is required.
type Query struct {
	Namespace string
	Kind      string // such as Secret, in any case; all if empty
	Name      string // all if empty
	Keys      []Key  // that Secrets may be encrypted with
}

// Key encrypts Secrets.
type Key struct {
	Name   string
	Secret director.Secret // base64 of 32 bytes
}

// Object is an object as it was when the snapshot was made.
type Object struct {
	Kind, Namespace, Name string
	Content               map[string]any
}

// The bounds of what is read.
const (
	mostObjects = 2000
	mostBytes   = 32 << 20
	mostKeys    = 5_000_000
)

// Read returns the objects of the snapshot in the file, sorted by kind and name. Values that are no objects are left
// out. Errors: not_found if there is no such object, exhausted if there are too many, invalid if the file is no
// snapshot or a Secret is encrypted with another key.
func Read(ctx context.Context, file string, q Query) ([]Object, error) {
	const op = "etcdfile.read"
	db, err := bbolt.Open(file, 0o400, &bbolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "the snapshot cannot be read: %s", err)
	}
	var out []Object
	err = db.View(func(tx *bbolt.Tx) error {
		out, err = read(ctx, tx, q)
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, director.Errorf(
			director.KindNotFound, op, "the backup has no such object in namespace %s", q.Namespace,
		).
			WithHint("leave the kind and the name out to see what there is")
	}
	slices.SortFunc(out, func(a, b Object) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}

func read(ctx context.Context, tx *bbolt.Tx, q Query) ([]Object, error) {
	const op = "etcdfile.read"
	revisions := tx.Bucket([]byte("key"))
	if revisions == nil {
		return nil, director.Errorf(director.KindInvalid, op, "the snapshot has no keys of etcd")
	}
	newest, err := latest(ctx, revisions, q.Namespace)
	if err != nil {
		return nil, err
	}
	var out []Object
	size := 0
	for key, value := range newest {
		if value == nil {
			continue // it was deleted
		}
		o, err := decode(key, value, q)
		if err != nil {
			return nil, err
		}
		if o == nil {
			continue
		}
		if size += len(value); size > mostBytes || len(out) == mostObjects {
			return nil, director.Errorf(
				director.KindExhausted, op, "these are more than %d objects or %d MiB", mostObjects, mostBytes>>20,
			).WithHint("name a kind or an object")
		}
		out = append(out, *o)
	}
	return out, nil
}

// latest returns the newest values of the keys of the namespace, nil for those that were deleted. Keys of the bucket
// are revisions: main and sub number, and a t behind those of a deletion.
func latest(ctx context.Context, revisions *bbolt.Bucket, namespace string) (map[string][]byte, error) {
	out := map[string][]byte{}
	within, own := []byte("/"+namespace+"/"), "/registry/namespaces/"+namespace
	cursor := revisions.Cursor()
	n := 0
	for revision, record := cursor.First(); revision != nil; revision, record = cursor.Next() {
		if n++; n%10_000 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if n > mostKeys {
			return nil, director.Errorf(director.KindExhausted, "etcdfile.read", "the snapshot has too many keys")
		}
		key, value, err := parse(record)
		if err != nil {
			return nil, director.Errorf(director.KindInvalid, "etcdfile.read", "the snapshot is damaged: %s", err)
		}
		if !bytes.HasPrefix(key, []byte("/registry/")) || !bytes.Contains(key, within) && string(key) != own {
			continue
		}
		if len(revision) == 18 && revision[17] == 't' {
			value = nil
		}
		out[string(key)] = value
	}
	return out, nil
}

// parse reads the two fields that count of etcd's message KeyValue: key (1) and value (5).
func parse(record []byte) (key, value []byte, err error) {
	for len(record) > 0 {
		number, kind, n := protowire.ConsumeTag(record)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		record = record[n:]
		if kind == protowire.BytesType && (number == 1 || number == 5) {
			text, n := protowire.ConsumeBytes(record)
			if n < 0 {
				return nil, nil, protowire.ParseError(n)
			}
			if record = record[n:]; number == 1 {
				key = text
			} else {
				value = text
			}
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, record); n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		record = record[n:]
	}
	if value == nil {
		value = []byte{}
	}
	return key, value, nil
}

const (
	encrypted = "k8s:enc:"
	boxed     = "k8s:enc:secretbox:v1:"
)

// decode returns the object, or nil for one that the query does not want.
func decode(key string, value []byte, q Query) (*Object, error) {
	value, err := decrypt(key, value, q)
	if value == nil || err != nil {
		return nil, err
	}
	content, err := content(value)
	if err != nil {
		return nil, nil //nolint:nilerr // not every key of etcd holds an object
	}
	u := unstructured.Unstructured{Object: content}
	o := &Object{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), Content: content}
	wanted := o.Namespace == q.Namespace || o.Kind == "Namespace" && o.Name == q.Namespace
	if !wanted || q.Kind != "" && !strings.EqualFold(q.Kind, o.Kind) || q.Name != "" && q.Name != o.Name {
		return nil, nil
	}
	unstructured.RemoveNestedField(content, "metadata", "managedFields")
	return o, nil
}

func decrypt(key string, value []byte, q Query) ([]byte, error) {
	if !bytes.HasPrefix(value, []byte(encrypted)) {
		return value, nil
	}
	if q.Kind != "" && !strings.EqualFold(q.Kind, "Secret") || q.Name != "" && !strings.HasSuffix(key, "/"+q.Name) {
		return nil, nil // its key tells enough
	}
	for _, k := range q.Keys {
		sealed, ok := bytes.CutPrefix(value, []byte(boxed+k.Name+":"))
		raw, err := base64.StdEncoding.DecodeString(k.Secret.Reveal())
		if !ok || err != nil || len(raw) != 32 || len(sealed) < 24 {
			continue
		}
		if plain, ok := secretbox.Open(nil, sealed[24:], (*[24]byte)(sealed[:24]), (*[32]byte)(raw)); ok {
			return plain, nil
		}
	}
	return nil, director.Errorf(
		director.KindInvalid, "etcdfile.read", "%s is encrypted with a key that the director does not have", key,
	)
}

// content returns the object in the value, which is protobuf in an envelope, or JSON.
func content(value []byte) (map[string]any, error) {
	if bytes.HasPrefix(value, []byte("{")) {
		u := unstructured.Unstructured{}
		if err := u.UnmarshalJSON(value); err != nil {
			return nil, err
		}
		return u.Object, nil
	}
	object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		return nil, err
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	named(out, *kind)
	return out, nil
}

func named(content map[string]any, kind schema.GroupVersionKind) {
	content["apiVersion"], content["kind"] = kind.GroupVersion().String(), kind.Kind
}
