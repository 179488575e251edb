package ap

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// keptPapers is a state that has papers only, each with its subject.
type keptPapers struct {
	module.State
	subjects map[string]shredding.Subject
}

func (s keptPapers) Stream(_ context.Context, id event.StreamID) (any, event.Version, error) {
	subject, kept := s.subjects[id.ID]
	return &paper.Paper{IsKept: kept && id.Type == paper.StreamType, Subject: subject}, 0, nil
}

// TestCheckPaper: a document names a paper that is kept for its vendor, or none.
func TestCheckPaper(t *testing.T) {
	t.Parallel()
	state := keptPapers{subjects: map[string]shredding.Subject{"P-1": "vendor:V-1", "P-2": "vendor:V-2", "P-3": "employee:V-1"}}
	for _, kind := range []string{"invoice", "credit_memo"} {
		for name, code := range map[string]string{
			"": "", "P-1": "", "P-2": "ap." + kind + ".paper_not_found", "P-3": "ap." + kind + ".paper_not_found", "P-4": "ap." + kind + ".paper_not_found",
		} {
			d := &contract.Document{VendorID: "V-1", SourceDocument: &contract.SourceDocument{Paper: name}}
			require.Equal(t, code, fault.CodeOf(checkPaper(t.Context(), state, contract.Kind(kind), d)), name)
		}
		require.NoError(t, checkPaper(t.Context(), state, contract.Kind(kind), &contract.Document{VendorID: "V-1"}))
	}
}
