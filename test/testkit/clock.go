package testkit

import (
	"sync"
	"time"
)

// Clock is a clock that the test moves. It may be used by several goroutines.
type Clock struct {
	mutex   sync.Mutex
	now     time.Time
	running time.Time // the time of package time at which the clock showed now; zero: only the test moves it
}

// NewClock makes a clock that stands at a time.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// NewRunningClock makes a clock that is set to a time and goes on with package time. It is for
// bubbles of testing/synctest: there it agrees with the timers.
func NewRunningClock(now time.Time) *Clock { return &Clock{now: now, running: time.Now()} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.running.IsZero() {
		return c.now
	}
	return c.now.Add(time.Since(c.running))
}

// Set moves the clock to a time, also to an earlier one.
func (c *Clock) Set(now time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.now = now
	if !c.running.IsZero() {
		c.running = time.Now()
	}
}

// Advance moves the clock, backwards when the duration is negative.
func (c *Clock) Advance(by time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.now = c.now.Add(by)
}
