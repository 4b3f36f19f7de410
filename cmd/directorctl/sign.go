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
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/signature"
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
	var keyFile, passwordFile, public, kubernetes string
	cmd := &cobra.Command{
		Use: "sign PATH", Short: "Sign a release bundle or a node image", Args: exact("PATH"),
		Long: "Sign the release bundle in the directory PATH or the node image PATH, in the format of minisign. " +
			"Everything is checked first. Of a bundle\n" +
			"release.yaml is signed, in release.yaml.minisig; of an image PATH.sha256, in PATH.sha256.minisig.",
		Example: "  directorctl sign k8s-1.37.1 --key release.key\n  directorctl sign node.qcow2 --key release.key",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if keyFile == "" {
				return usage(cmd, "--key is missing")
			}
			if kubernetes != "" && !strings.HasPrefix(kubernetes, "v") {
				kubernetes = "v" + kubernetes
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := signature.ReadSigner(keyFile, func() (director.Secret, error) {
				return a.password(passwordFile, "Password of the key: ")
			})
			if err != nil {
				return err
			}
			s, err := a.signable(cmd.Context(), args[0], kubernetes)
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
	cmd.Flags().StringVar(&kubernetes, "kubernetes", "", "version that an image carries, if it does not say so itself")
	return cmd
}

func (a *accountCommands) verifyCommand() *cobra.Command {
	var trusted []string
	var kubernetes string
	cmd := &cobra.Command{
		Use: "verify PATH", Short: "Check the signature of a release bundle or a node image, and all that it covers",
		Args: exact("PATH"),
		Long: "Check that the release bundle in the directory PATH or the node image PATH is signed with one of the " +
			"keys, and that every file is what was signed.\n" +
			"No director is asked.",
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
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, problems := signature.ReadKeys("--key", trusted)
			if err := director.Invalid(opSign, "the keys are wrong", problems); err != nil {
				return err
			}
			s, err := a.signable(cmd.Context(), args[0], kubernetes)
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
	cmd.Flags().StringVar(&kubernetes, "kubernetes", "", "version that an image carries, if it does not say so itself")
	return cmd
}

// signable is what can be signed.
type signable struct {
	path    string // of the text
	text    []byte
	write   bool // the text is not there yet
	subject signature.Subject
}

// signable checks a bundle or an image as a whole.
func (a *accountCommands) signable(ctx context.Context, path, kubernetes string) (signable, error) {
	info, err := os.Stat(path)
	if err != nil {
		return signable{}, director.Errorf(director.KindInvalid, opSign, "%s cannot be read: %w", path, err)
	}
	if filepath.Base(path) == rootdisk.ManifestName {
		return a.signableAppliance(ctx, path)
	}
	if !info.IsDir() {
		return a.signableImage(ctx, path, kubernetes)
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
	defer f.Close()
	if f.kubernetes == "" {
		return signable{}, director.Errorf(
			director.KindInvalid, opSign, "%s does not say which Kubernetes it carries", path,
		).
			WithHint("say it: --kubernetes v1.37.2")
	}
	show := a.progress()
	defer show.end()
	if err := f.sum(ctx, "", show); err != nil {
		return signable{}, err
	}
	s := signable{
		path:    path + ".sha256",
		subject: signature.Subject{Kind: signature.KindImage, Kubernetes: f.kubernetes, Arch: "amd64"},
	}
	if s.text, err = signature.Read(s.path); err != nil {
		return signable{}, err
	}
	if s.write = s.text == nil; s.write {
		s.text = []byte(f.sha256 + "  " + f.name + "\n")
	}
	sum, err := signature.Sum(s.text)
	if err == nil && sum != f.sha256 {
		err = director.Errorf(
			director.KindInvalid, opSign, "%s has the SHA-256 %s, and not the one in %s", path, f.sha256, s.path,
		)
	}
	return s, err
}

// signableAppliance checks the root next to the appliance.yaml of an upgrade.
func (a *accountCommands) signableAppliance(ctx context.Context, path string) (signable, error) {
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

// replace writes a file whole or not at all.
func replace(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(
			director.Errorf(director.KindInvalid, opSign, "%s cannot be written: %w", path, err), os.Remove(tmp.Name()),
		)
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
