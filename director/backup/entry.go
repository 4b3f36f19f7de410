package backup

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Entry is a backup with where it lies.
type Entry struct {
	Manifest
	Target   string    // name of the BackupTarget
	Verified time.Time // when the archive was last read to its end; zero for never
	Problem  string    // what was wrong with it then
}

// Making is what a backup is made of, without its snapshot.
type Making struct {
	ID, Cluster, ClusterUID, Plan, Reason, Target, Kubernetes string
	EncryptionKeys                                            []string
	Members                                                   []Member
	Snapshot                                                  Snapshot // without its digest
	Contents                                                  *Contents
}

// Tail checks the digest that etcd writes at the end of a snapshot: whatever happened to it on the way is seen.
type Tail struct {
	hash hash.Hash
	last []byte
	size int64
}

// NewTail returns a writer that a snapshot is written to, from its beginning to its end.
func NewTail() *Tail { return &Tail{hash: sha256.New()} }

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.size += int64(len(p))
	t.last = append(t.last, p...)
	if more := len(t.last) - sha256.Size; more > 0 {
		_, _ = t.hash.Write(t.last[:more]) // a hash never fails
		t.last = append(t.last[:0], t.last[more:]...)
	}
	return len(p), nil
}

// databasePage is what the size of a database is a multiple of.
const databasePage = 512

// Check returns an error unless what was written is a whole snapshot.
func (t *Tail) Check() error {
	if t.size%databasePage == sha256.Size && bytes.Equal(t.hash.Sum(nil), t.last) {
		return nil
	}
	return director.Errorf(
		director.KindUnavailable, "backup.snapshot", "the snapshot of etcd is damaged or cut off (%d bytes)", t.size,
	).WithHint("try again; if it happens again, check the disk of the master")
}
