package appliance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
)

// Given is what was said from outside of the VM.
type Given struct {
	Source     string // where it was found, for people; empty if nothing was
	Properties map[string]string
}

// mostSeed bounds each file of a seed.
const mostSeed = 1 << 20

// ReadGiven returns the first of these that there is: VMware's guest information (an OVF environment, or what
// cloud-init reads there), a CD with an OVF environment, and a seed for cloud-init (NoCloud, or a config drive).
// Errors: invalid if it cannot be read, which names the source.
func ReadGiven(ctx context.Context) (Given, error) {
	if given, err := fromVMware(ctx, "vmware-rpctool"); err != nil || given.Source != "" {
		return given, err
	}
	text, err := command(ctx, nil, "lsblk", "--json", "--bytes", "--list", "--output", "PATH,TYPE,SIZE,RO")
	if err != nil {
		return Given{}, err
	}
	blocks, err := parseBlocks(text)
	if err != nil {
		return Given{}, err
	}
	for _, b := range blocks {
		if b.Size == 0 || b.Size > 4<<30 || b.Type != "disk" && b.Type != "rom" && b.Type != "part" {
			continue
		}
		tags, err := probe(ctx, b.Path)
		if err != nil || (tags["TYPE"] != "iso9660" && tags["TYPE"] != "vfat") {
			continue // a drive without a CD cannot be read
		}
		given, err := fromDevice(b.Path, tags["TYPE"])
		if err != nil || given.Source != "" {
			return given, err
		}
	}
	return Given{}, nil
}

// fromVMware asks the hypervisor, if it is VMware's. program is its RPC tool.
func fromVMware(ctx context.Context, program string) (Given, error) {
	vendor, _ := os.ReadFile("/sys/class/dmi/id/sys_vendor")
	if !strings.HasPrefix(string(vendor), "VMware") {
		return Given{}, nil
	}
	return askVMware(ctx, program)
}

func askVMware(ctx context.Context, program string) (Given, error) {
	get := func(key string) string {
		out, err := command(ctx, nil, program, "info-get "+key)
		if err != nil {
			return "" // the tool fails for a key that is not there
		}
		return strings.TrimSpace(string(out))
	}
	for _, source := range []struct {
		name string
		read func() (map[string]string, error)
	}{
		{"guestinfo.ovfEnv", func() (map[string]string, error) { // a VM that was deployed with properties
			text := get("guestinfo.ovfEnv")
			if text == "" {
				return nil, nil
			}
			return ParseOVF([]byte(text))
		}},
		{"guestinfo.userdata", func() (map[string]string, error) { return ParseGuestinfo(get) }},
	} {
		if p, err := source.read(); len(p) > 0 || err != nil {
			return Given{Source: source.name, Properties: p}, err
		}
	}
	return Given{}, nil
}

// fromDevice mounts a file system read-only, and reads what is in it.
func fromDevice(path, kind string) (given Given, err error) {
	dir, err := os.MkdirTemp("/run", "director-seed-")
	if err != nil {
		return given, director.Errorf(director.KindInternal, "appliance.seed", "%w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	flags := uintptr(unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount(path, dir, kind, flags, ""); err != nil {
		return given, director.Errorf(
			director.KindInvalid, "appliance.seed", "the file system on %s cannot be read: %w", path, err,
		).WithHint("make it again, or detach it")
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	return FromDirectory(dir, path)
}

// FromDirectory reads the root directory of a CD or of a seed. name says where it is from. It follows no links out of
// the directory.
func FromDirectory(dir, name string) (Given, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Given{}, director.Errorf(director.KindInternal, "appliance.seed", "%w", err)
	}
	defer root.Close()
	if text, err := readSeed(root, "ovf-env.xml"); err != nil || text != nil {
		if err != nil {
			return Given{}, err
		}
		p, err := ParseOVF(text)
		return Given{Source: "ovf-env.xml on " + name, Properties: p}, err
	}
	for _, kind := range []struct {
		source string
		files  [3]string
	}{
		{"the config drive on " + name, [3]string{
			"openstack/latest/user_data", "openstack/latest/meta_data.json", "openstack/latest/network_data.json",
		}},
		{"the NoCloud seed on " + name, [3]string{"user-data", "meta-data", "network-config"}},
	} {
		var texts [3][]byte
		for i, file := range kind.files {
			if texts[i], err = readSeed(root, file); err != nil {
				return Given{}, err
			}
		}
		if texts[0] == nil && texts[1] == nil {
			continue
		}
		p, err := ParseSeed(Seed{
			UserData: texts[0], MetaData: texts[1], NetworkConfig: texts[2],
			OpenStack: filepath.Ext(kind.files[1]) == ".json",
		})
		return Given{Source: kind.source, Properties: p}, err
	}
	return Given{}, nil
}

// readSeed returns the content of a file, and nil if there is none.
func readSeed(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, seedError(name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostSeed+1))
	if err == nil && len(text) > mostSeed {
		err = fmt.Errorf("it is longer than %d bytes", mostSeed)
	}
	if err != nil {
		return nil, seedError(name, err)
	}
	if text == nil {
		text = []byte{}
	}
	return text, nil
}
