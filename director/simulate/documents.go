package simulate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/model"
)

// standInImages are the images that inventories ask the tags of.
var standInImages = []string{"coredns", "etcd", "pause", "toolbox"}

// standInEtcd is the version of etcd that pretended nodes run.
const standInEtcd = "3.7.3"

// Documents reads the documents in files and directories. An image file or a release bundle that is not on this machine
// gets a substitute below dir, and notes say so: a simulation needs neither.
func Documents(ctx context.Context, dir string, paths []string) (docs []model.Document, notes []string, err error) {
	files, err := yamlFiles(paths)
	if err != nil {
		return nil, nil, err
	}
	var problems []director.Field
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, unreadable(err)
		}
		more, err := model.Parse(text, file)
		if e, ok := errors.AsType[*director.Error](err); ok {
			problems = append(problems, e.Fields...)
		}
		docs = append(docs, more...)
	}
	if err := director.Invalid("simulate.documents", "the documents cannot be read", problems); err != nil {
		return nil, nil, err
	}
	for i := range docs {
		note, err := standIn(ctx, dir, &docs[i])
		if err != nil {
			return nil, nil, err
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	return docs, notes, nil
}

func unreadable(err error) error {
	return director.Errorf(director.KindInvalid, "simulate.documents", "the documents cannot be read: %w", err).
		WithHint("name files or directories of documents")
}

// yamlFiles lists the files of documents, those of a directory by name.
func yamlFiles(paths []string) ([]string, error) {
	var files []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, unreadable(err)
		}
		if !info.IsDir() {
			files = append(files, p)
			continue
		}
		for _, suffix := range []string{"*.yaml", "*.yml", "*.json"} {
			found, err := filepath.Glob(filepath.Join(p, suffix))
			if err != nil {
				return nil, unreadable(err)
			}
			slices.Sort(found)
			files = append(files, found...)
		}
	}
	if len(paths) > 0 && len(files) == 0 {
		return nil, unreadable(fmt.Errorf("there is no .yaml, .yml or .json in %v", paths))
	}
	return files, nil
}

// standIn creates a substitute for a file that the document names and that does not exist here.
func standIn(ctx context.Context, dir string, d *model.Document) (note string, err error) {
	missing := func(path string) bool {
		_, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist)
	}
	switch {
	case d.Image != nil && missing(d.Image.Source):
		note = fmt.Sprintf(
			"%s: %s is not here; a stand-in takes its place", d.Ref(), cmp.Or(d.Image.Source, "the imported file"),
		)
		d.Image.Source, d.Image.SHA256, err = imageFile(filepath.Join(dir, "images"), d.Metadata.Name)
	case d.Director != nil && missing(d.Director.Image.Source):
		note = fmt.Sprintf(
			"%s: %s is not here; a stand-in takes its place", d.Ref(),
			cmp.Or(d.Director.Image.Source, "the imported file"),
		)
		im := &d.Director.Image
		im.Source, im.SHA256, err = imageFile(filepath.Join(dir, "images"), d.Metadata.Name)
	case d.Release != nil && (d.Release.Bundle == "" || missing(filepath.Join(d.Release.Bundle, bundle.DocumentName))):
		note = fmt.Sprintf(
			"%s: there is no bundle in %s; a stand-in takes its place", d.Ref(),
			cmp.Or(d.Release.Bundle, "the imported release"),
		)
		d.Release.Digest = ""
		d.Release.Bundle, err = Bundle(ctx, filepath.Join(dir, "bundles"), d.Metadata.Name, d.Release.Kubernetes)
	}
	if err != nil {
		err = &director.Error{
			Kind: director.KindInternal, Op: "simulate.stand_in",
			Msg: "a stand-in for " + d.Ref().String() + " cannot be made", Err: err,
			Hint: "check that " + dir + " is writable and has room",
		}
	}
	return note, err
}

func imageFile(dir, name string) (path, sum string, err error) {
	text := []byte("a stand-in for the node image " + name + "\n")
	digest := sha256.Sum256(text)
	path = filepath.Join(dir, name+".img")
	return path, hex.EncodeToString(digest[:]), errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, text, 0o600))
}

// Bundle makes a release bundle of empty images below dir and returns its directory.
func Bundle(ctx context.Context, dir, name, kubernetes string) (string, error) {
	dir = filepath.Join(dir, name)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	images, err := layout.Write(filepath.Join(dir, bundle.ImagesDir), empty.Index)
	if err != nil {
		return "", err
	}
	for _, image := range standInImages {
		err := images.AppendImage(
			empty.Image, layout.WithAnnotations(map[string]string{bundle.AnnotationRefName: image + ":v0.0.0"}),
		)
		if err != nil {
			return "", err
		}
	}
	return dir, bundle.Seal(ctx, dir, bundle.Release{
		Name: name, Kubernetes: kubernetes, Arch: "amd64", Components: map[string]string{"etcd": standInEtcd},
	})
}
