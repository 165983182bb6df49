package jobs

import "context"

// LogText returns up to limit bytes from the start of a replica's log, of its
// latest run: from its center while it runs, from the platform's copy once it
// has ended. It returns fault.NotFound.
func (s *Service) LogText(ctx context.Context, jobID string, task, replica int64, limit int) (string, error) {
	var b []byte
	err := s.readLog(ctx, jobID, task, replica, 0, 0, false, func(data []byte, _ int64) error {
		b = append(b, data[:min(len(data), limit-len(b))]...)
		return nil
	})
	return string(b), err
}
