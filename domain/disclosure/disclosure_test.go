package disclosure_test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
)

// TestDigest_WithoutGrant pins the digest of accesses from before they named a grant: events of the log
// are bound to it.
func TestDigest_WithoutGrant(t *testing.T) {
	t.Parallel()
	digest := func(accesses ...disclosure.Access) string {
		d := disclosure.NewDigest()
		for i := range accesses {
			d.Add(&accesses[i])
		}
		sum := d.Sum()
		return hex.EncodeToString(sum[:])
	}
	a := disclosure.Access{
		ID: event.ID{1}, At: time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC), PersonID: "p-1", PrincipalID: "p-1-web", Kind: disclosure.PersonalData, Operation: "getEvent",
		LegalEntity: "USMF", Subject: "person:P-1", Class: "contact", Values: 3, Reason: "ticket 4711", RequestID: "request-1",
	}
	require.Equal(t, "831feed5d5207425b0ff66e1fff26ef52e2f8e0065647c99d009b46793d316db", digest(a))
	granted := a
	granted.GrantID = event.ID{2}
	require.NotEqual(t, digest(a), digest(granted))
	require.NotEqual(t, digest(a, granted), digest(granted, a))
}
