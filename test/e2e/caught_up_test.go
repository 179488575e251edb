package e2e

import (
	"fmt"
	"net/http"
	"time"
)

// notCaughtUp is the code of an answer that asks to try again: the read model has not reached
// the sequence of the request. How long that takes depends on the machine.
const notCaughtUp = "read.not_caught_up"

// caughtUp reads a read model at a sequence, and repeats the request while the model is behind.
// The server waits before each such answer, so the test does not.
func (c client) caughtUp(path string) (answer, error) {
	for began := time.Now(); ; {
		a, err := c.do("GET", path, "")
		if err != nil || a.code() != notCaughtUp || time.Since(began) > endTime {
			return a, err
		}
	}
}

// wantCaughtUp calls caughtUp, requires a success and decodes the answer.
func (c client) wantCaughtUp(into any, path string) error {
	a, err := c.caughtUp(path)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("GET %s answered %s instead of %d", path, a, http.StatusOK)
	}
	return a.decode(into)
}
