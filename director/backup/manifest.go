package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Format is the newest format of manifests that this director reads and writes.
const Format = 1

// Manifest says what is in a backup. It holds no secret.
type Manifest struct {
	Format     int       `json:"format"`
	ID         string    `json:"id"`
	Cluster    string    `json:"cluster"`
	ClusterUID string    `json:"cluster_uid"`
	Director   string    `json:"director"` // id of the one that made it
	Made       time.Time `json:"made"`
	Plan       string    `json:"plan,omitempty"` // that made it
	Reason     string    `json:"reason,omitempty"`
	Snapshot   Snapshot  `json:"snapshot"`
	Archive    Sums      `json:"archive"`
	Kubernetes string    `json:"kubernetes"`
	// EncryptionKeys are the ids of the keys that encrypt Secrets in etcd; see Key.
	EncryptionKeys []string `json:"encryption_keys"`
	Members        []Member `json:"members"`
	Recipients     []string `json:"recipients"` // who can open it
	// Contents is what etcd had at the revision of the snapshot. Backups of older directors do not tell.
	Contents *Contents `json:"contents,omitempty"`
}

// Snapshot is a snapshot of etcd, as etcdutl reads it.
type Snapshot struct {
	Sums
	Revision int64  `json:"revision"`
	Keys     int64  `json:"keys"`
	Hash     uint32 `json:"hash"`
	Etcd     string `json:"etcd"` // version of the member
	Member   string `json:"member"`
}

// Member is a member of etcd when the snapshot was made.
type Member struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Sealer signs what a director made.
type Sealer interface {
	Seal(owner, name string, plain []byte) ([]byte, error)
	Unseal(owner, name string, sealed []byte) ([]byte, error)
}

// signed is the file of a manifest. The proof is the digest of the manifest, sealed with the director's key for the
// cluster and the backup: who can write to a target cannot make a backup up.
type signed struct {
	Manifest json.RawMessage `json:"manifest"`
	Proof    []byte          `json:"proof"`
}

func proofName(id string) string { return "backup " + id }

// Sign returns the file of the manifest.
func Sign(m Manifest, box Sealer) ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(text)
	proof, err := box.Seal(m.ClusterUID, proofName(m.ID), digest[:])
	if err != nil {
		return nil, err
	}
	return json.Marshal(signed{Manifest: text, Proof: proof})
}

// Open reads the file of a manifest and checks that a director with the same key made it. Errors: invalid.
func Open(file []byte, box Sealer) (Manifest, error) {
	const op = "backup.manifest"
	var s signed
	var m Manifest
	if err := json.Unmarshal(file, &s); err != nil {
		return m, director.Errorf(director.KindInvalid, op, "the manifest of the backup is damaged: %s", err)
	}
	if err := json.Unmarshal(s.Manifest, &m); err != nil {
		return m, director.Errorf(director.KindInvalid, op, "the manifest of the backup is damaged: %s", err)
	}
	if m.Format > Format || m.Format < 1 {
		return m, director.Errorf(
			director.KindInvalid, op, "the backup has format %d, and this director reads up to %d", m.Format, Format,
		).WithHint("upgrade the director")
	}
	digest := sha256.Sum256(s.Manifest)
	proof, err := box.Unseal(m.ClusterUID, proofName(m.ID), s.Proof)
	if err != nil || !bytes.Equal(proof, digest[:]) {
		return m, director.Errorf(
			director.KindInvalid, op, "the manifest of backup %s was not made with the sealing key of this director, "+
				"or was changed", m.ID,
		).WithHint("use another backup, and find out who can write to the target")
	}
	return m, nil
}

// Key names a key that encrypts Secrets in etcd without telling it.
type Key struct {
	Name string // that it has in the cluster
	ID   string // that no other key has
}

// KeyOf returns what the key is named by.
func KeyOf(name string, key director.Secret) Key {
	sum := sha256.Sum256([]byte("backup key id\x00" + key.Reveal()))
	return Key{Name: name, ID: fmt.Sprintf("%s-%x", name, sum[:6])}
}

// KeyIDs returns the ids of the keys.
func KeyIDs(keys []Key) (ids []string) {
	for _, k := range keys {
		ids = append(ids, k.ID)
	}
	return ids
}

// KeyNames returns the names of the keys.
func KeyNames(keys []Key) (names []string) {
	for _, k := range keys {
		names = append(names, k.Name)
	}
	return names
}

// KeysOf returns which of the keys encrypt Secrets in the backup.
func (m Manifest) KeysOf(keys []Key) (in []Key) {
	for _, k := range keys {
		if slices.Contains(m.EncryptionKeys, k.ID) {
			in = append(in, k)
		}
	}
	return in
}

// Fits says why the backup cannot be restored into the cluster, or nil. etcd is the version that the cluster runs, and
// keys are the ids of those that the director has for it.
func (m Manifest) Fits(uid, etcd string, keys []string) error {
	const op = "backup.fits"
	if m.ClusterUID != uid {
		return director.Errorf(
			director.KindConflict, op, "backup %s is of another cluster (%s, uid %s)", m.ID, m.Cluster, m.ClusterUID,
		).WithHint("choose a backup of this cluster")
	}
	if newer(m.Snapshot.Etcd, etcd) {
		return director.Errorf(
			director.KindConflict, op, "backup %s is of etcd %s, and the cluster runs %s, which is older", m.ID,
			m.Snapshot.Etcd, etcd,
		).WithHint("choose a backup that was made before the upgrade, or upgrade the cluster first")
	}
	for _, k := range m.EncryptionKeys {
		if !slices.Contains(keys, k) {
			return director.Errorf(
				director.KindConflict, op, "the Secrets in backup %s are encrypted with the key %s, which the "+
					"director does not have", m.ID, k,
			).WithHint("choose a backup that was made with a key that the cluster has")
		}
	}
	return nil
}

var versionPattern = regexp.MustCompile(`^v?(\d+)\.(\d+)\.(\d+)`)

// newer reports whether a is a newer minor version than b. Patch releases read each other's data. What is not a version
// is newer than all: it is refused.
func newer(a, b string) bool {
	va, vb := versionPattern.FindStringSubmatch(a), versionPattern.FindStringSubmatch(b)
	if va == nil || vb == nil {
		return true
	}
	for i := 1; i <= 2; i++ {
		if na, nb := number(va[i]), number(vb[i]); na != nb {
			return na > nb
		}
	}
	return false
}

func number(digits string) (n int) {
	for _, d := range digits {
		if n < 1<<20 {
			n = n*10 + int(d-'0')
		}
	}
	return n
}

// Kept are the backups that the retention keeps, of all those of one cluster in one target: the newest count, and those
// of the last days. made are their times; the result says for each whether it stays.
func Kept(made []time.Time, count, days int, now time.Time) []bool {
	order := make([]int, len(made))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return made[b].Compare(made[a]) })
	out := make([]bool, len(made))
	for rank, i := range order {
		out[i] = rank < count || days > 0 && now.Sub(made[i]) <= time.Duration(days)*24*time.Hour
	}
	return out
}
