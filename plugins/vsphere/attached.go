package vsphere

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// AttachedDisks implements hypervisor.DiskTeller.
func (b *dataDisks) AttachedDisks(ctx context.Context, id hypervisor.ID) ([]hypervisor.AttachedDisk, error) {
	const op = "vsphere.attached_disks"
	p, m, err := b.get(ctx, op, id)
	if err != nil {
		return nil, err
	}
	out, err := b.attached(ctx, p, m)
	return out, b.translate(ctx, op, "VM "+m.name, b.forget(err))
}

// attached are the disks of the machine but the one that came with the image; of one that was adopted, that too.
func (b *dataDisks) attached(ctx context.Context, p *place, m *machine) ([]hypervisor.AttachedDisk, error) {
	all, err := devices(ctx, p, m)
	if err != nil {
		return nil, err
	}
	var out []hypervisor.AttachedDisk
	for _, d := range all {
		disk, ok := d.(*types.VirtualDisk)
		if !ok || isRoot(all, disk) && !m.adopted() && m.stamp() != (director.Stamp{}) {
			continue
		}
		a := hypervisor.AttachedDisk{Name: fileOf(disk), Size: max(disk.CapacityInBytes, disk.CapacityInKB<<10)}
		for _, name := range strings.Fields(m.extra[keyDisks]) {
			whose, serial := listed(m.stamp(), name)
			if strings.EqualFold(uuidOf(disk), diskUUID(whose, serial)) ||
				strings.HasSuffix(a.Name, "] "+path.Join(dataDir, dataName(whose, serial))) {
				a.Stamp, a.Serial = whose, serial
			}
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(x, y hypervisor.AttachedDisk) int { return cmp.Compare(x.Name, y.Name) })
	return out, nil
}

// A label is a file next to the data disk: its name says what the disk was for, for those who only see a list of files,
// and its text too.
var labelFile = regexp.MustCompile(`^([^.]+)\.([^.]+)\.([^.]+)\.kept\.(.*)\.txt$`)

type label struct {
	file, serial, text string
}

// labels are those of the data disks whose names begin with prefix, by the disks' files.
func (b *dataDisks) labels(ctx context.Context, op string, p *place, prefix string) (map[string]label, error) {
	out := map[string]label{}
	for _, store := range p.dataStores() {
		files, err := b.texts(ctx, op, p, store, prefix)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			name := f.GetFileInfo().Path
			if m := labelFile.FindStringSubmatch(name); m != nil {
				disk := dataName(director.Stamp{Director: m[1], Machine: m[2]}, m[3])
				out[store.Path(path.Join(dataDir, disk))] = label{store.Path(path.Join(dataDir, name)), m[3], m[4]}
			}
		}
	}
	return out, nil
}

// texts lists the text files next to the data disks whose names begin with prefix.
func (b *dataDisks) texts(
	ctx context.Context, op string, p *place, store *object.Datastore, prefix string,
) ([]types.BaseFileInfo, error) {
	return b.browse(ctx, op, p, store, types.HostDatastoreBrowserSearchSpec{MatchPattern: []string{prefix + "*.txt"}})
}

// label labels the data disks that stay when the machine goes: its own, and those that it took over.
func (b *dataDisks) label(ctx context.Context, op string, p *place, o hypervisor.DeleteOptions, m *machine) error {
	if o.Label == (hypervisor.DiskLabel{}) {
		return nil
	}
	owners := map[director.Stamp]bool{o.Owner: !o.DataDisks}
	for _, name := range strings.Fields(m.extra[keyDisks]) {
		if whose, _ := listed(o.Owner, name); whose != o.Owner {
			owners[whose] = true
		}
	}
	for owner, stays := range owners {
		if !stays {
			continue
		}
		prefix := owner.Director + "." + owner.Machine + "."
		disks, err := b.disks(ctx, op, p, prefix+"*.vmdk")
		if err != nil {
			return err
		}
		old, err := b.labels(ctx, op, p, prefix)
		if err != nil {
			return err
		}
		for _, k := range disks {
			want := strings.TrimSuffix(k.file, ".vmdk") + ".kept." + o.Label.Text() + ".txt"
			if old[k.file].file == want {
				continue
			}
			if err := b.writeLabel(ctx, k, want, o.Label); err != nil {
				return b.translate(ctx, op, "file "+want, err)
			}
			if was := old[k.file].file; was != "" {
				if err := b.deleteFile(ctx, op, p, was); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *dataDisks) writeLabel(ctx context.Context, k kept, file string, l hypervisor.DiskLabel) error {
	text := fmt.Sprintf("%s is the data disk of node %s, pool %s, of cluster %s. The node is gone, and its data "+
		"disk was kept.\n"+
		"Attach it to another node or delete it by the director %s: directorctl disks list\n", k.file, l.Node, l.Pool,
		l.Cluster, k.stamp.Director)
	return writeText(ctx, k.store, file, text)
}

// writeText writes a text file of the datastore, "[datastore] dir/name.txt".
func writeText(ctx context.Context, store *object.Datastore, file, text string) error {
	var at object.DatastorePath
	at.FromString(file)
	put := soap.DefaultUpload
	put.ContentLength = int64(len(text))
	return store.Upload(ctx, bytes.NewReader([]byte(text)), at.Path, &put)
}
