package erasure

import (
	"context"

	"github.com/erpbackbone/backbone/application/requests"
)

// AlarmAttempts lets tests count failures up to the alarm.
const AlarmAttempts = requests.AlarmAttempts

// FollowUp requests the follow-ups that are due.
func (w *Worker) FollowUp(ctx context.Context) { w.maybeFollowUp(ctx) }

// RunOnce advances every open request, one after the other, until it has ended, waits or fails.
func (w *Worker) RunOnce(ctx context.Context) {
	w.maybeFollowUp(ctx)
	for _, r := range w.due(ctx) {
		func() {
			defer w.release(r.ID)
			w.advance(ctx, r)
		}()
	}
}
