//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kdomanski/iso9660"
	"golang.org/x/sys/unix"
)

// box is what the machine gives to a guest: the disks of its VM as devices, its root mounted, and a place among the
// machine's control groups.
type box struct {
	guest
	machine *machine
	storage *exec.Cmd
	devices map[string]string // by the disk's serial: the loop device, but for the root disk
	open    []*os.File        // they keep the loop devices
	mounted bool
	groups  []group
}

// newBox makes all that. What it returns has to be removed, with an error too.
func newBox(g guest, m *machine) (*box, error) {
	b := &box{guest: g, machine: m, devices: map[string]string{}}
	for _, step := range []func() error{b.exportDisks, b.attachDisks, b.mountRoot, b.fillRoot, b.makeGroups} {
		if err := step(); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (b *box) image(d disk) string { return b.path(d.Node) }

// exportDisks has qemu-storage-daemon show each disk as a file.
func (b *box) exportDisks() error {
	var args []string
	for _, n := range b.machine.Nodes {
		args = append(args, "--blockdev", n)
	}
	for i, d := range b.machine.writable() {
		if err := os.WriteFile(b.image(d), nil, 0o600); err != nil {
			return err
		}
		args = append(
			args, "--export",
			fmt.Sprintf("type=fuse,id=disk%d,node-name=%s,mountpoint=%s,writable=on", i, d.Node, b.image(d)),
		)
	}
	b.storage = exec.CommandContext(
		context.Background(), "qemu-storage-daemon", append(args, "--pidfile", b.path("storage.pid"))...,
	)
	b.storage.Stdout, b.storage.Stderr = os.Stdout, os.Stderr
	b.storage.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	_ = os.Remove(b.path("storage.pid"))
	if err := b.storage.Start(); err != nil {
		return err
	}
	shown := func() bool { // the file is written when all exports are there
		_, err := os.Stat(b.path("storage.pid"))
		return err == nil
	}
	if !within(30*time.Second, shown) {
		return errors.New("qemu-storage-daemon does not show the disks")
	}
	return nil
}

func (b *box) attachDisks() error {
	for _, d := range b.machine.writable()[1:] {
		dev, err := command("losetup", "--find", "--show", b.image(d))
		if err != nil {
			return err
		}
		b.devices[d.Serial] = dev
		f, err := os.Open(dev)
		b.open = append(b.open, f)
		// as soon as this process does not have it open any more, however it ends
		_, detach := command("losetup", "--detach", dev)
		if err = errors.Join(err, detach); err != nil {
			return err
		}
	}
	return nil
}

// mountRoot mounts the second partition of the root disk, after it has been given all room there is.
func (b *box) mountRoot() error {
	file := b.image(b.machine.root())
	if _, err := commandWith(", +\n", "sfdisk", "--quiet", "--force", "--no-reread", "-N", "2", file); err != nil {
		return err
	}
	text, err := command("sfdisk", "--json", file)
	if err != nil {
		return err
	}
	var v struct {
		PartitionTable struct {
			SectorSize int64 `json:"sectorsize"`
			Partitions []struct{ Start, Size int64 }
		} `json:"partitiontable"`
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return err
	}
	if len(v.PartitionTable.Partitions) < 2 {
		return fmt.Errorf("the root disk has no second partition: %s", text)
	}
	if err := os.MkdirAll(b.path("root"), 0o755); err != nil {
		return err
	}
	p, unit := v.PartitionTable.Partitions[1], v.PartitionTable.SectorSize
	dev, err := command(
		"losetup", "--find", "--show", "--offset", strconv.FormatInt(p.Start*unit, 10), "--sizelimit",
		strconv.FormatInt(p.Size*unit, 10), file,
	)
	if err != nil {
		return err
	}
	if _, err = command("resize2fs", dev); err != nil { // which wants a check first, if there is anything to do
		if _, err = command("e2fsck", "-f", "-p", dev); err == nil || exitCode(err) == 1 { // 1: errors corrected
			_, err = command("resize2fs", dev)
		}
	}
	if err == nil {
		_, err = command("mount", "-t", "ext4", "-o", "noatime", dev, b.path("root"))
		b.mounted = err == nil
	}
	_, detach := command("losetup", "--detach", dev) // as soon as it is not mounted any more
	return errors.Join(err, detach)
}

// fillRoot puts into the root what a container needs besides what is in the image.
func (b *box) fillRoot() error {
	var release unix.Utsname
	if err := unix.Uname(&release); err != nil {
		return err
	}
	files := map[string]string{
		// The modules that nodes ask for are part of the machine's kernel.
		"lib/modules/" + unix.ByteSliceToString(release.Release[:]) +
			"/modules.builtin": "kernel/fs/overlayfs/overlay.ko\nkernel/net/bridge/br_netfilter.ko\n",
		// The machine's controllers may be in hierarchies of the first version, which kubelet refuses unless it is
		// told.
		"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--fail-cgroupv1=false\n",
		// The clock is the machine's.
		"etc/default/chrony": "DAEMON_OPTS=\"-F 0 -x\"\n",
		"etc/systemd/system/chrony.service.d/container.conf": "[Unit]\nConditionCapability=\n",
	}
	if err := b.readSeed(files); err != nil {
		return err
	}
	if !mayProtect() {
		files["usr/local/sbin/runc"] = runc
	}
	for name, text := range files {
		name = b.path("root", name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644),
		); err != nil {
			return err
		}
		if strings.HasPrefix(text, "#!") {
			if err := os.Chmod(name, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// runc is instead of runc where the machine does not allow to protect processes from being killed for want of memory:
// with their score it would not start them.
const runc = `#!/bin/sh
for word; do
    [ "$before" != --bundle ] || sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$word/config.json"
    before=$word
done
exec /usr/sbin/runc "$@"
`

func mayProtect() bool {
	may, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	return err == nil && may == 1
}

// readSeed adds the files of the seed, at the place where cloud-init looks for them first.
func (b *box) readSeed(files map[string]string) error {
	d, found := b.machine.seed()
	if !found {
		return nil
	}
	f, err := os.Open(d.File)
	if err != nil {
		return err
	}
	defer f.Close()
	image, err := iso9660.OpenImage(f)
	if err != nil {
		return err
	}
	top, err := image.RootDir()
	if err != nil {
		return err
	}
	all, err := top.GetChildren()
	if err != nil {
		return err
	}
	for _, e := range all {
		text, err := io.ReadAll(e.Reader())
		if err != nil {
			return err
		}
		files["var/lib/cloud/seed/nocloud/"+strings.ToLower(e.Name())] = string(text)
	}
	return nil
}

// start starts the guest's init, and returns when it has its adapters and its place among the control groups.
func (b *box) start(console string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(boot{
		Guest: b.guest, Name: b.machine.Name, Devices: b.devices, Groups: b.groups, Console: console,
	})
	if err != nil {
		return nil, err
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	cmd := exec.CommandContext(context.Background(), self, "__init")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ready, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
	}
	if err := cmd.Start(); err != nil {
		tell.Close()
		return nil, err
	}
	err = errors.Join(b.join(cmd.Process.Pid), b.connect(cmd.Process.Pid))
	if err == nil {
		_, err = tell.Write(spec)
	}
	if err = errors.Join(err, tell.Close()); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return cmd, nil
}

// connect puts one end of a cable into the bridge that libvirt has put the tap device into, and the other, with the
// VM's address, into the guest.
func (b *box) connect(pid int) error {
	for i, a := range b.machine.Adapters {
		bridge, err := os.Readlink("/sys/class/net/" + a.Tap + "/master")
		if err != nil {
			return err
		}
		outer, inner := fmt.Sprintf("g%s%d", b.short(), i), fmt.Sprintf("eth%d", i)
		_, _ = command("ip", "link", "delete", outer)
		for _, args := range []string{
			"link add " + outer + " type veth peer name " + inner + " address " + a.MAC + " netns " + strconv.Itoa(pid),
			"link set " + outer + " master " + filepath.Base(bridge) + " up",
		} {
			if _, err := command("ip", strings.Fields(args)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// short is the beginning of the VM's id.
func (b *box) short() string { return b.machine.UUID[:8] }

// remove takes away what newBox has made, when the guest has ended.
func (b *box) remove() error {
	var errs []error
	for i := range b.machine.Adapters {
		_, _ = command("ip", "link", "delete", fmt.Sprintf("g%s%d", b.short(), i)) // it may have gone with the guest
	}
	if b.mounted {
		_, err := command("umount", b.path("root"))
		errs = append(errs, err)
	}
	for _, f := range b.open {
		errs = append(errs, f.Close())
	}
	if b.storage != nil && b.storage.Process != nil {
		errs = append(errs, b.storage.Process.Signal(syscall.SIGTERM), b.storage.Wait())
	}
	errs = append(errs, b.removeGroups())
	return errors.Join(errs...)
}

// group is a control group of the guest's, in one of the machine's hierarchies.
type group struct {
	Controllers string // as in /proc/self/cgroup: "cpu,cpuacct", "name=systemd"
	Mount       string // of the hierarchy
	Path        string // in it
}

func (g group) dir() string { return filepath.Join(g.Mount, g.Path) }

// makeGroups makes a control group for the guest in each hierarchy, below the one that the lab itself is in.
func (b *box) makeGroups() error {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 || fields[1] == "" { // the second version: it has no controllers here
			continue
		}
		b.groups = append(b.groups, group{
			Controllers: fields[1], Mount: b.path("cgroup", fields[1]),
			Path: filepath.Join(fields[2], "director-lab-"+b.machine.UUID),
		})
	}
	if len(b.groups) == 0 {
		return errors.New(
			"the machine has no control groups of the first version: guests that are containers were not tried on it",
		)
	}
	for _, g := range b.groups {
		if err := os.MkdirAll(g.Mount, 0o700); err != nil {
			return err
		}
		if err := g.mount(g.Mount); err != nil {
			return err
		}
		if err := removeGroup(g.dir()); err != nil { // of a lab that was killed
			return err
		}
		if err := os.Mkdir(g.dir(), 0o755); err != nil {
			return err
		}
		if err := g.limit(b.machine.Memory); err != nil {
			return err
		}
	}
	return nil
}

func (g group) mount(where string) error {
	options := g.Controllers
	if strings.HasPrefix(options, "name=") {
		options = "none," + options
	}
	if err := unix.Mount("cgroup", where, "cgroup", 0, options); err != nil {
		return fmt.Errorf("control groups of %s: %w", g.Controllers, err)
	}
	return nil
}

func (g group) limit(mebibytes int) error {
	write := func(name, value string) error {
		return os.WriteFile(filepath.Join(g.dir(), name), []byte(value), 0o644)
	}
	switch g.Controllers {
	case "memory":
		return write("memory.limit_in_bytes", strconv.Itoa(mebibytes)+"M")
	case "cpuset": // a new group has none of either, and takes no process before it has
		var errs []error
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile(filepath.Join(filepath.Dir(g.dir()), name))
			errs = append(errs, err, write(name, string(all)))
		}
		return errors.Join(errs...)
	}
	return nil
}

// join puts the guest's first process into its groups.
func (b *box) join(pid int) error {
	for _, g := range b.groups {
		if err := os.WriteFile(filepath.Join(g.dir(), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (b *box) removeGroups() error {
	var errs []error
	for _, g := range b.groups {
		errs = append(errs, removeGroup(g.dir()))
	}
	return errors.Join(errs...)
}

// removeGroup removes a control group with those below it, as soon as the last process has left.
func removeGroup(dir string) error {
	var all []string
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	for _, group := range slices.Backward(all) {
		var err error
		within(5*time.Second, func() bool {
			err = unix.Rmdir(group)
			return !errors.Is(err, unix.EBUSY)
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("control group %s: %w", group, err)
		}
	}
	return nil
}
