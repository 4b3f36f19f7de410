package hypervisortest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// newImage returns an image that is removed from the hypervisor after the case.
func (b bundle) newImage() (hypervisor.Imaging, hypervisor.ImageSpec) {
	b.Helper()
	imaging := capability[hypervisor.Imaging](b)
	if b.NewImage == nil {
		b.Skip("the subject has no image to bring")
	}
	s := b.NewImage(b.T)
	b.Cleanup(func() {
		x := b.Open(b.T)
		defer x.Close()
		imaging, _ := hypervisor.Capability[hypervisor.Imaging](x)
		if err := imaging.DeleteImage(context.WithoutCancel(b.ctx), s.Name); err != nil {
			b.Errorf("DeleteImage while tidying up: %v", err)
		}
	})
	return imaging, s
}

// broughtImage is newImage on the hypervisor.
func (b bundle) broughtImage() (hypervisor.Imaging, hypervisor.ImageSpec) {
	b.Helper()
	imaging, s := b.newImage()
	if err := imaging.EnsureImage(b.ctx, s, nil); err != nil {
		b.Fatalf("EnsureImage: %v", err)
	}
	return imaging, s
}

// withoutImage expects that no VM can be made from the image.
func (b bundle) withoutImage(image, call string) {
	b.Helper()
	s := b.spec("image")
	s.Image = image
	_, err := b.b.Ensure(b.ctx, s)
	b.wantKind(err, director.KindNotFound, call)
}

// boots makes a VM from the image.
func (b bundle) boots(image string) hypervisor.VM {
	b.Helper()
	s := b.spec("image")
	s.Image = image
	return b.ready(b.b, s)
}

func imagesIdempotent(b bundle) {
	imaging, s := b.newImage()
	var last, total int64
	progress := func(done, all int64) {
		if done < last {
			b.Errorf("progress went back from %d to %d", last, done)
		}
		last, total = done, all
	}
	if err := imaging.EnsureImage(b.ctx, s, progress); err != nil {
		b.Fatalf("EnsureImage: %v", err)
	}
	info, err := os.Stat(s.Path)
	if err != nil {
		b.Fatal(err)
	}
	if last != total || total < info.Size() {
		b.Errorf("progress ended at %d of %d for %d bytes", last, total, info.Size())
	}
	if err := imaging.EnsureImage(b.ctx, s, nil); err != nil {
		b.Fatalf("second EnsureImage: %v", err)
	}
	b.boots(s.Name)
}

func imagesWrongChecksum(b bundle) {
	imaging, s := b.newImage()
	right := s.SHA256
	wrong := sha256.Sum256([]byte("something else"))
	s.SHA256 = hex.EncodeToString(wrong[:])
	b.wantKind(imaging.EnsureImage(b.ctx, s, nil), director.KindInvalid, "EnsureImage with a wrong checksum")
	s.SHA256 = "xyz"
	b.wantKind(imaging.EnsureImage(b.ctx, s, nil), director.KindInvalid, "EnsureImage without a checksum")
	s.SHA256 = right
	path := s.Path
	s.Path = filepath.Join(b.TempDir(), "missing.qcow2")
	b.wantKind(imaging.EnsureImage(b.ctx, s, nil), director.KindNotFound, "EnsureImage without a file")
	s.Path = path
	b.withoutImage(s.Name, "Ensure with a refused image")
	if err := imaging.EnsureImage(b.ctx, s, nil); err != nil {
		b.Errorf("EnsureImage with the right checksum: %v", err)
	}
}

func imagesOtherChecksum(b bundle) {
	imaging, s := b.broughtImage()
	other := b.NewImage(b.T)
	if other.SHA256 == s.SHA256 {
		b.Fatal("the subject gave the same image twice")
	}
	other.Name = s.Name
	b.wantKind(imaging.EnsureImage(b.ctx, other, nil), director.KindConflict, "EnsureImage with another content")
	b.boots(s.Name)
}

func imagesPartial(b bundle) {
	imaging, s := b.newImage()
	if b.PartImage == nil {
		b.Skip("the subject cannot leave an upload half done")
	}
	b.PartImage(b.T, s)
	b.withoutImage(s.Name, "Ensure with half an image")
	if err := imaging.EnsureImage(b.ctx, s, nil); err != nil {
		b.Fatalf("EnsureImage: %v", err)
	}
	b.boots(s.Name)
}

func imagesInUse(b bundle) {
	imaging, s := b.broughtImage()
	vm := b.boots(s.Name)
	b.wantKind(imaging.DeleteImage(b.ctx, s.Name), director.KindConflict, "DeleteImage in use")
	b.delete(vm.ID, hypervisor.DeleteOptions{Owner: vm.Stamp})
	for range 2 {
		if err := imaging.DeleteImage(b.ctx, s.Name); err != nil {
			b.Errorf("DeleteImage: %v", err)
		}
	}
	b.withoutImage(s.Name, "Ensure with a deleted image")
}
