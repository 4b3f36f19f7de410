package simulate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// standInContents is what every pretended etcd has.
const standInContents = `{"resources": {"namespaces": 2, "pods": 40, "secrets": 3}, ` +
	`"namespaces": ["default", "kube-system"]}`

// Stream pretends to transfer. What is sent is read and forgotten; every master has a small snapshot of etcd that was
// taken just now, and the VM of a restore drill says that it has all of it.
func (s *Simulation) Stream(
	ctx context.Context, m director.Machine, _, script string, in io.Reader, out io.Writer,
) error {
	if in != nil {
		if _, err := io.Copy(io.Discard, in); err != nil {
			return err
		}
	}
	var err error
	switch {
	case in != nil:
	case strings.Contains(script, "status.json"):
		_, err = fmt.Fprintf(
			out, `{"made": %q, "member": %q, "etcd": %q, "revision": 4242, "keys": 1000, "hash": 7,`+
				`"members": [{"name": %q, "address": "https://%s:2380"}], "contents": `+standInContents+`}`,
			time.Now().UTC().Format(time.RFC3339Nano), m.Name, standInEtcd, m.Name, m.Address,
		)
	case strings.Contains(script, "answer.json"):
		_, err = io.WriteString(
			out, `{"restored": `+standInContents+`, "keys": [], "seconds": {"etcd": 1, "api": 1}, "api": {`+
				`"version": "v1.0.0", "namespaces": ["default", "kube-system"], "nodes": [], "crds": [], `+
				`"secrets": 3}}`,
		)
	case strings.Contains(script, "snapshot.db"):
		database := bytes.Repeat([]byte("etcd"), 16<<10)
		digest := sha256.Sum256(database)
		_, err = out.Write(append(database, digest[:]...))
	}
	if err != nil {
		return err
	}
	return ctx.Err()
}
