package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
)

func (a *clusterCommands) inventoryCommand() *cobra.Command {
	var o inventoryOptions
	cmd := &cobra.Command{
		Use:   "inventory CLUSTER [export]",
		Short: "Show or export what playbooks are given for a cluster",
		Long: "Show the inventory that every playbook run of a cluster gets, or export it to a directory to run a " +
			"playbook by hand. Secrets are only\n" +
			"in it with --secrets: secrets.json, and an SSH key with a certificate that ends after --ttl. That " +
			"needs your password.",
		Example: "  directorctl inventory demo\n  directorctl inventory demo export --dir demo-inventory " +
			"--secrets",
		Args:              between(1, "CLUSTER", "export"),
		ValidArgsFunction: a.complete(0, clusterNames),
		PreRunE:           o.check,
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			files, err := a.inventoryFiles(cmd.Context(), api, args[0], o)
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return a.exportFiles(o.dir, files)
			}
			for _, path := range slices.Sorted(maps.Keys(files)) {
				say(a.out, "# %s\n%s\n", path, files[path])
			}
			return nil
		}),
	}
	o.flags(cmd)
	return cmd
}

// inventoryOptions are the flags of the command inventory.
type inventoryOptions struct {
	dir, passwordFile string
	secrets           bool
	ttl               time.Duration
}

func (o *inventoryOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.dir, "dir", "", "directory to write to; it is made if needed")
	cmd.Flags().BoolVar(&o.secrets, "secrets", false, "also export secrets.json and an SSH key with a certificate")
	cmd.Flags().StringVar(
		&o.passwordFile, "password-file", "", "file that holds your password; - is the standard input (default: ask)",
	)
	cmd.Flags().DurationVar(&o.ttl, "ttl", 0, "how long the SSH certificate is good for, 12h at most (default 1h)")
	_ = cmd.MarkFlagDirname("dir")
}

func (o *inventoryOptions) check(cmd *cobra.Command, args []string) error {
	export := len(args) == 2
	switch {
	case export && args[1] != "export":
		return usage(cmd, "%q is not known here: export", args[1])
	case export && o.dir == "":
		return usage(cmd, "export needs --dir")
	case !export && (o.dir != "" || o.secrets || o.passwordFile != "" || o.ttl != 0):
		return usage(cmd, "--dir, --secrets, --password-file and --ttl are for: inventory %s export", args[0])
	case !o.secrets && (o.passwordFile != "" || o.ttl != 0):
		return usage(cmd, "--password-file and --ttl are for --secrets")
	}
	return nil
}

// inventoryFiles asks for the inventory, and for the password first if it is to hold secrets.
func (a *clusterCommands) inventoryFiles(
	ctx context.Context, api *client.Client, cluster string, o inventoryOptions,
) (map[string]string, error) {
	if !o.secrets {
		return api.Inventory(ctx, cluster)
	}
	password, err := a.password(o.passwordFile, "Your password: ")
	if err != nil {
		return nil, err
	}
	return api.ExportInventory(ctx, cluster, password, o.ttl)
}

// exportFiles writes files below dir, readable by the user alone, since inventories name hosts and may hold secrets.
func (a *clusterCommands) exportFiles(dir string, files map[string]string) error {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if !filepath.IsLocal(path) {
			return director.Errorf(
				director.KindInternal, "directorctl.export", "the director sent a file outside of the directory: %q",
				path,
			)
		}
		target := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return fileError("directorctl.export", err)
		}
		if err := writeFile(target, []byte(files[path]), 0o600); err != nil {
			return err
		}
		sayLine(a.out, target)
	}
	return nil
}

func (a *app) versionCommand() *cobra.Command {
	form := formTable
	local := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of directorctl and of the director",
		Args:  exact(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			type versions struct {
				Client string `json:"client"`
				Commit string `json:"commit,omitempty"`
				Server string `json:"server,omitempty"`
			}
			v := versions{Client: version, Commit: commit}
			_, c, err := a.settings()
			if err != nil {
				return err
			}
			if c.Server != "" && !local {
				api, err := a.anonymous(c, "")
				if err != nil {
					return err
				}
				defer api.Close()
				remote, err := api.Version(cmd.Context())
				if err != nil {
					return err
				}
				v.Server = remote.Version
			}
			return a.show(form, v, func() {
				say(a.out, "directorctl %s\n", v.Client)
				if v.Server != "" {
					say(a.out, "director    %s at %s\n", v.Server, c.Server)
				}
			})
		},
	}
	cmd.Flags().BoolVar(&local, "client", false, "do not ask the director")
	outputFlag(cmd, &form)
	return cmd
}
