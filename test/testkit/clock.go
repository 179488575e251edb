package testkit

import (
	"sync"
	"time"
)

// Clock is a manual clock: only the test moves it. It may be used by
// several goroutines.
type Clock struct {
	mutex sync.Mutex
	now   time.Time
}

// NewClock makes a clock that is set to a time.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.now
}

// Set moves the clock to a time, also to an earlier one.
func (c *Clock) Set(now time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.now = now
}

// Advance moves the clock, backwards when the duration is negative.
func (c *Clock) Advance(by time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.now = c.now.Add(by)
}
