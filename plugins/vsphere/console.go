package vsphere

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// consoleFile is next to the VM's other files.
const consoleFile = "kaas-console.log"

// consolePort is a serial port that writes to a file, or nil if the machine has one.
func consolePort(all object.VirtualDeviceList, m *machine) *types.VirtualSerialPort {
	if len(all.SelectByType((*types.VirtualSerialPort)(nil))) > 0 || m.dir() == "" {
		return nil
	}
	port := &types.VirtualSerialPort{YieldOnPoll: true}
	port.Key = -3000
	port.Connectable = &types.VirtualDeviceConnectInfo{StartConnected: true, Connected: true, AllowGuestControl: true}
	port.Backing = &types.VirtualSerialPortFileBackingInfo{
		VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: m.dir() + "/" + consoleFile},
	}
	return port
}

// dropConsole removes the console's file: vCenter does not know that it belongs to the VM, and would leave its
// directory behind with it.
func (b *machines) dropConsole(ctx context.Context, op string, p *place, m *machine) error {
	if m.dir() == "" {
		return nil
	}
	return b.deleteFile(ctx, op, p, m.dir()+"/"+consoleFile)
}

// deleteFile removes a file of a datastore. No error if it is gone.
func (b *center) deleteFile(ctx context.Context, op string, p *place, file string) error {
	_, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
		t, err := object.NewFileManager(p.vim).DeleteDatastoreFile(ctx, file, p.dc)
		if err != nil {
			return types.ManagedObjectReference{}, err
		}
		return t.Reference(), nil
	})
	if hasFault[types.FileNotFound](err) {
		return nil
	}
	return err
}

// ConsoleTail implements hypervisor.Console. It is empty for a VM that has printed nothing yet.
func (b *Backend) ConsoleTail(ctx context.Context, id hypervisor.ID, maxBytes int) ([]byte, error) {
	const op = "vsphere.console_tail"
	p, m, err := b.get(ctx, op, id)
	if err != nil {
		return nil, err
	}
	if m.stamp() == (director.Stamp{}) {
		return nil, director.Errorf(
			director.KindNotFound, op, "the VM %s is not the director's; its console is not kept", m.name,
		)
	}
	var file object.DatastorePath
	if !file.FromString(m.dir() + "/" + consoleFile) {
		return nil, nil
	}
	store, err := p.finder.Datastore(ctx, file.Datastore)
	if err != nil {
		return nil, b.translate(ctx, op, "datastore "+file.Datastore, err)
	}
	u := store.NewURL(file.Path)
	res, err := p.vim.DownloadRequest(ctx, u, &soap.DefaultDownload)
	if err != nil {
		return nil, b.translate(ctx, op, "the console of VM "+m.name, err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, nil
	default:
		return nil, director.Errorf(
			director.KindUnavailable, op, "vCenter does not give the console of VM %s: %s", m.name,
			strings.TrimSpace(res.Status),
		).
			WithHint(
				"the account needs Datastore.FileManagement and Datastore.Browse on the datastore %s", file.Datastore,
			)
	}
	return tail(res.Body, maxBytes)
}

// tail returns the last bytes, holding no more than twice as many.
func tail(r io.Reader, most int) ([]byte, error) {
	var kept []byte
	part := make([]byte, max(most, 1))
	for {
		n, err := io.ReadFull(r, part)
		kept = append(kept, part[:n]...)
		if len(kept) > most {
			kept = bytes.Clone(kept[len(kept)-most:])
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return kept, nil
			}
			return kept, err
		}
	}
}
