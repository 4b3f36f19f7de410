package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/signature"
	"github.com/director-kaas/kaas/director/whole"
)

const opSign = "directorctl.sign"

func (a *accountCommands) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "key", Short: "Make a key that signs release bundles and node images", Args: exact(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var passwordFile string
	var open bool
	generate := &cobra.Command{
		Use: "generate FILE", Short: "Make a key", Args: exact("FILE"),
		Long: "Write a new private key to FILE and its public key to FILE.pub, in the format of minisign. The line " +
			"that is printed goes into trustedKeys of the\n" +
			"director's configuration. Keep the private key away from the director.",
		Example: "  directorctl key generate release.key",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if open && passwordFile != "" {
				return usage(cmd, "--password-file and --no-password exclude one another")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			var password director.Secret
			if !open {
				var err error
				if password, err = a.newPassword(passwordFile); err != nil {
					return err
				}
			}
			key, err := signature.Generate()
			if err != nil {
				return err
			}
			if err := key.Write(args[0], password); err != nil {
				return err
			}
			sayLine(a.out, key.Public())
			return nil
		},
	}
	generate.Flags().StringVar(
		&passwordFile, "password-file", "",
		"file that holds the password of the key; - is the standard input (default: ask)",
	)
	generate.Flags().BoolVar(&open, "no-password", false, "protect the key by the mode of its file alone")
	cmd.AddCommand(generate)
	return cmd
}

// newPassword reads a password, twice if a person writes it.
func (a *accountCommands) newPassword(file string) (director.Secret, error) {
	password, err := a.password(file, "Password of the key: ")
	if err != nil || file != "" || !a.inIsTerminal() {
		return password, err
	}
	again, err := a.password("", "Password again: ")
	if err == nil && again != password {
		err = director.Errorf(director.KindInvalid, opSign, "the two passwords differ")
	}
	return password, err
}

func (a *accountCommands) signCommand() *cobra.Command {
	var keyFile, passwordFile, public string
	var says claim
	cmd := &cobra.Command{
		Use: "sign PATH", Short: "Sign a release bundle, a node image or an appliance", Args: exact("PATH"),
		Long: "Sign the release bundle in the directory PATH, or the disk PATH of a node image or an appliance, in " +
			"the format of minisign. Everything is checked\n" +
			"first. Of a bundle release.yaml is signed, in release.yaml.minisig; of a disk PATH.sha256, in " +
			"PATH.sha256.minisig; of an upgrade of the\n" +
			"appliance its appliance.yaml.",
		Example: "  directorctl sign k8s-1.37.1 --key release.key\n  directorctl sign node.qcow2 --key release.key\n" +
			"  directorctl sign director.ova --key release.key --appliance v1.2.0",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if keyFile == "" {
				return usage(cmd, "--key is missing")
			}
			return says.check(cmd)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := signature.ReadSigner(keyFile, func() (director.Secret, error) {
				return a.password(passwordFile, "Password of the key: ")
			})
			if err != nil {
				return err
			}
			s, err := a.signable(cmd.Context(), args[0], says)
			if err != nil {
				return stopped(cmd.Context(), err)
			}
			sig, err := key.Sign(s.text, s.subject)
			if err == nil && s.write {
				err = replace(s.path, s.text)
			}
			if err == nil {
				err = replace(s.path+signature.Suffix, sig)
			}
			if err == nil && public != "" {
				var text []byte
				if text, err = key.PublicFile(); err == nil {
					err = replace(public, text)
				}
			}
			if err != nil {
				return err
			}
			say(a.out, "%s%s: %s\n", s.path, signature.Suffix, s.subject.Comment())
			return nil
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "file of the private key (directorctl key generate, or minisign -G)")
	cmd.Flags().StringVar(
		&passwordFile, "password-file", "",
		"file that holds the password of the key; - is the standard input (default: ask)",
	)
	cmd.Flags().StringVar(&public, "public-key", "", "file that the public key is written to")
	says.flags(cmd)
	return cmd
}

func (a *accountCommands) verifyCommand() *cobra.Command {
	var trusted []string
	var says claim
	cmd := &cobra.Command{
		Use: "verify PATH", Args: exact("PATH"),
		Short: "Check the signature of a release bundle, a node image or an appliance, and all that it covers",
		Long: "Check that the release bundle in the directory PATH, or the disk PATH of a node image or an " +
			"appliance, is signed with one of the keys, and that\n" +
			"every file is what was signed. No director is asked.",
		Example: "  directorctl verify k8s-1.37.1 --key release.key.pub\n  directorctl verify node.qcow2 --key RWS...",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if len(trusted) == 0 {
				return usage(cmd, "--key is missing")
			}
			for i, k := range trusted {
				if _, err := os.Stat(k); err == nil {
					trusted[i], _ = filepath.Abs(k)
				}
			}
			return says.check(cmd)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, problems := signature.ReadKeys("--key", trusted)
			if err := director.Invalid(opSign, "the keys are wrong", problems); err != nil {
				return err
			}
			s, err := a.signable(cmd.Context(), args[0], says)
			if err != nil {
				return stopped(cmd.Context(), err)
			}
			sig, err := signature.Read(s.path + signature.Suffix)
			if err == nil && sig == nil {
				err = director.Errorf(
					director.KindInvalid, opSign, "%s is not signed: there is no %s", args[0], s.path+signature.Suffix,
				)
			}
			if err != nil {
				return err
			}
			id, err := keys.Check(s.text, sig, s.subject)
			if err != nil {
				return err
			}
			say(a.out, "%s is signed with the key %s: %s\n", args[0], id, s.subject.Comment())
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&trusted, "key", nil, "public key, or a file that holds one; may be repeated")
	says.flags(cmd)
	return cmd
}

// claim is what the command line says of a disk that does not say it itself.
type claim struct{ kubernetes, appliance string }

func (c *claim) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.kubernetes, "kubernetes", "", "version that an image carries, if it does not say so itself")
	f.StringVar(&c.appliance, "appliance", "", "version of the director whose appliance the disk is")
}

func (c *claim) check(cmd *cobra.Command) error {
	if c.kubernetes != "" && c.appliance != "" {
		return usage(cmd, "--kubernetes and --appliance exclude one another")
	}
	if c.kubernetes != "" && !strings.HasPrefix(c.kubernetes, "v") {
		c.kubernetes = "v" + c.kubernetes
	}
	return nil
}

// signable is what can be signed.
type signable struct {
	path    string // of the text
	text    []byte
	write   bool // the text is not there yet
	subject signature.Subject
}

// signable checks a bundle, an image or an appliance as a whole.
func (a *accountCommands) signable(ctx context.Context, path string, says claim) (signable, error) {
	info, err := os.Stat(path)
	if err != nil {
		return signable{}, director.Errorf(director.KindInvalid, opSign, "%s cannot be read: %w", path, err)
	}
	if filepath.Base(path) == rootdisk.ManifestName {
		return a.signableUpgrade(ctx, path)
	}
	if says.appliance != "" && info.Mode().IsRegular() {
		f, err := os.Open(path)
		if err != nil {
			return signable{}, director.Errorf(director.KindInvalid, opSign, "%s cannot be read: %w", path, err)
		}
		disk := &imageFile{File: f, name: filepath.Base(path), info: diskimage.Info{Size: info.Size()}}
		return a.signableDisk(ctx, disk, rootdisk.Subject(says.appliance))
	}
	if !info.IsDir() {
		return a.signableImage(ctx, path, says.kubernetes)
	}
	b, err := bundle.Open(path)
	if err == nil {
		err = b.Verify(ctx)
	}
	if err != nil {
		return signable{}, err
	}
	r := b.Release()
	return signable{
		path: filepath.Join(path, bundle.DocumentName), text: b.Text(),
		subject: signature.Subject{Kind: signature.KindRelease, Name: r.Name, Kubernetes: r.Kubernetes, Arch: r.Arch},
	}, nil
}

func (a *accountCommands) signableImage(ctx context.Context, path, kubernetes string) (signable, error) {
	f, err := wanted{path: path, kubernetes: kubernetes}.open(ctx)
	if err != nil {
		return signable{}, err
	}
	if f.kubernetes == "" {
		err := director.Errorf(director.KindInvalid, opSign, "%s does not say which Kubernetes it carries", path).
			WithHint("give it: --kubernetes v1.37.2, or --appliance v1.2.0 if it is a director's disk")
		return signable{}, errors.Join(err, f.Close())
	}
	subject := signature.Subject{Kind: signature.KindImage, Kubernetes: f.kubernetes, Arch: "amd64"}
	return a.signableDisk(ctx, f, subject)
}

// signableDisk closes the file.
func (a *accountCommands) signableDisk(ctx context.Context, f *imageFile, of signature.Subject) (signable, error) {
	defer f.Close()
	show := a.progress()
	defer show.end()
	if err := f.sum(ctx, "", show); err != nil {
		return signable{}, err
	}
	s := signable{path: f.Name() + ".sha256", subject: of}
	var err error
	if s.text, err = signature.Read(s.path); err != nil {
		return signable{}, err
	}
	if s.write = s.text == nil; s.write {
		s.text = []byte(f.sha256 + "  " + f.name + "\n")
	}
	sum, err := signature.Sum(s.text)
	if err == nil && sum != f.sha256 {
		err = director.Errorf(
			director.KindInvalid, opSign, "%s has the SHA-256 %s, and not the one in %s", f.Name(), f.sha256, s.path,
		)
	}
	return s, err
}

// signableUpgrade checks the root next to the appliance.yaml of an upgrade.
func (a *accountCommands) signableUpgrade(ctx context.Context, path string) (signable, error) {
	text, err := signature.Read(path)
	if err != nil {
		return signable{}, director.Errorf(director.KindInvalid, opSign, "%s cannot be read: %w", path, err)
	}
	m, err := rootdisk.ParseManifest(text)
	if err != nil {
		return signable{}, err
	}
	f, err := os.Open(filepath.Join(filepath.Dir(path), rootdisk.RootName))
	if err != nil {
		return signable{}, director.Errorf(director.KindInvalid, opSign, "the root is not next to %s: %w", path, err)
	}
	defer f.Close()
	show := a.progress()
	defer show.end()
	err = rootdisk.Compressed(m, f).CopyTo(ctx, io.Discard, func(done int64) {
		show.at("Checking "+rootdisk.RootName, done, m.Size, true)
	})
	return signable{path: path, text: text, subject: rootdisk.Subject(m.Version)}, err
}

// replace writes a file that everybody can read.
func replace(path string, text []byte) error {
	if err := whole.Write(path, text, 0o644); err != nil {
		return director.Errorf(director.KindInvalid, opSign, "%s cannot be written: %w", path, err)
	}
	return nil
}

// signedBeside reads the signed text of an image and its signature from the files next to it.
func signedBeside(path string) (director.Signed, error) {
	sig, err := signature.Read(path + ".sha256" + signature.Suffix)
	if err != nil || sig == nil {
		return director.Signed{}, err
	}
	text, err := signature.Read(path + ".sha256")
	return director.Signed{Text: string(text), Signature: string(sig)}, err
}
