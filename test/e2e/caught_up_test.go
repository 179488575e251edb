package e2e

import (
	"fmt"
	"net/http"
	"time"
)

// notCaughtUp is the code of an answer that says to ask again in a moment: the read model
// has not come as far as the caller wants. How long that takes is the machine's matter.
const notCaughtUp = "read.not_caught_up"

// caughtUp asks for what a read model shows at a sequence, again while it is behind. The
// server holds each answer until it caught up, so the test does not wait.
func (c client) caughtUp(path string) (answer, error) {
	for began := time.Now(); ; {
		a, err := c.do("GET", path, "")
		if err != nil || a.code() != notCaughtUp || time.Since(began) > endTime {
			return a, err
		}
	}
}

// wantCaughtUp is caughtUp that demands an answer and decodes it.
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
