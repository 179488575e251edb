package testkit

import (
	"fmt"
	"testing"
	"time"
)

// The pauses between two looks at a condition.
const (
	shortestPause = 10 * time.Millisecond
	longestPause  = 250 * time.Millisecond
)

// Eventually waits until a condition holds and fails the test when it does not
// within the timeout. The condition runs on the test's own goroutine, so it may
// use require. What is waited for may be described as by fmt.Sprint.
func Eventually(t testing.TB, timeout time.Duration, condition func() bool, description ...any) {
	t.Helper()
	if !poll(timeout, condition) {
		t.Fatalf("condition not met within %s %s", timeout, fmt.Sprint(description...))
	}
}

// EventuallyNoError waits until an attempt succeeds and fails the test with the
// last error when it does not within the timeout.
func EventuallyNoError(t testing.TB, timeout time.Duration, attempt func() error, description ...any) {
	t.Helper()
	var last error
	if !poll(timeout, func() bool { last = attempt(); return last == nil }) {
		t.Fatalf("still failing after %s %s: %v", timeout, fmt.Sprint(description...), last)
	}
}

// poll asks at once, soon again, and then ever less often: a condition that takes long, such as
// the end of a rebuild, would otherwise cost the CPU that it waits for.
func poll(timeout time.Duration, condition func() bool) bool {
	began := time.Now()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		if condition() {
			return true
		}
		select {
		case <-deadline.C:
			return condition() // it may have become true during the last pause
		case <-time.After(min(max(time.Since(began)/8, shortestPause), longestPause)):
		}
	}
}
