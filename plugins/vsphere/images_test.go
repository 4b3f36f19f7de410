package vsphere

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"

	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// vCenter hears of an upload while it continues, or it would end the lease of a slow one.
func TestUploadKeepsItsLease(t *testing.T) {
	t.Parallel()
	b := newFixture(t).open(t)
	defer b.Close()
	b.leaseBeat = time.Millisecond
	told, once := make(chan struct{}), sync.Once{}
	b.conn.around = func(inner soap.RoundTripper) soap.RoundTripper {
		return roundTrip(func(ctx context.Context, req, res soap.HasFault) error {
			err := inner.RoundTrip(ctx, req, res)
			if _, beat := req.(*methods.HttpNfcLeaseProgressBody); beat && err == nil {
				once.Do(func() { close(told) })
			}
			return err
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := b.EnsureImage(ctx, hypervisortest.NewImage(t, nil), func(done, total int64) {
		if done <= total/2 { // it is converted
			return
		}
		select {
		case <-told:
		case <-ctx.Done():
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
	default:
		t.Error("vCenter was not told of the upload")
	}
}
