package client

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// refused says that trying again would bring the same answer.
func refused(err error) bool {
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrNeedsRollcall) {
		return true
	}
	var status *StatusError
	if !errors.As(err, &status) {
		return false
	}
	return status.Status >= 400 && status.Status < 500 && status.Status != http.StatusTooManyRequests
}

// wait returns false if ctx ended before d had passed.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// either returns ctx with a second reason to end: that of other.
func either(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
