package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/whole"
	"github.com/director-kaas/kaas/director/wire"
)

const opRelease = "directorctl.release"

func (a *importCommands) releaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "release", Short: "Import, list, verify and delete release bundles",
		Long: "Bring release bundles to the director and look after them. A document of the kind Release names an " +
			"imported bundle by its digest, and clusters name\n" +
			"the document.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, Args: exact(),
	}
	cmd.AddCommand(
		a.packReleaseCommand(), a.importReleaseCommand(), a.listReleasesCommand(), a.verifyReleaseCommand(),
		a.deleteReleaseCommand(), a.pruneReleasesCommand(),
	)
	return cmd
}

func releaseNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindRelease)
}

// archive is a release bundle as one file, from a file or from a directory.
type archive struct {
	io.ReaderAt
	name string
	size int64
}

// openArchive takes the directory of a bundle, which it verifies, or an archive that was made of one.
func openArchive(ctx context.Context, path string) (archive, io.Closer, error) {
	f, err := os.Open(path)
	if err != nil {
		return archive{}, nil, director.Errorf(director.KindInvalid, opRelease, "%s cannot be read: %w", path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return archive{}, nil, errors.Join(err, f.Close())
	}
	if !info.IsDir() {
		return archive{f, filepath.Base(path), info.Size()}, f, nil
	}
	b, err := bundle.Open(path)
	if err == nil {
		err = b.Verify(ctx)
	}
	var packed *bundle.Archive
	if err == nil {
		packed, err = b.Archive()
	}
	if err != nil {
		return archive{}, nil, errors.Join(err, f.Close())
	}
	return archive{packed, b.Release().Name + ".tar", packed.Size()}, f, nil
}

// sum computes the checksum of the archive.
func (f archive) sum(ctx context.Context, show *progress) (string, error) {
	sum, err := show.copy(ctx, "Checking "+f.name, f, f.size)
	if err != nil {
		return "", endOf(ctx, director.Errorf(director.KindInvalid, opRelease, "%s cannot be read: %w", f.name, err))
	}
	return sum, nil
}

// upload is what the director is told of the archive before it is sent.
func (f archive) upload(sum string) wire.UploadRequest {
	return wire.UploadRequest{SHA256: sum, Size: f.size, Name: f.name, Kind: wire.UploadRelease}
}

func (a *importCommands) packReleaseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pack DIR FILE", Short: "Make one file of the directory of a release bundle",
		Long: "Verify the release bundle in DIR and write it into FILE, with its signature, to be carried to a " +
			"director and imported there. The same bundle\n" +
			"always gives the same file. It asks no director.",
		Example: "  directorctl release pack k8s-1.37.1 k8s-1.37.1.tar",
		Args:    exact("DIR", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := os.Stat(args[0])
			if err == nil && !info.IsDir() {
				err = errors.New("it is not a directory")
			}
			if err != nil {
				return director.Errorf(
					director.KindInvalid, opRelease, "there is no release bundle in %s: %w", args[0], err,
				)
			}
			f, c, err := openArchive(cmd.Context(), args[0])
			if err != nil {
				return stopped(cmd.Context(), err)
			}
			defer c.Close()
			show := a.progress()
			defer show.end()
			sum, err := f.write(cmd.Context(), args[1], show)
			if err != nil {
				return stopped(cmd.Context(), err)
			}
			show.end()
			say(a.out, "%s  %s\n", sum, args[1])
			return nil
		},
	}
}

// write copies the archive into a new file, which is there whole or not at all, and returns its checksum.
func (f archive) write(ctx context.Context, path string, show *progress) (string, error) {
	sum := ""
	err := whole.Fill(path, 0o644, func(file *os.File) (err error) {
		sum, err = show.copy(ctx, "Writing "+filepath.Base(path), f, f.size, file)
		return err
	})
	if err != nil {
		return "", endOf(ctx, director.Errorf(director.KindInvalid, opRelease, "%s cannot be written: %w", path, err))
	}
	return sum, nil
}

func (a *importCommands) importReleaseCommand() *cobra.Command {
	var unsigned string
	var from mirror
	cmd := &cobra.Command{
		Use: "import FILE|URL [NAME]", Short: "Bring a release bundle to the director",
		Long: "Send a release bundle to the director, which verifies it as a whole and keeps it by its digest, and " +
			"let the document Release/NAME name it. FILE is what\n" +
			"directorctl release pack made, or the directory of a bundle. NAME is the bundle's own name if it is " +
			"left out.\n\n" +
			"If the document exists, it changes to the new bundle. Clusters that run it stay as they are until the " +
			"next plan.\n\n" +
			"To continue an interrupted import, run the same command again.\n\n" +
			"With the URL of an archive on a mirror, beginning with https://, the director fetches the archive " +
			"itself. It connects only to addresses that its\n" +
			"configuration allows in mirrorNetworks. A password for the mirror is not stored.\n\n" +
			"The signature is in the bundle. A bundle without one is refused, unless --unsigned says in words why it " +
			"is used.",
		Example: "  directorctl release import k8s-1.37.1.tar\n" +
			"  directorctl release import /mnt/usb/k8s-1.37.1 stable\n" +
			"  directorctl release import https://mirror.example.org/k8s-1.37.1.tar --mirror-ca ca.crt",
		Args:    between(1, "FILE|URL", "NAME"),
		PreRunE: from.check,
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			name := ""
			if len(args) > 1 {
				name = args[1]
			}
			if from.cancel {
				return api.CancelFetch(cmd.Context(), args[0])
			}
			return a.importRelease(cmd.Context(), api, args[0], name, unsigned, from)
		}),
	}
	cmd.Flags().StringVar(
		&unsigned, "unsigned", "", "why the bundle is used without a signature, in three words or more",
	)
	from.flags(cmd)
	return cmd
}

func (a *importCommands) importRelease(
	ctx context.Context, api *client.Client, path, name, unsigned string, from mirror,
) error {
	if name != "" { // what is wrong with the document is known before anything is sent
		d := releaseDocument(name, unsigned, wire.ReleaseFile{
			Digest: strings.Repeat("0", 64), Kubernetes: "v1.0.0",
		})
		if _, err := model.Validate(&d); err != nil {
			return err
		}
	}
	show := a.progress()
	defer show.end()
	var sum string
	var err error
	if isAddress(path) {
		sum, err = a.fetchRelease(ctx, api, path, from, show)
	} else {
		sum, err = a.sendRelease(ctx, api, path, show)
	}
	if err != nil {
		return stopped(ctx, err)
	}
	file, err := api.ImportRelease(ctx, wire.ReleaseImport{Upload: sum, Unsigned: unsigned}, func(j wire.ReleaseJob) {
		if j.Stage == wire.JobUnpacking {
			show.at("The director unpacks the release", j.Done, j.Total, true)
		}
	})
	if err != nil {
		return stopped(ctx, err)
	}
	show.end()
	if name == "" {
		name = file.Name
	}
	return a.nameRelease(ctx, api, name, unsigned, file)
}

// sendRelease uploads the archive, and returns its checksum.
func (a *importCommands) sendRelease(
	ctx context.Context, api *client.Client, path string, show *progress,
) (string, error) {
	f, c, err := openArchive(ctx, path)
	if err != nil {
		return "", err
	}
	defer c.Close()
	sum, err := f.sum(ctx, show)
	if err != nil {
		return "", err
	}
	return sum, show.send(ctx, api, f.upload(sum), f)
}

func releaseDocument(name, unsigned string, f wire.ReleaseFile) model.Document {
	return model.Document{
		Kind: model.KindRelease, Metadata: model.Metadata{Name: name},
		Release: &model.Release{Digest: f.Digest, Kubernetes: f.Kubernetes, Unsigned: unsigned},
	}
}

// nameRelease lets the document name the bundle. unsigned is why it is used without a signature.
func (a *importCommands) nameRelease(
	ctx context.Context, api *client.Client, name, unsigned string, f wire.ReleaseFile,
) error {
	what := fmt.Sprintf("Kubernetes %s, %d images, %s, digest %s", f.Kubernetes, f.Images, amount(f.Size), f.Digest)
	wanted := releaseDocument(name, unsigned, f)
	return a.nameImported(ctx, api, what, wanted, func(d *model.Document) { d.Release = wanted.Release })
}

func (a *importCommands) listReleasesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the releases and the imported bundles", Args: exact(),
		Long: "List the documents of releases, and then the imported bundles that none names. directorctl release " +
			"prune deletes what nothing needs.",
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.Releases, error) {
		items, err := api.Releases(ctx)
		return wire.Releases{Items: items}, err
	}, func(items wire.Releases) { printReleases(a.out, items.Items, time.Now()) })
}

func printReleases(w io.Writer, items []wire.Release, now time.Time) {
	table(w, "NAME KUBERNETES SIZE DIGEST SIGNED CLUSTERS AGE FROM", func(row func(...string)) {
		for _, r := range items {
			size, ago, from := "", "", r.Directory
			if f := r.File; f != nil {
				size, ago, from = amount(f.Size), age(now.Sub(f.ImportedAt)), "imported"
			} else if from == "" {
				from = "missing"
			}
			signed := r.SignedBy
			switch {
			case r.Refused != "":
				signed = "refused"
			case r.Unsigned != "":
				signed = "unsigned"
			}
			row(
				r.Name, r.Kubernetes, size, r.Digest[:min(12, len(r.Digest))], signed, strings.Join(r.Clusters, ","),
				ago, from,
			)
		}
	})
}

// findRelease returns the release that is named by its document or by the beginning of its digest.
func findRelease(ctx context.Context, api *client.Client, name string) (wire.Release, error) {
	items, err := api.Releases(ctx)
	if err != nil {
		return wire.Release{}, err
	}
	var found []wire.Release
	for _, r := range items {
		if r.Name == name {
			return r, nil
		}
		if r.Name == "" && partSum.MatchString(name) && strings.HasPrefix(r.Digest, name) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return wire.Release{}, director.Errorf(director.KindNotFound, opRelease, "there is no release %q", name).
			WithHint("see what there is: directorctl release list")
	}
	return wire.Release{}, director.Errorf(
		director.KindConflict, opRelease, "%d imported releases begin with %s", len(found), name,
	).
		WithHint("give more digits")
}

func (a *importCommands) verifyReleaseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify NAME", Short: "Let the director read everything in a bundle and compare it with its release.yaml",
		Long: "Read everything in a bundle on the director and compare it with its release.yaml. It changes nothing. " +
			"NAME is a document, or the first eight or more\n" +
			"digits of the digest of a bundle that no document names.",
		Args: exact("NAME"), ValidArgsFunction: a.complete(0, releaseNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			r, err := findRelease(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			name := r.Name
			if name == "" {
				name = r.Digest
			}
			if r, err = api.VerifyRelease(cmd.Context(), name); err != nil {
				return err
			}
			if r.Refused != "" {
				return director.Errorf(director.KindInvalid, opRelease, "nothing is damaged, but %s", r.Refused)
			}
			say(a.out, "%s is whole: Kubernetes %s, digest %s\n", args[0], r.Kubernetes, r.Digest)
			return nil
		}),
	}
}

func (a *importCommands) deleteReleaseCommand() *cobra.Command {
	var options consent
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a release that nothing uses",
		Long: "Delete the document of a release, and its imported bundle unless another document names it too. " +
			"NAME is a document, or the first eight or more digits\n" +
			"of the digest of a bundle that no document names.",
		Args: exact("NAME"), ValidArgsFunction: a.complete(0, releaseNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			r, err := findRelease(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			it := imported{ref: model.Ref{Kind: model.KindRelease, Name: r.Name}, what: "bundle", id: r.Digest}
			if r.File != nil {
				it.here, it.id, it.size = true, r.File.Digest, r.File.Size
			}
			return a.deleteImported(cmd, api, options, it, api.DeleteReleaseFile)
		}),
	}
	options.flag(cmd, "delete without asking")
	return cmd
}

func (a *importCommands) pruneReleasesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "prune", Short: "Delete the imported bundles that nothing needs",
		Long: "Delete imported release bundles that no document and no unfinished plan names.",
	}
	return pruneCommand(a.app, cmd, func(
		ctx context.Context, api *client.Client, older time.Duration, dryRun bool,
	) ([]wire.ReleaseLeft, error) {
		p, err := api.PruneReleases(ctx, older, dryRun)
		return p.Items, err
	}, func(w io.Writer, items []wire.ReleaseLeft) {
		table(w, "NAME DIGEST SIZE", func(row func(...string)) {
			for _, i := range items {
				row(i.Name, i.Digest[:min(12, len(i.Digest))], amount(i.Size))
			}
		})
	}, func(items []wire.ReleaseLeft) int { return len(items) })
}
