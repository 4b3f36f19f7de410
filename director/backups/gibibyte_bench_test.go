package backups

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/backup/s3test"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/servicetest"
)

const gibibyte = 1 << 30

// accounts opens the same key for every bucket.
type accounts struct{ user, password string }

func (a accounts) OpenBackup(context.Context, string, model.S3Bucket) (director.Credentials, error) {
	return director.Credentials{User: a.user, Password: director.Secret(a.password)}, nil
}

// BenchmarkGibibyte makes backups of a snapshot of at least 1 GiB as plans do: it is compressed, encrypted, written,
// read back and compared. A file is read instead of the node. The memory is what the process of the benchmark, in which
// the director's part runs, had at most above what it had before.
func BenchmarkGibibyte(b *testing.B) {
	file := snapshotFile(b)
	b.Run("directory", func(b *testing.B) { backUp(b, open(b, "{count: 1}"), "near", file) })
	b.Run("bucket", func(b *testing.B) {
		s, server := open(b, "{count: 1}"), s3test.Start(b)
		servicetest.Put(b, s.c.Store, fmt.Sprintf("apiVersion: kaas/v1\nkind: BackupTarget\nmetadata: {name: far}\n"+
			"spec:\n  type: s3\n  s3:\n    url: %s\n    bucket: %s\n    region: %s\n    credentials: key\n"+
			"    ca: |\n%s\n",
			server.URL, server.Bucket, server.Region, indented(server.CA)))
		s.c.Accounts = accounts{server.Key, server.Secret.Reveal()}
		s.c.Networks = confine.Networks{netip.MustParsePrefix("127.0.0.1/32")}
		backUp(b, s, "far", file)
	})
}

func indented(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}

func backUp(b *testing.B, s *shelf, target, file string) {
	b.Helper()
	debug.FreeOSMemory() // what the file was made with
	before := resident(b, "VmRSS:")
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200); err != nil { // forget the peak
		b.Fatal(err)
	}
	var made backup.Manifest
	for b.Loop() {
		var err error
		made, err = s.Save(b.Context(), backup.Making{
			ID: "large", Cluster: "demo", ClusterUID: "u1", Target: target, Kubernetes: "v1.37.1",
		}, func(_ context.Context, w io.Writer) error {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			_, err = io.Copy(w, f)
			return errors.Join(err, f.Close())
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if made.Snapshot.Size < gibibyte {
		b.Fatalf("the snapshot has %d bytes", made.Snapshot.Size)
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s")
	b.ReportMetric(float64(resident(b, "VmHWM:")-before)/1e6, "MB-more")
	b.ReportMetric(float64(made.Archive.Size)/1e6, "MB-archive")
}

// resident returns a line of the process's memory, in bytes.
func resident(b *testing.B, name string) int64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	var kib int64
	_, rest, _ := strings.Cut(string(text), name)
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	return kib << 10
}

// snapshotFile writes a database as etcd's, with values of which half cannot be compressed, and the digest that etcd
// puts behind a snapshot.
func snapshotFile(b *testing.B) string {
	b.Helper()
	const value, batch = 16 << 10, 1024
	file := b.TempDir() + "/snapshot.db"
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{NoSync: true, Timeout: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{1})
	text := []byte(strings.Repeat(`{"kind":"ConfigMap","apiVersion":"v1"}`, value))[:value]
	for n := uint64(0); n < gibibyte/value; n += batch {
		err := db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("key"))
			if err != nil {
				return err
			}
			bucket.FillPercent = 1 // revisions are in order
			for i := range uint64(batch) {
				v := append([]byte(nil), text...)
				_, _ = random.Read(v[:value/2]) // it never fails
				if err := bucket.Put(fmt.Appendf(nil, "%016x_", n+i), v); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	digest := sha256.New()
	if _, err = io.Copy(digest, f); err == nil {
		_, err = f.Write(digest.Sum(nil))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
	return file
}
