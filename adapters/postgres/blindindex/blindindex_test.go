package blindindex_test

import (
	"testing"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestBlindIndex(t *testing.T) {
	t.Parallel()
	conformance.RunBlindIndex(t, pgtest.Open(t, pgtest.Database(t)).BlindIndex)
}
