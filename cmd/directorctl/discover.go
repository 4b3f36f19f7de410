package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

// discoverOptions are those of provider discover.
type discoverOptions struct {
	kind, file, user, passwordFile string
}

func (o discoverOptions) check(cmd *cobra.Command, args []string) error {
	switch {
	case o.kind != "" && !slices.Contains(wire.DiscoveredKinds(), o.kind):
		return usage(cmd, "--kind is not one of %s", strings.Join(wire.DiscoveredKinds(), ", "))
	case len(args) == 0 && o.file == "":
		return usage(cmd, "NAME is missing, or -f FILE with the document of a provider")
	case len(args) > 0 && o.file != "":
		return usage(cmd, "NAME and -f exclude each other")
	case o.user != "" && o.file == "":
		return usage(cmd, "--user is for -f: a provider that is stored names its account")
	case o.passwordFile != "" && o.user == "":
		return usage(cmd, "--user is missing")
	}
	return nil
}

func (a *providerCommands) discoverCommand() *cobra.Command {
	var o discoverOptions
	form := formTable
	cmd := &cobra.Command{
		Use: "discover NAME | -f FILE", Short: "Tell what a provider has that documents may name",
		Args: between(0, "NAME"), ValidArgsFunction: a.complete(0, providerNames),
		Long: "Ask the hypervisor for what you would otherwise look up and type: hosts; storage pools, networks and\n" +
			"bridges of libvirt; datacenters, clusters, resource pools, datastores, port groups, folders and\n" +
			"templates of vSphere. The names are those that documents take. Nothing is changed. The provider's\n" +
			"document needs a working address and account; the rest of it may still be wrong.\n\n" +
			"With -f, the provider need not be stored. Its account is the credentials that the document names, or\n" +
			"the one of --user for this call alone, whose password comes from a file, the standard input or the\n" +
			"terminal. This needs the role admin.",
		Example: "  directorctl provider discover lab --kind storage_pool\n" +
			"  directorctl provider discover -f vcenter.yaml --user kaas@vsphere.local",
		PreRunE: func(cmd *cobra.Command, args []string) error { return o.check(cmd, args) },
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			v, err := a.discovered(cmd, api, args, o)
			if err != nil {
				return err
			}
			if o.kind != "" {
				v.Items = slices.DeleteFunc(v.Items, func(i wire.Discovered) bool { return i.Kind != o.kind })
				v.Left = slices.DeleteFunc(v.Left, func(l wire.DiscoveredLeft) bool { return l.Kind != o.kind })
			}
			return a.show(form, v, func() { a.printDiscovery(v) })
		}),
	}
	cmd.Flags().StringVar(&o.kind, "kind", "", "only this kind: "+strings.Join(wire.DiscoveredKinds(), ", "))
	cmd.Flags().StringVarP(
		&o.file, "filename", "f", "", "document of a provider that need not be stored; - is the standard input",
	)
	cmd.Flags().StringVarP(&o.user, "user", "u", "", "account of a vCenter for this call alone")
	cmd.Flags().StringVar(
		&o.passwordFile, "password-file", "", "file that holds its password; - is the standard input (default: ask)",
	)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	outputFlag(cmd, &form)
	return cmd
}

// discovered asks the director for what the options say.
func (a *providerCommands) discovered(
	cmd *cobra.Command, api *client.Client, args []string, o discoverOptions,
) (wire.Discovery, error) {
	if o.file == "" {
		return api.Discover(cmd.Context(), args[0])
	}
	src, err := (&modelCommands{a.app}).readSources(cmd.Context(), cmd, []string{o.file})
	if err != nil {
		return wire.Discovery{}, err
	}
	var password director.Secret
	if o.user != "" {
		if password, err = a.password(o.passwordFile, "Password of "+o.user+": "); err != nil {
			return wire.Discovery{}, err
		}
	}
	v, err := api.DiscoverDraft(cmd.Context(), src.text.Bytes(), o.user, password)
	return v, src.translate(err)
}

func (a *providerCommands) printDiscovery(v wire.Discovery) {
	table(a.out, "KIND IN NAME FREE SIZE ABOUT", func(row func(...string)) {
		for _, i := range v.Items {
			free, size, about := "", "", plain(i.About)
			switch {
			case i.SizeBytes > 0:
				free, size = gib(i.FreeBytes), gib(i.SizeBytes)
			case i.MemoryBytes > 0:
				free, size = gib(i.MemoryFreeBytes), gib(i.MemoryBytes)
				about = strings.TrimSpace(strconv.Itoa(i.CPUs) + " CPUs, " + strconv.Itoa(i.VMs) + " VMs, " + about)
			}
			if i.Problem != "" {
				about = strings.TrimPrefix(about+"; "+plain(i.Problem), "; ")
			}
			row(i.Kind, plain(i.In), plain(i.Name), free, size, about)
		}
	})
	for _, l := range v.Left {
		say(a.out, "\n%d more of kind %s are not shown\n", l.Count, l.Kind)
	}
	for _, u := range v.Unseen {
		say(a.out, "\n%s: %s\n%s\n", u.Host, plain(u.Problem), plain(u.Hint))
	}
}
