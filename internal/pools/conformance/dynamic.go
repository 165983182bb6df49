package conformance

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

// dynamic expects that a program that has the least there is can have more memory
// while it goes on, and that one that computes has more of the device's time when
// its share is more.
func dynamic(ctx context.Context, b *bench) error {
	t, err := b.start(ctx, []string{"--compute", "1", "--memory", "1" + mib}, b.Program, "fill", "100", "wait")
	if err != nil {
		return err
	}
	if err := t.expect(ctx, "buffers 1 error -4"); err != nil {
		return err
	}
	list, err := b.slices(ctx, b.name)
	if err != nil || len(list) == 0 {
		return fmt.Errorf("the task's slice is not listed: %w", err)
	}
	uses := func(compute, memory int64) func() (bool, error) {
		return func() (bool, error) {
			x, err := b.slice(ctx, list[0].SliceId)
			return err == nil && x.ComputePercent == compute && x.MemoryMib == memory && x.MemoryUsedBytes == 1<<20 && x.Programs == 1, err
		}
	}
	if err := b.until(ctx, "1 MiB is used", uses(1, 1)); err != nil {
		return err
	}
	if _, err := b.API.ResizeSlice(ctx, &poolv1.ResizeSliceRequest{SliceId: list[0].SliceId, ComputePercent: 31, MemoryMib: 2}); err != nil {
		return err
	}
	if err := b.look(ctx, "slices", list[0].SliceId, "31 %"); err != nil {
		return err
	}
	select { // a node hears of it within its report; it does not say when
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
	if err := b.until(ctx, "the program is there, with what it had", uses(31, 2)); err != nil {
		return err
	}
	if _, err := io.WriteString(t.in, "\n"); err != nil {
		return err
	}
	if err := t.expect(ctx, "again 0"); err != nil { // one that began anew would say what it has first
		return err
	}
	if err := t.wait(ctx); err != nil {
		return err
	}
	return adjusted(ctx, b)
}

// adjusted expects that a program that always wants the device has as much of it as
// another with the same share, and more when its share is more, and goes on meanwhile.
func adjusted(ctx context.Context, b *bench) error {
	node, device, _ := strings.Cut(b.first(), "/")
	var both []*poolv1.Slice
	for range 2 {
		x, err := b.hold(ctx, &poolv1.RequestSliceRequest{ComputePercent: 20, NodeId: node, DeviceId: device})
		if err != nil {
			return err
		}
		t, err := b.start(ctx, []string{"--slice", x.SliceId}, b.Program, "spin", "600", "4000", "20")
		if err != nil {
			return err
		}
		if err := t.expect(ctx, "spinning"); err != nil {
			return err
		}
		both = append(both, x)
	}
	if err := b.until(ctx, "both compute", func() (bool, error) {
		for _, x := range both {
			if now, err := b.slice(ctx, x.SliceId); err != nil || now.Programs != 1 || now.DeviceMicros == 0 {
				return false, err
			}
		}
		return true, nil
	}); err != nil {
		return err
	}
	used := func() (micros [2]int64, err error) {
		for i, x := range both {
			now, err := b.slice(ctx, x.SliceId)
			if err != nil {
				return micros, err
			}
			if now.Programs != 1 {
				return micros, fmt.Errorf("a program that computed has ended: %v", now)
			}
			micros[i] = now.DeviceMicros
		}
		return micros, nil
	}
	for _, c := range []struct{ compute, least, most int64 }{{20, 35, 65}, {60, 62, 100}} { // 50 and 75 %, if nothing else were to do
		if _, err := b.API.ResizeSlice(ctx, &poolv1.ResizeSliceRequest{SliceId: both[0].SliceId, ComputePercent: c.compute}); err != nil {
			return err
		}
		before, err := used()
		if err != nil {
			return err
		}
		var percent int64
		if err := b.until(ctx, fmt.Sprintf("%d%% beside 20%% have from %d to %d%% of what both have", c.compute, c.least, c.most), func() (bool, error) {
			now, err := used()
			if err != nil {
				return false, err
			}
			first, all := now[0]-before[0], now[0]-before[0]+now[1]-before[1]
			percent = 100 * first / max(all, 1)
			return all > 3_000_000 && c.least <= percent && percent <= c.most, nil
		}); err != nil {
			return fmt.Errorf("%w: %d%%", err, percent)
		}
	}
	return nil
}
