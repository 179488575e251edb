package intent_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
)

func row() intent.Intent {
	at := time.Date(2026, 3, 20, 10, 0, 0, 0, time.UTC)
	return intent.Intent{
		ID: event.ID{1}, Partition: 7, LegalEntity: "USMF", Type: "gl.post_journal", Payload: json.RawMessage(`{"amount": 1.50}`),
		Actor: event.Actor{Type: event.Human, ID: "u-1", Name: "clerk"}, PersonID: "p-1", Roles: []string{"clerk"}, CorrelationID: "c-1",
		Status: intent.Rejected, Revision: 2, CreatedAt: at, UpdatedAt: at,
		Approvals: []intent.Approval{{PersonID: "p-2", ActorID: "p-2", Role: "controller", Decision: "rejected", At: at}},
	}
}

// The format is frozen: stored events hold these digests.
func TestDigest_KnownAnswer(t *testing.T) {
	t.Parallel()
	in := row()
	b, err := in.Bind()
	require.NoError(t, err)
	require.Equal(t, intent.Binding{Revision: 2, Digest: "3b523e5ba8e3a8c301fbff69ac69369073049ad3412df130e2923d50fd21f2ec"}, b)

	for _, edit := range []func(*intent.Intent){
		func(in *intent.Intent) { in.CausedByPartition = 8 },
		func(in *intent.Intent) { in.Documents = []string{"ap.invoice/1"} },
		func(in *intent.Intent) { in.Documents = []string{"ap.invoice/1", "gl.journal/2"} },
	} {
		edited := row()
		edit(&edited)
		other, err := edited.Bind()
		require.NoError(t, err)
		require.NotEqual(t, b.Digest, other.Digest)
	}

	encoded, err := json.Marshal(b)
	require.NoError(t, err)
	read, bound := intent.BindingOf([]byte(`{"data":{"intent":1},"dimensions":{},"entity_refs":[],"intent":` + string(encoded) + `}`))
	require.True(t, bound)
	require.Equal(t, b, read)
	_, bound = intent.BindingOf([]byte(`{"data":{"intent":{"revision":1}},"dimensions":{}}`))
	require.False(t, bound, "a caller's data is no binding")
}
