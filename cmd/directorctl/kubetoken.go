package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// renewAhead is how long before its end a token is replaced.
const renewAhead = time.Minute

func (a *clusterCommands) kubeTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kube-token CLUSTER",
		Short: "Print a token for the API of a cluster, for kubectl",
		Long: "Print a token for the API of a cluster as an ExecCredential, which kubectl takes from a plugin.\n\n" +
			"The token says who you are and which roles you have on the cluster. It is good for ten minutes and kept " +
			"in your cache directory until a minute before its end.\n" +
			"While the director cannot be reached, a token that is kept is used until its end.",
		Example:           "  directorctl kube-token demo",
		Args:              exact("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.kubeToken(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return json.NewEncoder(a.out).Encode(map[string]any{
				"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
				"status": map[string]string{
					"token": t.Token, "expirationTimestamp": t.ExpiresAt.UTC().Format(time.RFC3339),
				},
			})
		},
	}
}

// kubeToken returns the token that is kept, or a new one.
func (a *app) kubeToken(ctx context.Context, cluster string) (wire.ClusterToken, error) {
	_, c, err := a.settings()
	if err != nil {
		return wire.ClusterToken{}, err
	}
	path := c.kubeTokenPath(cluster)
	kept := readKubeToken(path)
	if time.Until(kept.ExpiresAt) > renewAhead {
		return kept, nil
	}
	api, err := a.connect()
	if err != nil {
		return wire.ClusterToken{}, err
	}
	defer api.Close()
	t, err := api.ClusterToken(ctx, cluster)
	switch {
	case director.KindOf(err) == director.KindUnavailable && time.Until(kept.ExpiresAt) > 0:
		return kept, nil
	case err != nil:
		return wire.ClusterToken{}, err
	}
	keepKubeToken(path, t)
	return t, nil
}

// kubeTokenDir is where the tokens of the login are kept, or empty if this user has no cache directory.
func (c config) kubeTokenDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(c.Server + "\n" + c.User))
	return filepath.Join(dir, "director", "tokens", hex.EncodeToString(sum[:8]))
}

func (c config) kubeTokenPath(cluster string) string {
	dir := c.kubeTokenDir()
	if dir == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(cluster)) // a name that is wrong must not lead out of the directory
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".json")
}

// readKubeToken returns the token that is kept, or the zero value. A file that others can read or write is not used.
func readKubeToken(path string) (t wire.ClusterToken) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return wire.ClusterToken{}
	}
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &t) != nil {
		return wire.ClusterToken{}
	}
	return t
}

// keepKubeToken keeps the token. Without it, the next call asks the director again.
func keepKubeToken(path string, t wire.ClusterToken) {
	if path == "" {
		return
	}
	text, err := json.Marshal(t)
	if err != nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return
	}
	_ = writeFile(path, text, 0o600)
}

// forgetKubeTokens removes the tokens of the login.
func (c config) forgetKubeTokens() {
	if dir := c.kubeTokenDir(); dir != "" {
		_ = os.RemoveAll(dir) // they end within minutes
	}
}
