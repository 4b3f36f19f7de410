//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// boot is what the supervisor tells the guest's first process.
type boot struct {
	Guest   guest
	Name    string
	Devices map[string]string
	Groups  []group
	Console string // the terminal, as the supervisor sees it
}

// shielded are settings of the machine's kernel that nodes set: a guest has its own of each, which has no effect. All
// others outside of net cannot be written.
var shielded = map[string]string{
	"kernel/panic": "10", "kernel/panic_on_oops": "1", "vm/overcommit_memory": "1", "vm/panic_on_oom": "0",
	"vm/max_map_count":              "65530",
	"fs/inotify/max_user_instances": "8192", "fs/inotify/max_user_watches": "524288",
}

// notNeeded are units of the node image that look after devices of a VM.
var notNeeded = []string{
	"systemd-repart.service", "systemd-growfs-root.service", "systemd-remount-fs.service", "qemu-guest-agent.service",
}

// becomeInit makes the guest's file systems and becomes its init. It is the first process of the guest's namespaces.
func becomeInit() error {
	runtime.LockOSThread() // the namespace of control groups is a thread's
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var b boot
	if err := json.Unmarshal(text, &b); err != nil {
		return fmt.Errorf("what the supervisor says: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return unix.Sethostname([]byte(b.Name)) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		b.mountKernel, b.mountDevices, b.mountGroups, b.shield, b.enterRoot, mountData, dropAbilities,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	args := []string{"/sbin/init", "systemd.unified_cgroup_hierarchy=0", "systemd.legacy_systemd_cgroup_controller=1"}
	for _, unit := range notNeeded {
		args = append(args, "systemd.mask="+unit)
	}
	return unix.Exec("/sbin/init", args, []string{
		"container=director-lab", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=vt220",
	})
}

func (b *boot) root(names ...string) string {
	return b.Guest.path(append([]string{"root"}, names...)...)
}

type mount struct {
	what, where, kind string
	flags             uintptr
	options           string
}

func (b *boot) mounts(all ...mount) error {
	for _, m := range all {
		where := b.root(m.where)
		if err := unix.Mount(m.what, where, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", where, err)
		}
	}
	return nil
}

func (b *boot) mountKernel() error {
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return b.mounts(
		mount{"proc", "proc", "proc", plain, ""},
		mount{"sysfs", "sys", "sysfs", plain, ""},
		mount{"tmpfs", "run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		mount{"tmpfs", "dev", "tmpfs", unix.MS_NOSUID, "mode=0755"},
	)
}

// mountDevices makes the devices that a VM with the same disks would have.
func (b *boot) mountDevices() error {
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{
		{"null", 1, 3},
		{"zero", 1, 5},
		{"full", 1, 7},
		{"random", 1, 8},
		{"urandom", 1, 9},
		{"kmsg", 1, 11},
		{"tty", 5, 0},
		{"fuse", 10, 229},
		{"net/tun", 10, 200},
	} {
		if err := b.device(d.name, unix.S_IFCHR|0o666, unix.Mkdev(d.major, d.minor)); err != nil {
			return err
		}
	}
	letter := byte('b')
	for _, serial := range slices.Sorted(maps.Keys(b.Devices)) {
		var st unix.Stat_t
		if err := unix.Stat(b.Devices[serial], &st); err != nil {
			return err
		}
		name := "vd" + string(letter)
		letter++
		link := b.root("dev/disk/by-id/virtio-" + serial)
		if err := errors.Join(
			b.device(name, unix.S_IFBLK|0o660, st.Rdev), os.MkdirAll(filepath.Dir(link), 0o755),
			os.Symlink("../../"+name, link),
		); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		"ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(to, b.root("dev", link)); err != nil {
			return err
		}
	}
	for _, dir := range []string{"pts", "shm"} {
		if err := os.Mkdir(b.root("dev", dir), 0o755); err != nil {
			return err
		}
	}
	return b.mounts(
		mount{
			"devpts", "dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5",
		},
		mount{"tmpfs", "dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	)
}

func (b *boot) device(name string, mode uint32, number uint64) error {
	path := b.root("dev", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := unix.Mknod(path, mode, int(number)); err != nil {
		return fmt.Errorf("device %s: %w", path, err)
	}
	return os.Chmod(path, os.FileMode(mode&0o777))
}

// mountGroups mounts the machine's control groups, of which the guest sees its own only.
//
// kubeadm refuses nodes whose control groups are of the first version, and has no option for it that the director could
// be given. It believes the first file system of the second version that is mounted, and the list of controllers there,
// so there is one.
func (b *boot) mountGroups() error {
	const second = "run/cgroup2"
	if err := os.Mkdir(b.root(second), 0o755); err != nil {
		return err
	}
	controllers := b.root("run/cgroup2.controllers")
	if err := os.WriteFile(controllers, []byte("cpuset cpu io memory hugetlb pids\n"), 0o444); err != nil {
		return err
	}
	if err := b.mounts(
		mount{"cgroup2", second, "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		mount{controllers, second + "/cgroup.controllers", "", unix.MS_BIND, ""},
		mount{"tmpfs", "sys/fs/cgroup", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "mode=0755"},
	); err != nil {
		return err
	}
	for _, g := range b.Groups {
		where := b.root("sys/fs/cgroup", strings.TrimPrefix(g.Controllers, "name="))
		if err := os.Mkdir(where, 0o755); err != nil {
			return err
		}
		if err := g.mount(where); err != nil {
			return err
		}
	}
	return nil
}

// shield keeps the guest from what is the whole machine's.
func (b *boot) shield() error {
	top := b.root("run/sysctl")
	var own []mount
	values := maps.Clone(shielded)
	values["kernel/random/boot_id"] = uuid.NewString() // a start of its own
	for name, value := range values {
		file := filepath.Join(top, name)
		if _, err := os.Stat(b.root("proc/sys", name)); err != nil {
			continue
		}
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(value+"\n"), 0o644),
		); err != nil {
			return err
		}
		own = append(own, mount{file, "proc/sys/" + name, "", unix.MS_BIND, ""})
	}
	closed := []mount{}
	for _, name := range []string{
		"proc/sys/kernel", "proc/sys/vm", "proc/sys/fs", "proc/sys/dev", "proc/sysrq-trigger",
	} {
		if _, err := os.Stat(b.root(name)); err != nil {
			continue // this kernel has no such thing
		}
		closed = append(closed, mount{
			b.root(name), name, "", unix.MS_BIND, "",
		}, mount{"", name, "", unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY, ""})
	}
	// That nothing can be written to it keeps udev from starting, and has systemd take adapters as they are.
	closed = append(closed, mount{"", "sys", "", unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY, ""})
	return b.mounts(append(closed, own...)...)
}

// enterRoot makes the guest's root the only file system there is.
func (b *boot) enterRoot() error {
	if err := b.giveConsole(); err != nil {
		return err
	}
	if err := unix.Chdir(b.root()); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	// as init does where it is not in a container; kubelet's mounts have to reach the pods
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// giveConsole makes the terminal whose other end the supervisor logs the guest's console.
func (b *boot) giveConsole() error {
	path := b.root("dev/console")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount(b.Console, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	for std := range 3 {
		if err := unix.Dup2(fd, std); err != nil {
			return err
		}
	}
	return unix.Close(fd)
}

// mountData mounts what the guest's fstab has on devices, which systemd leaves alone in containers.
func mountData() error {
	text, err := os.ReadFile("/etc/fstab")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.HasPrefix(f[0], "/dev/") {
			continue
		}
		if _, err := os.Stat(f[0]); err != nil {
			continue // the VM has this disk no more
		}
		if _, err := command("mount", f[0], f[1]); err != nil {
			return err
		}
	}
	return nil
}

// dropAbilities takes the clock and the modules of the machine's kernel out of the guest's reach.
func dropAbilities() error {
	for _, c := range []uintptr{unix.CAP_SYS_TIME, unix.CAP_SYS_MODULE} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	return nil
}
