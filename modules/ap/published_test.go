package ap_test

import (
	"testing"

	"github.com/erpbackbone/backbone/test/moduletest"
)

func TestPublishedVersions(t *testing.T) {
	t.Parallel()
	newBooks(t)
	moduletest.RequirePublished(t, catalog, "ap")
}
