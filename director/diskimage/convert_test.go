package diskimage_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/diskimage/diskimagetest"
)

func TestConvertRealFiles(t *testing.T) {
	t.Parallel()
	disk := diskimagetest.Node(t, "v1.37.2")
	new := diskimagetest.Convert(t, disk, "qcow2")
	tests := map[string]struct {
		from string
		to   diskimage.Output
		want string
	}{
		"raw":             {disk, diskimage.Output{Format: diskimage.QCOW2}, "qcow2 (compat 1.1)"},
		"qcow2 to old":    {new, diskimage.Output{Format: diskimage.QCOW2, Variant: "0.10"}, "qcow2 (compat 0.10)"},
		"qcow2 to raw":    {new, diskimage.Output{Format: diskimage.Raw}, "raw"},
		"qcow2 to stream": {new, diskimage.Output{Format: diskimage.VMDK}, "VMDK (streamOptimized)"},
		"qcow2 to sparse": {
			new,
			diskimage.Output{Format: diskimage.VMDK, Variant: diskimage.MonolithicSparse},
			"VMDK (monolithicSparse)",
		},
		"stream": {
			diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=streamOptimized"),
			diskimage.Output{Format: diskimage.QCOW2},
			"qcow2 (compat 1.1)",
		},
		"sparse": {
			diskimagetest.Convert(t, disk, "vmdk"),
			diskimage.Output{Format: diskimage.QCOW2, Variant: "0.10"},
			"qcow2 (compat 0.10)",
		},
		"the disk of OVAs": {
			diskimagetest.NodeOVA(t, disk), diskimage.Output{Format: diskimage.QCOW2}, "qcow2 (compat 1.1)",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info, err := diskimage.InspectFile(t.Context(), test.from)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			dst := filepath.Join(dir, "out")
			last := int64(0)
			err = diskimage.Converter{}.Convert(t.Context(), info, test.from, dst, test.to, func(done, _ int64) {
				if done < last {
					t.Errorf("progress went back from %d to %d", last, done)
				}
				last = done
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := diskimage.InspectFile(t.Context(), dst)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != test.want || got.Virtual != info.Virtual || last != 1000 {
				t.Errorf("got %s of %d bytes with progress %d, want %s", got, got.Virtual, last, test.want)
			}
			if got.Format != diskimage.VMDK && (got.Release == nil || got.Release.Kubernetes != "v1.37.2") {
				t.Errorf("the disk says %+v", got.Release)
			}
			only(t, dir, "out")
		})
	}
}

// only wants the names in the directory, and no others.
func only(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("left behind: %v, want %v", got, want)
	}
}

func TestConvertKeepsItsBounds(t *testing.T) {
	t.Parallel()
	disk := diskimagetest.Node(t, "v1.37.2")
	info, err := diskimage.InspectFile(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	qcow := diskimage.Output{Format: diskimage.QCOW2}
	fake := func(script string) string {
		path := filepath.Join(t.TempDir(), "qemu-img")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := map[string]struct {
		ctx  context.Context
		c    diskimage.Converter
		to   diskimage.Output
		kind director.Kind
		want string
	}{
		"length": {
			t.Context(),
			diskimage.Converter{},
			diskimage.Output{Format: diskimage.QCOW2, Most: 1 << 20},
			director.KindExhausted, "",
		},
		"memory": {
			t.Context(),
			diskimage.Converter{QemuImg: fake("ulimit -v >&2; exit 1"), Memory: 64 << 20},
			qcow,
			director.KindInvalid, "65536",
		},
		"cpu": {
			t.Context(),
			diskimage.Converter{QemuImg: fake("while :; do :; done"), CPU: time.Second},
			qcow,
			director.KindExhausted, "",
		},
		"time": {
			t.Context(),
			diskimage.Converter{QemuImg: fake("sleep 60 & wait"), Time: 50 * time.Millisecond},
			qcow,
			director.KindExhausted, "took longer",
		},
		"cancelled": {gone, diskimage.Converter{}, qcow, director.KindInternal, "context canceled"},
		"missing": {
			t.Context(),
			diskimage.Converter{QemuImg: "qemu-img-that-is-not-there"},
			qcow, director.KindUnavailable,
			"is missing",
		},
		"damaged": {
			t.Context(),
			diskimage.Converter{QemuImg: fake("echo 'qemu-img: error while reading: Invalid argument' >&2; exit 1")},
			qcow, director.KindInvalid, "Invalid argument",
		},
		"unknown": {
			t.Context(),
			diskimage.Converter{},
			diskimage.Output{Format: diskimage.QCOW2, Variant: "2"},
			director.KindInvalid, "not converted to",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			err := test.c.Convert(test.ctx, info, disk, filepath.Join(dir, "out"), test.to, nil)
			if err == nil || director.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v (%s), want %q (%s)", err, director.KindOf(err), test.want, test.kind)
			}
			only(t, dir)
		})
	}
}
