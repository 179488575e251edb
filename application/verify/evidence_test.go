package verify_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestEvidence: the first event and later ones give their checksums again, and no changed byte does.
func TestEvidence(t *testing.T) {
	t.Parallel()
	d := memory.New(memory.Config{})
	r := conformance.NewRecorder(t, d.Directory, d.Registry, d.Appender, 1)
	r.Record(t, r.Partitions[0], 3)
	head := testkit.Must(d.Chains().Head(t.Context(), r.Partitions[0]))
	for sequence := event.Sequence(1); sequence <= 3; sequence++ {
		text, err := verify.EvidenceOf(t.Context(), d.Chains(), head, ports.EventPosition{Partition: r.Partitions[0], Sequence: sequence})
		require.NoError(t, err)
		e, err := verify.OpenEvidence(text)
		require.NoError(t, err)
		require.Equal(t, r.Checksums[r.Partitions[0]][sequence-1], e.Checksum)
		require.NotEmpty(t, e.Payload)
	}
	_, err := verify.EvidenceOf(t.Context(), d.Chains(), head, ports.EventPosition{Partition: r.Partitions[0], Sequence: 4})
	require.Equal(t, "verify.evidence_unreadable", fault.CodeOf(err))

	text := testkit.Must(verify.EvidenceOf(t.Context(), d.Chains(), head, ports.EventPosition{Partition: r.Partitions[0], Sequence: 2}))
	for _, member := range []string{`"partition_id":`, `"previous_checksum":"`, `"sequence":`, `"type":"`, `"recorded_at":"2`, `"payload_hash":"`, `"checksum":"`, `"salt":"`, `"payload":"{`, `"actor_id":"`, `"stream_id":"`} {
		at := bytes.Index(text, []byte(member)) + len(member)
		require.Greater(t, at, len(member), member)
		changed := bytes.Clone(text)
		changed[at] ^= 1
		_, err := verify.OpenEvidence(changed)
		require.Equal(t, "verify.evidence_invalid", fault.CodeOf(err), member)
	}
	for _, malformed := range []string{"", "{}", "null", string(text) + "{}", `{"format":"backbone/event-evidence/v2"}`} {
		_, err := verify.OpenEvidence([]byte(malformed))
		require.Equal(t, "verify.evidence_invalid", fault.CodeOf(err))
	}
}
