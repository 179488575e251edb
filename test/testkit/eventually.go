package testkit

import (
	"fmt"
	"testing"
	"time"
)

const conditionInterval = 10 * time.Millisecond

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

func poll(timeout time.Duration, condition func() bool) bool {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	ticker := time.NewTicker(conditionInterval)
	defer ticker.Stop()
	for {
		if condition() {
			return true
		}
		select {
		case <-deadline.C:
			return condition() // it may have become true during the last pause
		case <-ticker.C:
		}
	}
}
