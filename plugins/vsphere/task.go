package vsphere

import (
	"context"
	"time"

	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// How often a task is looked at: soon, since most take moments, and then ever more seldom.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = 2 * time.Second
)

// wait returns when the task has ended, with what it made. It asks for the task itself, and not through a filter that
// would be gone with the session. When the context ends, the task is asked to stop; it may continue nevertheless.
func wait(ctx context.Context, vim *vim25.Client, ref types.ManagedObjectReference) (types.AnyType, error) {
	for pause := firstLook; ; pause = min(lastLook, pause*3/2) {
		found, err := retrieve(ctx, vim, types.PropertyFilterSpec{
			ObjectSet: []types.ObjectSpec{{Obj: ref}},
			PropSet:   []types.PropertySpec{{Type: "Task", PathSet: []string{"info"}}},
		})
		if err != nil {
			cancelTask(ctx, vim, ref)
			return nil, err
		}
		if len(found) == 1 && len(found[0].PropSet) == 1 {
			info, _ := found[0].PropSet[0].Val.(types.TaskInfo)
			switch info.State {
			case types.TaskInfoStateSuccess:
				return info.Result, nil
			case types.TaskInfoStateError:
				return nil, task.Error{LocalizedMethodFault: info.Error}
			}
		}
		look := time.NewTimer(pause)
		select {
		case <-look.C:
		case <-ctx.Done():
			look.Stop()
			cancelTask(ctx, vim, ref)
			return nil, context.Cause(ctx)
		}
	}
}

// cancelTask asks vCenter to stop a task that has no one waiting for it any more.
func cancelTask(ctx context.Context, vim *vim25.Client, ref types.ManagedObjectReference) {
	if ctx.Err() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// best effort: the next call finds what it has made
	_, _ = methods.CancelTask(ctx, vim, &types.CancelTask{This: ref})
}

// run starts an operation and waits for it, when vCenter has room for one more.
func (b *center) run(
	ctx context.Context, op string, vim *vim25.Client, start func() (types.ManagedObjectReference, error),
) (types.AnyType, error) {
	done, err := b.slots.operation(ctx, op)
	if err != nil {
		return nil, err
	}
	defer done()
	ref, err := start()
	if err != nil {
		return nil, err
	}
	return wait(ctx, vim, ref)
}

// reconfigure changes the machine, unless it has changed since it was read.
func (b *center) reconfigure(
	ctx context.Context, op string, p *place, m *machine, spec types.VirtualMachineConfigSpec,
) error {
	spec.ChangeVersion = m.version
	_, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
		res, err := methods.ReconfigVM_Task(ctx, p.vim, &types.ReconfigVM_Task{This: m.ref, Spec: spec})
		if err != nil {
			return types.ManagedObjectReference{}, err
		}
		return res.Returnval, nil
	})
	return err
}

// power brings the machine to a power state. No error if it is there.
func (b *center) power(ctx context.Context, op string, p *place, ref types.ManagedObjectReference, on bool) error {
	_, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
		if on {
			res, err := methods.PowerOnVM_Task(ctx, p.vim, &types.PowerOnVM_Task{This: ref})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		}
		res, err := methods.PowerOffVM_Task(ctx, p.vim, &types.PowerOffVM_Task{This: ref})
		if err != nil {
			return types.ManagedObjectReference{}, err
		}
		return res.Returnval, nil
	})
	if f, _ := faultOf(err); f != nil {
		want := types.VirtualMachinePowerStatePoweredOff
		if on {
			want = types.VirtualMachinePowerStatePoweredOn
		}
		if state, ok := f.(types.InvalidPowerState); ok && state.ExistingState == want {
			return nil
		}
	}
	return err
}

// destroy removes the machine with the disks that it has. No error if it is gone.
func (b *center) destroy(ctx context.Context, op string, p *place, ref types.ManagedObjectReference) error {
	_, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
		res, err := methods.Destroy_Task(ctx, p.vim, &types.Destroy_Task{This: ref})
		if err != nil {
			return types.ManagedObjectReference{}, err
		}
		return res.Returnval, nil
	})
	if hasFault[types.ManagedObjectNotFound](err) {
		return nil
	}
	return err
}
