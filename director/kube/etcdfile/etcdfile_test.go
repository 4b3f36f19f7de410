package etcdfile

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/crypto/nacl/secretbox"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/director-kaas/kaas/director"
)

// file is a snapshot that is being written, as etcd does: one record for each revision.
type file struct {
	t    *testing.T
	path string
	db   *bbolt.DB
	rev  uint64
}

func newFile(t *testing.T) *file {
	t.Helper()
	f := &file{t: t, path: filepath.Join(t.TempDir(), "snapshot.db")}
	var err error
	if f.db, err = bbolt.Open(f.path, 0o600, nil); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *file) put(key string, value []byte, deleted bool) {
	f.t.Helper()
	f.rev++
	revision := binary.BigEndian.AppendUint64(nil, f.rev)
	revision = append(revision, '_')
	revision = binary.BigEndian.AppendUint64(revision, 0)
	if deleted {
		revision = append(revision, 't')
	}
	record := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte(key))
	record = protowire.AppendVarint(protowire.AppendTag(record, 3, protowire.VarintType), f.rev)
	if !deleted {
		record = protowire.AppendBytes(protowire.AppendTag(record, 5, protowire.BytesType), value)
	}
	err := f.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("key"))
		if err != nil {
			return err
		}
		return b.Put(revision, record)
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *file) object(key string, o runtime.Object) []byte {
	f.t.Helper()
	var out bytes.Buffer
	codec := scheme.Codecs.EncoderForVersion(
		protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion,
	)
	if err := codec.Encode(o, &out); err != nil {
		f.t.Fatal(err)
	}
	if key != "" {
		f.put(key, out.Bytes(), false)
	}
	return out.Bytes()
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

var rawKey = [32]byte{1, 2, 3}

func sealed(plain []byte, name string) []byte {
	nonce := [24]byte{9}
	return append([]byte("k8s:enc:secretbox:v1:"+name+":"+string(nonce[:])),
		secretbox.Seal(nil, plain, &nonce, &rawKey)...)
}

func sample(t *testing.T) string {
	t.Helper()
	f := newFile(t)
	f.put("compact_rev_key", []byte("7"), false)
	f.object("/registry/namespaces/web", &corev1.Namespace{ObjectMeta: meta("", "web")})
	f.object("/registry/configmaps/web/settings", &corev1.ConfigMap{
		ObjectMeta: meta("web", "settings"), Data: map[string]string{"n": "1"},
	})
	f.object("/registry/configmaps/web/settings", &corev1.ConfigMap{
		ObjectMeta: meta("web", "settings"), Data: map[string]string{"n": "2"},
	})
	f.object("/registry/configmaps/web/gone", &corev1.ConfigMap{ObjectMeta: meta("web", "gone")})
	f.put("/registry/configmaps/web/gone", nil, true)
	f.object("/registry/configmaps/other/web", &corev1.ConfigMap{ObjectMeta: meta("other", "web")})
	secret := f.object("", &corev1.Secret{ObjectMeta: meta("web", "key"), Data: map[string][]byte{"word": []byte("x")}})
	f.put("/registry/secrets/web/key", sealed(secret, "key1"), false)
	f.put("/registry/example.org/things/web/one",
		[]byte(`{"apiVersion":"example.org/v1","kind":"Thing","metadata":{"name":"one","namespace":"web"}}`), false)
	f.put("/registry/odd/web/bytes", []byte{0, 1, 2}, false)
	if err := f.db.Close(); err != nil {
		t.Fatal(err)
	}
	return f.path
}

func keys(name string) []Key {
	return []Key{{Name: name, Secret: director.Secret(base64.StdEncoding.EncodeToString(rawKey[:]))}}
}

func TestRead(t *testing.T) {
	t.Parallel()
	path := sample(t)
	for name, tt := range map[string]struct {
		query Query
		want  []string
	}{
		"a namespace": {Query{Namespace: "web"}, []string{
			"ConfigMap/settings", "Namespace/web", "Secret/key",
			"Thing/one",
		}},
		"a kind":    {Query{Namespace: "web", Kind: "secret"}, []string{"Secret/key"}},
		"an object": {Query{Namespace: "web", Kind: "Thing", Name: "one"}, []string{"Thing/one"}},
		"another":   {Query{Namespace: "other"}, []string{"ConfigMap/web"}},
	} {
		tt.query.Keys = keys("key1")
		list, err := Read(t.Context(), path, tt.query)
		var got []string
		for _, o := range list {
			got = append(got, o.Kind+"/"+o.Name)
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	list, err := Read(t.Context(), path, Query{Namespace: "web", Kind: "ConfigMap"})
	if err != nil || list[0].Content["data"].(map[string]any)["n"] != "2" || list[0].Content["apiVersion"] != "v1" {
		t.Errorf("not the newest revision: %v, %v", list, err)
	}
	list, err = Read(t.Context(), path, Query{Namespace: "web", Kind: "Secret", Name: "key", Keys: keys("key1")})
	if err != nil || list[0].Content["data"].(map[string]any)["word"] != "eA==" {
		t.Errorf("the Secret is %v, %v", list, err)
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	path := sample(t)
	empty := newFile(t)
	if err := empty.db.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		path  string
		query Query
		kind  director.Kind
		want  string
	}{
		"nothing there": {path, Query{Namespace: "none"}, director.KindNotFound, "no such object"},
		"another key": {
			path,
			Query{Namespace: "web", Keys: keys("key2")},
			director.KindInvalid,
			"/registry/secrets/web/key",
		},
		"no keys":     {path, Query{Namespace: "web", Kind: "Secret"}, director.KindInvalid, "does not have"},
		"no snapshot": {empty.path, Query{Namespace: "web"}, director.KindInvalid, "has no keys"},
	} {
		_, err := Read(t.Context(), tt.path, tt.query)
		if director.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
