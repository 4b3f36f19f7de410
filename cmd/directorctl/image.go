package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *importCommands) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Import, list, convert and delete node images",
		Long: "Bring node images to the director and look after them. A document of the kind Image names an " +
			"imported image by its checksum, and clusters name\n" +
			"the document.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, Args: exact(),
	}
	cmd.AddCommand(
		a.importImageCommand(), a.listImagesCommand(), a.convertImageCommand(), a.deleteImageCommand(),
		a.pruneImagesCommand(),
	)
	return cmd
}

func compatFlag(cmd *cobra.Command, compat *string) {
	cmd.Flags().StringVar(
		compat, "compat", "",
		"version of qcow2 that the image shall have: 1.1, or 0.10 for hosts that know no newer one",
	)
	_ = cmd.RegisterFlagCompletionFunc(
		"compat", cobra.FixedCompletions([]string{"0.10", "1.1"}, cobra.ShellCompDirectiveNoFileComp),
	)
}

func badCompat(cmd *cobra.Command, compat string) error {
	if compat != "" && compat != "0.10" && compat != "1.1" {
		return usage(cmd, "%q is no version of qcow2: 0.10 or 1.1", compat)
	}
	return nil
}

func imageNames(ctx context.Context, c *client.Client, _ []string) []string {
	return documentNames(ctx, c, model.KindImage)
}

func (a *importCommands) importImageCommand() *cobra.Command {
	var in wanted
	cmd := &cobra.Command{
		Use: "import FILE [NAME]", Short: "Bring an image file to the director",
		Long: "Check an image file (qcow2, raw, VMDK or OVA, whatever its name), send it to the director, which " +
			"checks it again and converts it to qcow2 if\n" +
			"need be, and let the document Image/NAME name it. Without NAME no document changes, and one that could " +
			"be applied is printed.\n\n" +
			"If the document exists, it changes to the new file. VMs that were created from the old file stay as " +
			"they are.\n\n" +
			"To continue an interrupted import, run the same command again. If there is a file FILE.sha256 next to " +
			"the image, its checksum is compared.\n\n" +
			"The signature FILE.sha256.minisig is uploaded with the image. An image without one is refused, unless " +
			"--unsigned says in words why it is used.",
		Example: "  directorctl image import node.qcow2 debian12-k8s-1.37\n  directorctl image import foreign.ova " +
			"debian13-k8s-1.37 --kubernetes v1.37.2 --compat 0.10",
		Args: between(1, "FILE", "NAME"),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			in.sha256 = strings.ToLower(in.sha256)
			if in.sha256 != "" && !wholeSum.MatchString(in.sha256) {
				return usage(cmd, "--sha256 is not 64 hexadecimal digits, as sha256sum prints them")
			}
			if in.kubernetes != "" && !strings.HasPrefix(in.kubernetes, "v") {
				in.kubernetes = "v" + in.kubernetes
			}
			return badCompat(cmd, in.compat)
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			in.path, in.document = args[0], ""
			if len(args) > 1 {
				in.document = args[1]
			}
			return a.importImage(cmd.Context(), api, in)
		}),
	}
	cmd.Flags().StringVar(
		&in.kubernetes, "kubernetes", "",
		"version that the image carries, if it does not say so itself in /etc/kaas-release",
	)
	cmd.Flags().StringVar(&in.sha256, "sha256", "", "checksum that the file must have")
	cmd.Flags().StringVar(
		&in.unsigned, "unsigned", "", "why the image is used without a signature, in three words or more",
	)
	compatFlag(cmd, &in.compat)
	return cmd
}

var (
	wholeSum = regexp.MustCompile(`^[0-9a-f]{64}$`)
	partSum  = regexp.MustCompile(`^[0-9a-f]{8,64}$`)
)

func (a *importCommands) importImage(ctx context.Context, api *client.Client, in wanted) error {
	show := a.progress()
	defer show.end()
	f, err := in.open(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	defer f.Close()
	if in.document != "" { // what is wrong with it is known before anything is sent
		d := imageDocument(in.document, in.unsigned, wire.ImageFile{
			SHA256: strings.Repeat("0", 64), Kubernetes: cmp.Or(f.kubernetes, "v1.0.0"), Arch: "amd64",
		})
		if _, err := model.Validate(&d); err != nil {
			return err
		}
	}
	if err := f.sum(ctx, in.sha256, show); err != nil {
		return stopped(ctx, err)
	}
	var signed director.Signed
	if in.unsigned == "" {
		if signed, err = signedBeside(in.path); err != nil {
			return director.Errorf(
				director.KindInvalid, "directorctl.image", "the signature of %s cannot be read: %w", in.path, err,
			)
		}
	}
	q := wire.UploadRequest{
		SHA256: f.sha256, Size: f.info.Size, Name: f.name, Format: string(f.info.Format), Compat: in.compat,
		Checksum: signed.Text, Signature: signed.Signature, Unsigned: in.unsigned,
	}
	if err := show.send(ctx, api, q, f); err != nil {
		return stopped(ctx, err)
	}
	file, err := api.ImportImage(ctx, wire.ImageImport{
		Upload: f.sha256, Kubernetes: f.kubernetes, Compat: in.compat, Checksum: signed.Text,
		Signature: signed.Signature, Unsigned: in.unsigned,
	}, show.job)
	if err != nil {
		return stopped(ctx, err)
	}
	show.end()
	return a.nameImage(ctx, api, in.document, in.unsigned, file)
}

func imageDocument(name, unsigned string, f wire.ImageFile) model.Document {
	return model.Document{
		Kind: model.KindImage, Metadata: model.Metadata{Name: name},
		Image: &model.Image{
			Format: "qcow2", SHA256: f.SHA256, Kubernetes: f.Kubernetes, Arch: f.Arch, Unsigned: unsigned,
		},
	}
}

// nameImage lets the document name the file; without a name it prints one. unsigned is why the file is used without a
// signature.
func (a *importCommands) nameImage(
	ctx context.Context, api *client.Client, name, unsigned string, f wire.ImageFile,
) error {
	what := fmt.Sprintf(
		"qcow2 (compat %s) of %s with Kubernetes %s, SHA-256 %s", f.Compat, amount(f.Size), f.Kubernetes, f.SHA256,
	)
	if name == "" {
		say(a.err, "Imported %s. No document names it yet; this one would:\n", what)
		text, err := model.Encode(imageDocument("node-"+strings.TrimPrefix(f.Kubernetes, "v"), unsigned, f))
		if err != nil {
			return err
		}
		_, err = a.out.Write(text)
		return err
	}
	return a.nameImported(ctx, api, what, imageDocument(name, unsigned, f), func(d *model.Document) {
		d.Image.Source, d.Image.SHA256, d.Image.Kubernetes, d.Image.Arch, d.Image.Unsigned = "", f.SHA256, f.Kubernetes,
			f.Arch, unsigned // its clean-up stays
	})
}

func (a *importCommands) listImagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the images and the imported files", Args: exact(),
		Long: "List the documents of images, and then the imported files that none names. OLD counts earlier files " +
			"of a document that are left on providers;\n" +
			"directorctl image prune deletes what nothing needs.",
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.Images, error) {
		items, err := api.Images(ctx)
		return wire.Images{Items: items}, err
	}, func(items wire.Images) { printImages(a.out, items.Items, time.Now()) })
}

func printImages(w io.Writer, items []wire.Image, now time.Time) {
	table(w, "NAME KUBERNETES QCOW2 SIZE DISK SHA256 SIGNED CLUSTERS PROVIDERS OLD AGE FILE", func(
		row func(...string),
	) {
		for _, i := range items {
			compat, size, disk, ago, file := "", "", "", "", i.Source
			if f := i.File; f != nil {
				compat, size, disk, ago, file = f.Compat, amount(f.Size), amount(f.Virtual), age(now.Sub(f.ImportedAt)),
					cmp.Or(f.OriginName, "imported")
			} else if file == "" {
				file = "missing"
			}
			old := ""
			if i.Old > 0 {
				old = fmt.Sprint(i.Old)
			}
			row(
				i.Name, i.Kubernetes, compat, size, disk, i.SHA256[:min(12, len(i.SHA256))], signedBy(i),
				strings.Join(i.Clusters, ","), strings.Join(i.Providers, ","), old, ago, file,
			)
		}
	})
}

// signedBy says who signed the image; -o json has the words, too.
func signedBy(i wire.Image) string {
	switch {
	case i.Refused != "":
		return "refused"
	case i.Unsigned != "":
		return "unsigned"
	}
	return i.SignedBy
}

// find returns the image that is named by its document or by the beginning of its checksum.
func findImage(ctx context.Context, api *client.Client, name string) (wire.Image, error) {
	items, err := api.Images(ctx)
	if err != nil {
		return wire.Image{}, err
	}
	var found []wire.Image
	for _, i := range items {
		if i.Name == name {
			return i, nil
		}
		if i.File != nil && partSum.MatchString(name) && strings.HasPrefix(i.SHA256, name) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return wire.Image{}, director.Errorf(director.KindNotFound, "directorctl.image", "there is no image %q", name).
			WithHint("see what there is: directorctl image list")
	}
	return wire.Image{}, director.Errorf(
		director.KindConflict, "directorctl.image", "%d images begin with %s", len(found), name,
	).
		WithHint("name one by its document")
}

func (a *importCommands) convertImageCommand() *cobra.Command {
	var compat, as string
	cmd := &cobra.Command{
		Use: "convert NAME", Short: "Make an image in another version of qcow2 of an imported one",
		Long: "Make an image in another version of qcow2 of an imported one, which stays. NAME is a document, or " +
			"the first eight or more digits of a checksum.\n" +
			"The document --as names the new image; it may be the same document, which then moves on.",
		Example: "  directorctl image convert debian12-k8s-1.37 --compat 0.10 --as debian12-k8s-1.37-old-hosts",
		Args:    exact("NAME"), ValidArgsFunction: a.complete(0, imageNames),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if compat == "" {
				return usage(cmd, "--compat is missing")
			}
			return badCompat(cmd, compat)
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			i, err := findImage(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			if i.File == nil {
				return director.Errorf(
					director.KindInvalid, "directorctl.image", "the file of %s was not imported", args[0],
				).
					WithHint("import it first: directorctl image import FILE %s --compat %s", args[0], compat)
			}
			show := a.progress()
			f, err := api.ConvertImage(cmd.Context(), i.SHA256, compat, show.job)
			show.end()
			if err != nil {
				return stopped(cmd.Context(), err)
			}
			return a.nameImage(cmd.Context(), api, as, i.Unsigned, f)
		}),
	}
	compatFlag(cmd, &compat)
	cmd.Flags().StringVar(&as, "as", "", "document that names the new image")
	return cmd
}

func (a *importCommands) deleteImageCommand() *cobra.Command {
	var options consent
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete an image that nothing uses",
		Long: "Delete the document of an image, take the image off the providers, and delete its imported file " +
			"unless another document names it too.\n" +
			"NAME is a document, or the first eight or more digits of the checksum of a file that no document names.",
		Args: exact("NAME"), ValidArgsFunction: a.complete(0, imageNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			i, err := findImage(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			it := imported{ref: model.Ref{Kind: model.KindImage, Name: i.Name}, what: "file", id: i.SHA256}
			if i.File != nil {
				it.here, it.size = true, i.File.Size
			}
			return a.deleteImported(cmd, api, options, it, api.DeleteImageFile)
		}),
	}
	options.flag(cmd, "delete without asking")
	return cmd
}

func (a *importCommands) pruneImagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "prune", Short: "Delete the images that nothing needs",
		Long: "Delete images on providers that no document, no VM and no unfinished plan names, and imported files " +
			"on the director of which the same is true.",
	}
	return pruneCommand(a.app, cmd, func(
		ctx context.Context, api *client.Client, older time.Duration, dryRun bool,
	) ([]wire.ImageLeft, error) {
		p, err := api.PruneImages(ctx, older, dryRun)
		return p.Items, err
	}, printPruned, func(items []wire.ImageLeft) int {
		gone := 0
		for _, i := range items {
			if i.Kept == "" {
				gone++
			} else {
				say(a.err, "%s on %s stays: %s\n", i.Name, i.Provider, plain(i.Kept))
			}
		}
		return gone
	})
}

func printPruned(w io.Writer, items []wire.ImageLeft) {
	table(w, "WHERE IMAGE SHA256 SIZE KEPT", func(row func(...string)) {
		for _, i := range items {
			size := ""
			if i.Size > 0 {
				size = amount(i.Size)
			}
			row(cmp.Or(i.Provider, "director"), i.Name, i.SHA256[:min(12, len(i.SHA256))], size, i.Kept)
		}
	})
}
