package planner

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// hostKeyTypes are those that every SSH server of these years has one of.
var hostKeyTypes = []string{"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"}

// CheckHostKeys refuses host keys that are none, or that are for other nodes than the request's, and brings them to
// their shortest form.
func CheckHostKeys(r plan.Request) (map[string]string, error) {
	const op = "planner.host_keys"
	if len(r.HostKeys) == 0 {
		return nil, nil
	}
	if r.Operation != plan.NodeRejoin {
		return nil, invalid(
			op, "host keys are for "+string(plan.NodeRejoin)+", and not for "+string(r.Operation), "leave them out",
		)
	}
	var problems []director.Field
	out := map[string]string{}
	for _, node := range slices.Sorted(maps.Keys(r.HostKeys)) {
		at := "host_keys." + node
		fields := strings.Fields(r.HostKeys[node])
		switch {
		case !slices.Contains(r.Nodes, node):
			problems = append(problems, director.Field{
				Path: at, Msg: "the node is not one of the request's",
				Hint: "name it among the nodes, or leave its key out",
			})
		case strings.Contains(strings.TrimSpace(r.HostKeys[node]), "\n"), len(fields) < 2, !isKey(fields):
			problems = append(problems, director.Field{
				Path: at, Msg: "is not one public SSH host key of type " + strings.Join(hostKeyTypes, ", "),
				Hint: "give what is in /etc/ssh/ssh_host_ed25519_key.pub of the new VM",
			})
		default:
			out[node] = fields[0] + " " + fields[1]
		}
	}
	return out, director.Invalid(op, "the host keys cannot be used", problems)
}

// isKey reports whether the second of the fields is a key of the type that the first one says.
func isKey(fields []string) bool {
	raw, err := base64.StdEncoding.DecodeString(fields[1])
	name := fields[0]
	prefix := fmt.Sprintf("\x00\x00\x00%c%s", len(name), name)
	return err == nil && slices.Contains(hostKeyTypes, name) && strings.HasPrefix(string(raw), prefix)
}

// fingerprint renders a key as ssh-keygen -l does.
func fingerprint(key string) string {
	raw, err := base64.StdEncoding.DecodeString(strings.Fields(key)[1])
	if err != nil {
		return key
	}
	sum := sha256.Sum256(raw)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}
