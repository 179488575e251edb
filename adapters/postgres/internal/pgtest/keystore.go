package pgtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/keystore"
)

// OpenKeys opens the key store of a database with the rights of both roles, and with timeouts
// as long as those of Open.
func OpenKeys(t testing.TB, superuserDSN string) *keystore.Store {
	t.Helper()
	config := keystore.Config{DSN: As("backbone_app", superuserDSN), EraserDSN: As("backbone_eraser", superuserDSN), Logger: testLogger(), LockTimeout: 2 * WaitLimit}
	k, err := keystore.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(k.Close)
	return k
}

// FencedRequest fences the standard class of a subject of partition 1 in plain SQL.
const FencedRequest = `
	INSERT INTO keystore.pii_deletion_log (request_id, requested_at, updated_at, due_on, revision, all_entities, tenant_id, subject_id, basis, reason, requester_person, state, partitions, erased_classes, scope)
	VALUES ($1, now(), now(), now(), 4, false, 'acme', $2, 'gdpr_art_17', '', 'p-officer', 'fenced', '{1}', '{0}', decode(repeat('00', 32), 'hex'))`
