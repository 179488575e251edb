package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func TestTrialBalance_ChangedAccountName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	posted := b.journal("2026-03-10", "5.00")
	changed := b.add(domain.EventAccountChanged, "2026-03-11", `{"code": "1000", "name": "Main bank", "type": "asset"}`)
	b.project(t)
	require.Contains(t, b.trialBalance(t, "2026-03-31", posted.Sequence), `"name":"Bank"`, "the name as it was known")
	require.Contains(t, b.trialBalance(t, "2026-03-31", changed.Sequence), `"name":"Main bank"`)
}
