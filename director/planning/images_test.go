package planning

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/diskimage/diskimagetest"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/steps"
)

// sumOf returns the checksum of a file; none of what cannot be read.
func sumOf(t *testing.T, path string) string {
	t.Helper()
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return diskimagetest.SHA256(t, path)
}

// The pre-check looks into real images, and into nothing else.
func TestCheckImage(t *testing.T) {
	t.Parallel()
	disk := diskimagetest.Node(t, "v1.37.2")
	good := diskimagetest.Convert(t, disk, "qcow2")
	fifo, way := filepath.Join(t.TempDir(), "fifo"), filepath.Join(t.TempDir(), "way")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("/etc/passwd", way)); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		path  string
		edit  func(*planner.World)
		wants []string
	}{
		"good": {path: good},
		"another Kubernetes, and small disks": {good, func(w *planner.World) {
			w.Image.Image.Kubernetes = "v1.36.4"
			w.Cluster.Cluster.Masters.Disk = model.GiB / 2
			w.Cluster.Cluster.Workers = []model.WorkerPool{
				{VMSize: model.VMSize{Disk: 20 * model.GiB}}, {VMSize: model.VMSize{Disk: model.GiB / 4}},
			}
		}, []string{
			"Image/node: spec.kubernetes: the image carries v1.37.2",
			"Cluster/demo: spec.masters.disk: 512MiB are less", "Cluster/demo: spec.workers[1].disk: 256MiB",
		}},
		"another format": {
			diskimagetest.Convert(t, disk, "vmdk"), nil,
			[]string{"Image/node: spec.source: the file is VMDK (monolithicSparse), and back ends take qcow2"},
		},
		"another CPU": {
			diskimagetest.Convert(t, diskimagetest.Disk(t, diskimagetest.RootARM64, nil), "qcow2"), nil,
			[]string{"Image/node: spec.arch: the image is for arm64"},
		},
		"another checksum": {
			good, func(w *planner.World) { w.Image.Image.SHA256 = strings.Repeat("1", 64) },
			[]string{"Image/node: spec.sha256: the file has another checksum"},
		},
		"not there": {
			good, func(w *planner.World) { w.Image.Image.Source = "/nowhere/image" },
			[]string{"Image/node: spec.source: /nowhere/image does not exist"},
		},
		"elsewhere": {
			good, func(w *planner.World) { w.Image.Image.Source = "/etc/passwd" },
			[]string{"Image/node: spec.source: /etc/passwd is not below"},
		},
		"a FIFO": {
			fifo, func(w *planner.World) { w.Image.Image.SHA256 = strings.Repeat("1", 64) },
			[]string{"Image/node: spec.source: " + fifo + " is not a regular file"},
		},
		"a way out": {
			way, func(w *planner.World) { w.Image.Image.SHA256 = strings.Repeat("1", 64) },
			[]string{"Image/node: spec.source: " + way + " leads out of"},
		},
		"not imported": {
			good, func(w *planner.World) { w.Image.Image.Source = "" },
			[]string{"Image/node: spec.sha256: this director has no imported image"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ops := New(Config{
				Confine: confine.Rules{Images: confine.Dirs{"/nowhere", os.TempDir()}},
				Site: steps.Env{
					Sources: steps.Sources{Imported: func(string) string { return "/nowhere/imported" }},
				},
			})
			doc := func(kind model.Kind, name string) model.Stored {
				return model.Stored{Document: model.Document{Kind: kind, Metadata: model.Metadata{Name: name}}}
			}
			w := planner.World{
				Cluster: doc(model.KindCluster, "demo"), Image: doc(model.KindImage, "node"),
				Provider: doc(model.KindProvider, "lab"),
			}
			w.Provider.Provider = &model.Provider{Type: model.ProviderLibvirt}
			w.Cluster.Cluster = &model.Cluster{Masters: model.Masters{VMSize: model.VMSize{Disk: 30 * model.GiB}}}
			w.Image.Image = &model.Image{
				Source: test.path, SHA256: sumOf(t, test.path), Kubernetes: "v1.37.2", Arch: "amd64", Format: "qcow2",
			}
			if test.edit != nil {
				test.edit(&w)
			}
			var got []string
			problems, warnings := ops.prechecks().checkImage(t.Context(), w)
			for _, f := range problems {
				got = append(got, f.String())
			}
			if len(warnings) > 0 {
				t.Errorf("warnings: %v", warnings)
			}
			if len(got) != len(test.wants) {
				t.Fatal(cmp.Diff(test.wants, got))
			}
			for i, want := range test.wants {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("got %q, want %q", got[i], want)
				}
			}
		})
	}
}

// Nodes keep the containerd of their image, so a plan warns of one that the release was not tested with.
func TestContainerdOfTheImage(t *testing.T) {
	t.Parallel()
	carries := func(containerd string) diskimage.Info {
		return diskimage.Info{Release: &diskimage.Release{Kubernetes: "v1.37.2", Containerd: containerd}}
	}
	for name, tt := range map[string]struct {
		tested string
		info   diskimage.Info
		want   string
	}{
		"the same": {"v2.3.0", carries("v2.3.0"), ""},
		"another one": {
			"v2.3.0", carries("v2.1.4"), "Image/node carries containerd v2.1.4, and Release/r1 was tested with v2.3.0",
		},
		"the image is silent":  {"v2.3.0", carries(""), ""},
		"no image of a node":   {"v2.3.0", diskimage.Info{}, ""},
		"the bundle is silent": {"", carries("v2.1.4"), ""},
	} {
		var w planner.World
		w.Cluster.Cluster = &model.Cluster{}
		w.Image.Kind, w.Image.Metadata.Name = model.KindImage, "node"
		w.Release.Kind, w.Release.Metadata.Name = model.KindRelease, "r1"
		w.Bundle.Components = map[string]string{"containerd": tt.tested}
		got := strings.Join(unqualified(w, tt.info), "\n")
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
