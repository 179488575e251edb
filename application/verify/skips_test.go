package verify_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// skippedLetters are the dead letters of a store.
type skippedLetters struct {
	*tamperedLog
	letters []ports.DeadLetter
}

func (s skippedLetters) ListDeadLetters(context.Context, ports.DeadLetterQuery) ([]ports.DeadLetter, error) {
	return s.letters, nil
}

// TestRun_Skips compares dead letters of two versions at one event with what two persons decided.
func TestRun_Skips(t *testing.T) {
	t.Parallel()
	log, v := administered(t)
	le, err := log.Database.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF"})
	require.NoError(t, err)
	require.NoError(t, log.LegalEntityCreated(t.Context(), le, event.Actor{}))
	decisions := log.Projections()
	skip := func(version int, by, reason string) ports.DeadLetter {
		record, err := decisions.Projection(t.Context(), "acme", "ap.vendors")
		require.NoError(t, err)
		require.NoError(t, decisions.Decide(t.Context(), "acme", record, ports.ProjectionDecision{
			Action: ports.ProjectionOperated, Operation: projection.Skip, Version: version, Partition: le.Partition, Sequence: 42, Reason: reason, By: by,
		}))
		return ports.DeadLetter{Kind: ports.LetterOfProjection, Name: "ap.vendors", Version: version, Partition: le.Partition, Sequence: 42, Status: ports.LetterSkipped, SettledBy: by, Reason: reason}
	}
	first, second := skip(1, "p-1", "a test event"), skip(2, "p-2", "known to be wrong")
	findings := func(letters ...ports.DeadLetter) (found []verify.FindingKind) {
		reports, err := verify.Run(t.Context(), skippedLetters{v, letters}, "acme", []string{ports.AdministrativeCode}, nil)
		require.NoError(t, err)
		for _, f := range reports[0].Findings {
			found = append(found, f.Kind)
		}
		return found
	}
	require.Empty(t, findings(first, second))
	moved := first
	moved.Version = 3
	require.Empty(t, findings(moved, second), "a switch renumbers letters")
	mixed := first
	mixed.Reason = second.Reason
	require.Equal(t, []verify.FindingKind{verify.ProjectionMismatch}, findings(mixed, second), "person and reason of two decisions")
}
