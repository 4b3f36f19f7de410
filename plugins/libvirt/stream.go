package libvirt

import (
	"context"
	"errors"
	"io"

	virt "libvirt.org/go/libvirt"
)

// source is content to upload.
type source struct {
	r        io.Reader
	size     int64
	offset   uint64           // in the volume
	progress func(done int64) // may be nil
}

// uploadStream sends the content to the volume.
func uploadStream(ctx context.Context, c *virt.Connect, v *virt.StorageVol, src source) error {
	stream, err := c.NewStream(0)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Free() }()
	if err := v.Upload(stream, src.offset, uint64(src.size), 0); err != nil {
		return err
	}
	abort := func(err error) error {
		_ = stream.Abort()
		return err
	}
	buffer := make([]byte, 256<<10)
	var done int64
	for {
		n, err := src.r.Read(buffer)
		for rest := buffer[:n]; len(rest) > 0; {
			sent, err := stream.Send(rest)
			if err != nil {
				return abort(err)
			}
			rest = rest[sent:]
		}
		done += int64(n)
		if src.progress != nil && n > 0 {
			src.progress(done)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return abort(err)
		}
	}
	return stream.Finish()
}

// tail reads the end of a volume.
func tail(c *virt.Connect, v *virt.StorageVol, maxBytes int) ([]byte, error) {
	info, err := v.GetInfoFlags(virt.STORAGE_VOL_GET_PHYSICAL)
	if err != nil {
		return nil, err
	}
	size := info.Allocation // physical, by the flag
	length := min(size, uint64(max(maxBytes, 0)))
	if length == 0 {
		return nil, nil
	}
	stream, err := c.NewStream(0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Free() }()
	if err := v.Download(stream, size-length, length, 0); err != nil {
		return nil, err
	}
	text := make([]byte, 0, length)
	buffer := make([]byte, 64<<10)
	for {
		n, err := stream.Recv(buffer)
		text = append(text, buffer[:max(n, 0)]...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_ = stream.Abort()
			return nil, err
		}
	}
	return text, stream.Finish()
}
