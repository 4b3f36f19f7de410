package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *backupCommands) backupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup", Short: "Make backups of clusters, list, verify, restore and delete them", Args: exact(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.backupCreateCommand(), a.backupListCommand(), a.backupShowCommand(), a.backupVerifyCommand(),
		a.backupRestoreCommand(), a.backupDrillCommand(), a.backupExtractCommand(), a.backupDeleteCommand(),
		a.backupRereadCommand(),
	)
	return cmd
}

func (a *backupCommands) backupCreateCommand() *cobra.Command {
	var options requestOptions
	cmd := &cobra.Command{
		Use: "create CLUSTER", Short: "Back up etcd of a cluster to its targets",
		Long: "Take a snapshot of etcd on a healthy master and store it, encrypted, in every target that the cluster " +
			"names in spec.backup.targets.\nEach is read back and compared. The cluster works meanwhile.",
		Example: "  directorctl backup create demo --wait", Args: exact("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			return a.request(cmd.Context(), api, args[0], plan.Request{Operation: plan.ClusterBackup}, options)
		}),
	}
	options.flags(cmd)
	return cmd
}

func (a *backupCommands) backupListCommand() *cobra.Command {
	late := false
	cmd := &cobra.Command{
		Use: "list [CLUSTER]", Short: "List backups, the newest first, and clusters whose newest one is late",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(0, clusterNames),
	}
	cmd.Flags().BoolVar(&late, "late", false, "only clusters whose newest backup is late")
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, args []string) (wire.Backups, error) {
		return api.Backups(ctx, strings.Join(args, ""), late)
	}, func(v wire.Backups) {
		table(a.out, "ID CLUSTER TARGET AGE REVISION KEYS SIZE STORED REASON", func(row func(...string)) {
			for _, b := range v.Items {
				row(
					b.ID, b.Cluster, b.Target, age(time.Since(b.MadeAt)), strconv.FormatInt(b.Revision, 10),
					strconv.FormatInt(b.Keys, 10),
					memory(b.SizeBytes), memory(b.ArchiveBytes), b.Reason,
				)
			}
		})
		a.printLate(v.Clusters)
	})
}

func (a *backupCommands) printLate(clusters []wire.BackupAge) {
	for _, c := range clusters {
		switch {
		case c.Late && c.NewestAt == nil:
			say(a.out, "\ncluster %s has no backup in every target of %s\n", c.Cluster, strings.Join(c.Targets, ", "))
		case c.Late:
			say(a.out, "\nthe newest backup of cluster %s is late: %s old\n", c.Cluster, age(time.Since(*c.NewestAt)))
		}
		a.printDrills(c)
	}
}

// printDrills says what is wrong with the restore drills of the cluster.
func (a *backupCommands) printDrills(c wire.BackupAge) {
	d := c.Drills
	if d == nil {
		return
	}
	if d.Newest != nil && d.Newest.Problem != "" {
		say(a.out, "\nthe restore drill of cluster %s with backup %s failed: %s\n", c.Cluster, d.Newest.Backup,
			d.Newest.Problem)
	}
	switch {
	case d.Late && d.LastAt == nil:
		say(a.out, "\nno restore drill of cluster %s has succeeded yet: directorctl backup drill %s\n", c.Cluster,
			c.Cluster)
	case d.Late:
		say(a.out, "\nthe last restore drill of cluster %s that succeeded was %s ago\n", c.Cluster,
			age(time.Since(*d.LastAt)))
	}
}

func (a *backupCommands) backupShowCommand() *cobra.Command {
	form := formYAML
	cmd := &cobra.Command{
		Use: "show BACKUP", Short: "Show a backup", Args: exact("BACKUP"),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			b, err := api.Backup(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(form, b, func() {})
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *backupCommands) backupVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify BACKUP", Short: "Read a backup to its end and say what is wrong", Args: exact("BACKUP"),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			b, err := api.VerifyBackup(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if b.Problem != "" {
				return director.Errorf(director.KindInvalid, "directorctl.backup", "backup %s: %s", b.ID, b.Problem).
					WithHint("make another one: directorctl backup create %s", b.Cluster)
			}
			say(a.out, "Backup %s is whole: revision %d, %d keys, %s\n", b.ID, b.Revision, b.Keys, memory(b.SizeBytes))
			return nil
		}),
	}
}

func (a *backupCommands) backupRereadCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "reread TARGET", Short: "Compare the list of backups with what lies in a target",
		Long: "Put backups onto the list that lie in the target and are not on it, such as those that were made " +
			"after the bundle\nthat the director was restored from, and mark those that are gone. Nothing is changed " +
			"in the target.",
		Example: "  directorctl backup reread near", Args: exact("TARGET"),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			v, err := api.RereadBackupTarget(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(form, v, func() {
				say(a.out, "%d backups lie in target %s: %d were not on the list, %d of the list are gone\n", v.Found,
					args[0], len(v.Added), len(v.Missing))
				for _, id := range v.Added {
					say(a.out, "added    %s\n", id)
				}
				for _, id := range v.Missing {
					say(a.out, "missing  %s\n", id)
				}
				for _, f := range v.Refused {
					say(a.out, "refused  %s: %s\n", f.File, f.Why)
				}
			})
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *backupCommands) backupDeleteCommand() *cobra.Command {
	var options consent
	cmd := &cobra.Command{
		Use: "delete BACKUP", Short: "Delete a backup in its target", Args: exact("BACKUP"),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			ok, err := a.agreed(cmd.Context(), options, "Delete backup "+args[0]+"?")
			if err != nil || !ok {
				return err
			}
			if err := api.DeleteBackup(cmd.Context(), args[0]); err != nil {
				return err
			}
			say(a.out, "Backup %s deleted\n", args[0])
			return nil
		}),
	}
	options.flag(cmd, "delete without asking")
	return cmd
}

func (a *backupCommands) backupRestoreCommand() *cobra.Command {
	var options requestOptions
	newMasters := false
	cmd := &cobra.Command{
		Use: "restore BACKUP", Short: "Restore a cluster from one of its backups",
		Long: "Restore a cluster from one of its backups: what has changed in it since then is lost.\n" +
			"The backup is read to its end and restored next to the data of etcd on every master. Then the control " +
			"plane stops on all masters, the data\n" +
			"changes its place, and everything starts again. Pods run on meanwhile. The former data stays on the " +
			"masters.\n\n" +
			"With --new-masters, for a cluster that has lost its masters: their VMs are destroyed and created again, " +
			"with the same names, addresses\n" +
			"and authorities. The workers and their pods stay.",
		Example: "  directorctl backup restore 0301-034500-a1b2c3-offsite --plan-only\n" +
			"  directorctl backup restore 0301-034500-a1b2c3-offsite --new-masters --wait",
		Args: exact("BACKUP"),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			b, err := api.Backup(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.request(cmd.Context(), api, b.Cluster, plan.Request{
				Operation: plan.ClusterRestore,
				Restore:   plan.Restore{Backup: b.ID, NewMasters: newMasters},
			}, options)
		}),
	}
	cmd.Flags().BoolVar(
		&newMasters, "new-masters", false, "destroy the VMs of all masters and create them again before",
	)
	options.flags(cmd)
	return cmd
}

func (a *backupCommands) backupDrillCommand() *cobra.Command {
	var options requestOptions
	id := ""
	cmd := &cobra.Command{
		Use: "drill CLUSTER", Short: "Try whether a backup of a cluster can be restored, in a VM of its own",
		Long: "Restore the newest backup of a cluster into a VM of its own, on the network that the cluster names in " +
			"spec.backup.drill.network.\nThe director starts etcd and an API server there and compares what they " +
			"have with the manifest of the backup. Then it deletes\nthe VM, also if the drill failed. No node of the " +
			"cluster is touched.",
		Example: "  directorctl backup drill demo --wait\n" +
			"  directorctl backup drill demo --backup 0301-034500-a1b2c3-offsite --wait",
		Args: exact("CLUSTER"), ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			return a.request(cmd.Context(), api, args[0], plan.Request{
				Operation: plan.ClusterDrill, Restore: plan.Restore{Backup: id},
			}, options)
		}),
	}
	cmd.Flags().StringVar(&id, "backup", "", "id of the backup (default: the newest)")
	options.flags(cmd)
	return cmd
}

func (a *backupCommands) backupExtractCommand() *cobra.Command {
	var q wire.BackupExtract
	passwordFile := ""
	cmd := &cobra.Command{
		Use: "extract BACKUP", Short: "Print objects of a namespace as they are in a backup",
		Long: "Print objects of a namespace as they were when the backup was made, Secrets too. Nothing is changed " +
			"in the cluster: compare, and\napply what you need with kubectl. It needs your password, also with a " +
			"valid login.",
		Example: "  directorctl backup extract BACKUP -n shop > shop.yaml\n" +
			"  directorctl backup extract BACKUP -n shop --kind Secret --name database",
		Args: exact("BACKUP"),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			if q.Namespace == "" {
				return usage(cmd, "name the namespace: --namespace NAME")
			}
			password, err := a.password(passwordFile, "Your password: ")
			if err != nil {
				return err
			}
			v, err := api.ExtractBackup(cmd.Context(), args[0], password, q)
			if err != nil {
				return err
			}
			for _, o := range v.Objects {
				text, err := yaml.Marshal(o)
				if err != nil {
					return err
				}
				say(a.out, "---\n%s", text)
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&q.Namespace, "namespace", "n", "", "the namespace")
	f.StringVar(&q.Kind, "kind", "", "only objects of this kind, such as Secret")
	f.StringVar(&q.Name, "name", "", "only the object of this name")
	f.StringVar(
		&passwordFile, "password-file", "", "file that holds your password; - is the standard input (default: ask)",
	)
	return cmd
}
