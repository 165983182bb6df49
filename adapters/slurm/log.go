package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// maxRead is the most one answer of ReadLog has, by contract.
const maxRead = 512 << 10

// A log is looked at so often while there is nothing new. Changes another
// machine makes on a network file system come without an event.
const logEvery = 200 * time.Millisecond

// maxWait bounds how long a reader may ask to wait.
const maxWait = 60 * time.Second

// ReadLog reads a piece of an attempt's output from the shared file system.
// slurmrestd cannot read files, so without output_dir it is unimplemented.
// Offsets are those of the file, which is only appended to: they stay.
func (d *Driver) ReadLog(ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
	switch {
	case r.Offset < 0:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("offset must be at least 0, got %d", r.Offset))
	case d.folder == nil:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("logs of center %s cannot be read: slurmrestd does not give out files; mount the cluster's %s on the driver's machine and name it in output_dir", d.center, d.cfg.Directory))
	}
	if err := d.whole(ctx, time.Time{}); err != nil && !d.knows(r.AttemptId) {
		return nil, err
	}
	limit := r.Limit
	if limit <= 0 || limit > maxRead {
		limit = maxRead
	}
	until := time.NewTimer(min(time.Duration(r.WaitMilliseconds)*time.Millisecond, maxWait))
	defer until.Stop()
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for {
		res, err := d.piece(r.AttemptId, r.Offset, limit)
		if err != nil || len(res.Data) > 0 || res.End || r.WaitMilliseconds <= 0 {
			return res, err
		}
		select {
		case <-ctx.Done():
			return nil, canceled(ctx)
		case <-until.C:
			return res, nil
		case <-tick.C:
		}
	}
}

func (d *Driver) knows(id string) bool {
	_, ok := d.board.Get(id)
	return ok
}

// piece reads what there is. The status is read before the file: what an
// attempt wrote before its end is then in the file.
func (d *Driver) piece(id string, offset, limit int64) (*adapterv1.ReadLogResponse, error) {
	st, ok := d.board.Get(id)
	if !ok || !idRule.MatchString(id) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("attempt %q is not known at center %s", clip(id, 60), d.center))
	}
	ended := st.Phase == adapterv1.Phase_PHASE_ENDED
	res := &adapterv1.ReadLogResponse{Offset: offset}
	data, size, err := d.folder.log(id, offset, limit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if ended && st.StartedAt > 0 && st.LogBytes > 0 {
			return nil, unavailable("the log of attempt %s is not on %s: is %s the cluster's %s, and mounted?", id, hostname(), d.cfg.OutputDir, d.cfg.Directory)
		}
		res.End = ended
		return res, nil
	case err != nil:
		return nil, unavailable("the log of attempt %s cannot be read on %s: %v; may this process read it?", id, hostname(), err)
	}
	res.Data = data
	// A network file system may show less than there is for a while.
	res.End = ended && offset+int64(len(data)) >= max(size, st.LogBytes)
	return res, nil
}
