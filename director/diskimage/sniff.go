package diskimage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/director-kaas/kaas/director"
)

// SniffLength is how many bytes of the beginning Sniff looks at: with so many, and the true size, it tells the format
// of a file that has not wholly arrived.
const SniffLength = 64 << 10

// foreign are formats that are known so that they can be refused by name.
var foreign = []struct {
	at         int
	magic      string
	name, hint string
}{
	{0, "\x1f\x8b", "compressed by gzip", "unpack it first: gunzip FILE"},
	{0, "\xfd7zXZ\x00", "compressed by xz", "unpack it first: unxz FILE"},
	{0, "\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it first: unzstd FILE"},
	{0, "BZh", "compressed by bzip2", "unpack it first: bunzip2 FILE"},
	{0, "PK\x03\x04", "a ZIP archive", "unpack it first"},
	{0, "7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first"},
	{0, "vhdxfile", "a VHDX disk", "convert it first: qemu-img convert -f vhdx -O qcow2 OLD NEW"},
	{0, "conectix", "a VHD disk", "convert it first: qemu-img convert -f vpc -O qcow2 OLD NEW"},
	{0x40, "\x7f\x10\xda\xbe", "a VDI disk", "convert it first: qemu-img convert -f vdi -O qcow2 OLD NEW"},
	{0, "COWD", "a VMDK disk of an old ESX", "export it as OVA, or convert it with vmkfstools"},
	{
		0, "# Disk DescriptorFile", "the description of a VMDK disk whose data lies in other files",
		"export the VM as OVA, or convert it into one file: qemu-img convert -f vmdk -O qcow2 OLD NEW",
	},
	{0, "LUKS\xba\xbe", "encrypted with LUKS", "give an image that is not encrypted"},
	{0, "QED\x00", "a QED disk", "convert it first: qemu-img convert -f qed -O qcow2 OLD NEW"},
	{0, "\x7fELF", "a program", hintFormat},
	{0x8001, "CD001", "an ISO 9660 file system", "give the image of an installed disk, not of an installation medium"},
}

// Sniff tells the format of a file of that size by its content. r need hold no more than the first SniffLength bytes.
// Errors: invalid if the format is not one of those that are read.
func Sniff(name string, r io.ReaderAt, size int64) (Format, error) {
	f := file{name: name, r: r, size: size}
	if size < 512 {
		return "", f.bad(hintFormat, "is not a disk image: it has %d bytes", size)
	}
	head := make([]byte, min(size, SniffLength))
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", director.Errorf(director.KindUnavailable, opInspect, "%s cannot be read: %w", name, err)
	}
	head = head[:n]
	if n < 512 {
		return "", f.cut("its beginning is missing")
	}
	for _, x := range foreign {
		if len(head) >= x.at+len(x.magic) && string(head[x.at:x.at+len(x.magic)]) == x.magic {
			return "", f.bad(x.hint, "is %s", x.name)
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte(qcow2Magic)):
		return QCOW2, nil
	case bytes.HasPrefix(head, []byte(vmdkMagic)):
		return VMDK, nil
	case string(head[257:262]) == "ustar":
		if bytes.Contains(bytes.ToLower(head[:100]), []byte(".ovf\x00")) {
			return OVA, nil
		}
		return "", f.bad("an OVA begins with its .ovf file", "is a tar archive and not an OVA")
	case binary.LittleEndian.Uint16(head[510:]) == bootSignature:
		if size%512 != 0 {
			return "", f.cut("a raw disk has whole sectors of 512 bytes")
		}
		return Raw, nil
	}
	return "", f.bad(hintFormat, "is not a disk image of a known format")
}
