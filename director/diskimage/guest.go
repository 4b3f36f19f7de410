package diskimage

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
)

// Release is what an image says of the Kubernetes that it carries: its file /etc/kaas-release.
type Release struct {
	Kubernetes string // such as v1.37.2
	Containerd string
	Runc       string
	Arch       string
	Built      string // the hash of all that went into it
}

// ReleasePath is where an image says what it carries.
const ReleasePath = "/etc/kaas-release"

var version = regexp.MustCompile(`^v1\.[0-9]{1,4}\.[0-9]{1,4}$`)

// ParseRelease parses the text of ReleasePath, which also exists next to an image as kaas-release.json. It returns nil
// for anything else.
func ParseRelease(text []byte) *Release {
	var r struct {
		Kubernetes string `json:"kubernetes"`
		Containerd string `json:"containerd"`
		Runc       string `json:"runc"`
		Arch       string `json:"arch"`
		Built      string `json:"built_from"`
	}
	if json.Unmarshal(text, &r) != nil {
		return nil
	}
	if r.Kubernetes != "" && !strings.HasPrefix(r.Kubernetes, "v") {
		r.Kubernetes = "v" + r.Kubernetes
	}
	if !version.MatchString(r.Kubernetes) {
		return nil
	}
	return &Release{Kubernetes: r.Kubernetes, Containerd: r.Containerd, Runc: r.Runc, Arch: r.Arch, Built: r.Built}
}

const bootSignature = 0xaa55

// rootTypes are the GPT partition types that say for which CPU a root file system is, as their bytes lie on the disk.
var rootTypes = map[string]string{
	"e3bc684fcde8b14d96e7fbcaf984b709": "amd64", // 4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709
	"45b021b9f01dc341af444c6f280d3fae": "arm64", // B921B045-1DF0-41C3-AF44-4C6F280D3FAE
	"4095474497f2b2419af7d131d5f0458a": "i386",  // 44479540-F297-41B2-9AF7-D131D5F0458A
}

// guestInfo is what a disk tells.
type guestInfo struct {
	arch    string
	release *Release
}

// lookInto reads the boot sector, the partitions and /etc/kaas-release. What it cannot read it does not tell; only a
// disk without a boot sector is an error.
func lookInto(r io.ReaderAt, size int64) (guestInfo, error) {
	var g guestInfo
	boot := make([]byte, 512)
	if _, err := r.ReadAt(boot, 0); err != nil || binary.LittleEndian.Uint16(boot[510:]) != bootSignature {
		return g, errors.New("holds a disk without a boot sector")
	}
	for _, p := range partitions(r, boot) {
		if p.start <= 0 || p.length <= 0 || p.start > size-p.length {
			continue
		}
		if g.arch == "" {
			g.arch = rootTypes[p.kind]
		}
		if g.release != nil {
			continue
		}
		if e := openExt(r, p.start, p.length); e != nil {
			if text := e.file("etc", "kaas-release"); text != nil {
				g.release = ParseRelease(text)
			}
		}
	}
	return g, nil
}

type partition struct {
	kind          string // hex of the GPT type; empty for MBR
	start, length int64  // bytes
}

// partitions lists at most 128 partitions of a disk with sectors of 512 bytes.
func partitions(r io.ReaderAt, boot []byte) []partition {
	le := binary.LittleEndian
	var out []partition
	head := make([]byte, 512)
	if _, err := r.ReadAt(head, 512); err == nil && string(head[:8]) == "EFI PART" {
		at, count, size := le.Uint64(head[72:]), le.Uint32(head[80:]), le.Uint32(head[84:])
		if at > 1<<32 || size < 128 || size > 4096 {
			return nil
		}
		entry := make([]byte, 128)
		for i := range min(count, 128) {
			if _, err := r.ReadAt(entry, int64(at)*512+int64(i)*int64(size)); err != nil {
				return out
			}
			first, last := le.Uint64(entry[32:]), le.Uint64(entry[40:])
			if first == 0 || last < first || last > MaxVirtual/512 {
				continue
			}
			out = append(out, partition{hex.EncodeToString(entry[:16]), int64(first) * 512, int64(last-first+1) * 512})
		}
		return out
	}
	for i := range 4 {
		e := boot[446+16*i:]
		if e[4] != 0 {
			out = append(out, partition{start: int64(le.Uint32(e[8:])) * 512, length: int64(le.Uint32(e[12:])) * 512})
		}
	}
	return out
}
