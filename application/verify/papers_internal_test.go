package verify

import (
	"context"
	"crypto/sha256"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// paperRows is a store that has sealed papers and nothing else.
type paperRows struct {
	Store
	rows []ports.PaperContent
}

func (s paperRows) PaperContents(context.Context, event.PartitionID) iter.Seq2[ports.PaperContent, error] {
	return func(yield func(ports.PaperContent, error) bool) {
		for _, row := range s.rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

func TestPapers_Compare(t *testing.T) {
	t.Parallel()
	sealed := []byte("sealed")
	row := ports.PaperContent{PaperID: "P-1", SHA256: sha256.Sum256(sealed), Sealed: sealed}
	edited, moved, renamed := row, row, row
	edited.Sealed = []byte("Sealed")
	moved.PaperID = "P-2"
	renamed.SHA256 = sha256.Sum256([]byte("another"))
	for name, test := range map[string]struct {
		rows  []ports.PaperContent
		found int
	}{
		"as it was stored":          {[]ports.PaperContent{row}, 0},
		"with bytes of no event":    {[]ports.PaperContent{renamed, row}, 0},
		"deleted":                   {nil, 1},
		"edited":                    {[]ports.PaperContent{edited}, 1},
		"of another paper":          {[]ports.PaperContent{moved}, 1},
		"stored under another name": {[]ports.PaperContent{renamed}, 1},
	} {
		c := &chain{report: &EntityReport{}}
		require.NoError(t, papers{row.SHA256: {id: "P-1", sequence: 3}}.compare(t.Context(), c, paperRows{rows: test.rows}), name)
		require.Len(t, c.report.Findings, test.found, name)
		for _, f := range c.report.Findings {
			require.Equal(t, PaperMismatch, f.Kind)
			require.EqualValues(t, 3, f.Sequence)
		}
	}
}
