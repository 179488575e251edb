package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	v := verdict{reports: []verify.EntityReport{{LegalEntity: "DEMF", Events: 1, FindingList: verify.FindingList{Findings: []verify.Finding{
		{Kind: verify.PayloadMismatch, Sequence: 1, EventID: "01JQ8E6Z6G3V5T8C9N2M4K7R1P", Detail: "changed"},
		{Kind: verify.HeadBeyondEnd, Sequence: 7, Detail: "gone"},
	}}}}}
	var out strings.Builder
	require.NoError(t, printPage(&out, func(p *page) { p.verdict(&v, false, true, time.Second) }))
	require.Contains(t, out.String(), "DEMF sequence 1 (event 01JQ8E6Z6G3V5T8C9N2M4K7R1P): payload_mismatch: changed\n")
	require.Contains(t, out.String(), "DEMF sequence 7: head_beyond_end: gone\n")
	require.Contains(t, out.String(), "TAMPERED (2 findings)")
}
