package memory_test

import (
	"testing"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestLeases(t *testing.T) {
	t.Parallel()
	conformance.RunLeases(t, func(*testing.T) conformance.LeaseHarness {
		clock := conformance.NewClock()
		return conformance.LeaseHarness{Leases: memory.New(memory.Config{Clock: clock}).Leases, Pass: clock.Advance}
	})
}
