package vsphere

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/nfc"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/imagefile"
)

// upload brings the disk into a new VM and makes that a template, which is the mark that it is whole.
func (b *images) upload(
	ctx context.Context, op string, p *place, s hypervisor.ImageSpec, virtual int64, vmdk *os.File, length int64,
	sent func(int64),
) error {
	hosts, err := b.hosts(ctx, op, p)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(hosts, func(e *esx) bool { return e.state == "" && e.stores[p.images.Reference()] })
	if i < 0 {
		return director.Errorf(
			director.KindUnavailable, op, "no host of cluster %s can write to the datastore %s", b.cfg.Cluster,
			p.images.Name(),
		).
			WithHint("look at the hosts' state in vCenter, or name another one in spec.vsphere.templateDatastore")
	}
	done, err := b.slots.provision(ctx, op, hosts[i].name, fullCost)
	if err != nil {
		return err
	}
	defer done()
	lease, err := p.pool.ImportVApp(
		ctx, &types.VirtualMachineImportSpec{ConfigSpec: b.templateSpec(p, s, virtual)}, p.templates,
		object.NewHostSystem(p.vim, hosts[i].ref),
	)
	if err != nil {
		return err
	}
	entity, err := b.send(ctx, op, lease, p, vmdk, length, sent)
	if err != nil {
		// Best effort: the next try replaces what stays.
		tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if aborted := lease.Abort(tidy, nil); aborted != nil {
			b.conn.log.WarnContext(
				ctx, "part of an image is left in vcenter until the next try", "image", s.Name, "err", aborted,
			)
		}
		return err
	}
	m, err := readMachine(ctx, p.vim, entity)
	if err != nil || m == nil {
		return cmp.Or(
			err, error(director.Errorf(director.KindUnavailable, op, "image %s was uploaded and is gone", s.Name)),
		)
	}
	if id := imageUUID(p, s.Name, ""); m.uuid != id { // an import may be given another one
		if err := b.reconfigure(ctx, op, p, m, types.VirtualMachineConfigSpec{InstanceUuid: id}); err != nil {
			return err
		}
	}
	return b.seal(ctx, op, p, m)
}

// send waits for the lease and sends the disk to the host that it names.
func (b *images) send(
	ctx context.Context, op string, lease *nfc.Lease, p *place, vmdk io.Reader, length int64, sent func(int64),
) (vm types.ManagedObjectReference, err error) {
	info, err := b.leased(ctx, op, lease)
	if err != nil {
		return vm, err
	}
	for _, d := range info.DeviceUrl {
		if d.Disk == nil || !*d.Disk {
			continue
		}
		u, err := p.vim.ParseURL(d.Url)
		if err != nil {
			return vm, director.Errorf(
				director.KindInternal, op, "vCenter wants the image at an address that cannot be read",
			)
		}
		if pin := hostPin(d); pin != "" {
			p.vim.SetThumbprint(u.Host, pin)
		}
		count := &counter{r: imagefile.Reader(ctx, vmdk), report: sent}
		kept := b.keepLease(ctx, lease, func() int32 { return int32(share(count.n.Load(), length, 100)) })
		// Not the lease's own Upload: its progress reports go to a channel that it closes while the transport may still
		// read (govmomi v0.54).
		err = p.vim.Upload(ctx, count, u, &soap.Upload{
			Type: "application/x-vnd.vmware-streamVmdk", Method: http.MethodPost, ContentLength: length,
		})
		kept()
		count.stop()
		if err != nil {
			return vm, err
		}
		return info.Entity, lease.Complete(ctx)
	}
	return vm, director.Errorf(director.KindInternal, op, "vCenter made no place for the image's disk")
}

// hostPin returns the SHA-256 of the certificate of the host that takes the disk, if vCenter vouches for one. What
// older vCenters tell instead is a SHA-1, which nothing trusts: an authority has to vouch for the host then.
func hostPin(d types.HttpNfcLeaseDeviceUrl) string {
	if block, _ := pem.Decode([]byte(d.SslCertificate)); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			return soap.ThumbprintSHA256(cert)
		}
	}
	if pin := colons(d.SslThumbprint); thumbprint.MatchString(pin) {
		return pin
	}
	return ""
}

// leased waits until the VM is made and takes the disk.
func (b *images) leased(ctx context.Context, op string, lease *nfc.Lease) (*types.HttpNfcLeaseInfo, error) {
	for pause := firstLook; ; pause = min(lastLook, pause*3/2) {
		l, err := lease.Properties(ctx, "state", "info", "error")
		switch {
		case err != nil:
			return nil, err
		case l.State == types.HttpNfcLeaseStateReady && l.Info != nil:
			return l.Info, nil
		case l.Error != nil:
			return nil, task.Error{LocalizedMethodFault: l.Error}
		case l.State == types.HttpNfcLeaseStateDone:
			return nil, director.Errorf(director.KindUnavailable, op, "vCenter ended the upload before it began")
		}
		look := time.NewTimer(pause)
		select {
		case <-look.C:
		case <-ctx.Done():
			look.Stop()
			return nil, interrupted(ctx, op)
		}
	}
}

// counter reports how much was read. The transport may read on after the answer to a request has come; nothing is
// reported after stop.
type counter struct {
	r       io.Reader
	n       atomic.Int64
	mu      sync.Mutex // held while it reports
	stopped bool
	report  func(int64)
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	done := c.n.Add(int64(n))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.report(done)
	}
	return n, err
}

func (c *counter) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

// defaultLeaseBeat is how often vCenter hears of an upload, far below a lease's patience (300 s).
const defaultLeaseBeat = 10 * time.Second

// keepLease tells vCenter how many per cent were sent, which keeps the lease alive, until the returned function is
// called. That waits for the last call to end.
func (b *images) keepLease(ctx context.Context, lease *nfc.Lease, percent func() int32) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		beat := time.NewTicker(b.leaseBeat)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
				if err := lease.Progress(ctx, percent()); err != nil && ctx.Err() == nil {
					// the upload or its end shows whether that matters
					b.conn.log.WarnContext(ctx, "vcenter was not told how far an upload is", "err", err)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
