package planning

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planner"
)

// checkImage looks at the file of the cluster's image: there, whole, what its document says, and small enough for the
// disks. A director that simulates takes any file. What is no reason to refuse the plan is a warning.
func (s prechecks) checkImage(ctx context.Context, w planner.World) (problems []director.Field, warnings []string) {
	im := w.Image.Image
	one := func(field, hint, format string, args ...any) ([]director.Field, []string) {
		return []director.Field{imageField(w, field, hint, format, args...)}, nil
	}
	path, err := s.imageFile(*im)
	sum := ""
	if err == nil {
		sum, err = s.sums.of(ctx, path)
	}
	switch {
	case errors.Is(err, confine.ErrOutside):
		return one(
			"source", "move it there, or name its directory in imageDirs of the director's configuration", "%s", err,
		)
	case errors.Is(err, confine.ErrNotRegular):
		return one("source", "name the image's file", "%s is not a regular file", im.Source)
	case errors.Is(err, os.ErrNotExist) && im.Source == "":
		return one(
			"sha256",
			"import it: directorctl image import FILE "+w.Image.Metadata.Name+"; or name a file in spec.source",
			"this director has no imported image with this checksum",
		)
	case errors.Is(err, os.ErrNotExist):
		return one(
			"source", "copy the image there, or correct the path", "%s does not exist on the director", im.Source,
		)
	case err != nil:
		return one("source", "", "%s", err)
	case sum != im.SHA256:
		return one(
			"sha256", "the file is damaged or another one: copy it again, or correct the checksum: sha256sum "+path,
			"the file has another checksum",
		)
	case slices.Contains(s.ProviderTypes, model.ProviderSim):
		return nil, nil // a rehearsal takes stand-ins
	}
	info, err := diskimage.InspectFile(ctx, path)
	if err != nil {
		return one("source", director.HintOf(err), "%s", director.MessageOf(err))
	}
	return append(fitsDocument(w, info), fits(w, info.Virtual)...), unqualified(w, info)
}

// unqualified compares the container runtime of the image, which nodes keep, with the one that the release was tested
// with.
func unqualified(w planner.World, info diskimage.Info) []string {
	tested := w.Bundle.Components["containerd"]
	if w.Cluster.Cluster == nil || info.Release == nil || info.Release.Containerd == "" || tested == "" ||
		info.Release.Containerd == tested {
		return nil
	}
	return []string{fmt.Sprintf(
		"%s carries containerd %s, and %s was tested with %s: name in spec.image of the cluster an image that was "+
			"built of that release",
		w.Image.Ref(), info.Release.Containerd, w.Release.Ref(), tested,
	)}
}

// imageField is what is wrong with a field of the cluster's image.
func imageField(w planner.World, field, hint, format string, args ...any) director.Field {
	if w.Cluster.Director != nil {
		field = "image." + field
	}
	return director.Field{
		Path: w.Image.Ref().String() + ": spec." + field, Msg: fmt.Sprintf(format, args...), Hint: hint,
	}
}

// fitsDocument compares what the file says of itself with what the document says of it.
func fitsDocument(w planner.World, info diskimage.Info) []director.Field {
	var out []director.Field
	wrong := func(field, hint, format string, args ...any) {
		out = append(out, imageField(w, field, hint, format, args...))
	}
	im := w.Image.Image
	if info.Format != diskimage.QCOW2 {
		wrong(
			"source", "import it, which converts it: directorctl image import FILE "+w.Image.Metadata.Name,
			"the file is %s, and back ends take qcow2", info,
		)
	}
	if info.Arch != "" && info.Arch != im.Arch {
		wrong("arch", "name an image for "+im.Arch, "the image is for %s", info.Arch)
	}
	switch {
	case info.Release == nil:
	case w.Cluster.Director != nil:
		wrong("sha256", "name the root disk of an appliance, director.qcow2", "it is a node image, with Kubernetes %s",
			info.Release.Kubernetes)
	case info.Release.Kubernetes != im.Kubernetes:
		wrong("kubernetes", "correct it, or name another image", "the image carries %s", info.Release.Kubernetes)
	}
	return out
}

// fits compares the disks of the nodes with that of the image, which they begin as a copy of.
func fits(w planner.World, virtual int64) []director.Field {
	var out []director.Field
	small := func(path string, disk model.Size) {
		if int64(disk) < virtual {
			out = append(out, director.Field{
				Path: w.Cluster.Ref().String() + ": spec." + path,
				Msg:  fmt.Sprintf("%s are less than the disk of %s has, %s", disk, w.Image.Ref(), model.Size(virtual)),
				Hint: "at least " + model.Size(virtual).String(),
			})
		}
	}
	c := w.Cluster.Cluster
	if d := w.Cluster.Director; d != nil {
		small("disk", d.Disk)
		return out
	}
	small("masters.disk", c.Masters.Disk)
	for i, p := range c.Workers {
		small(fmt.Sprintf("workers[%d].disk", i), p.Disk)
	}
	return out
}

// imageFile returns where the file of the image is, with no link left to follow.
func (s prechecks) imageFile(im model.Image) (string, error) {
	path := s.Site.ImagePath(im)
	if im.Source == "" {
		return path, nil // imported: the director's own directory
	}
	return s.Confine.Images.Find(path)
}
