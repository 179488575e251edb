package ap

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// CheckProblem compares the problem documents of refusals, see TestMain.
var CheckProblem func(testing.TB, error)

// keptPapers is a state that has papers only, each with its subject.
type keptPapers struct {
	module.State
	subjects map[string]shredding.Subject
}

func (s keptPapers) Stream(_ context.Context, id event.StreamID) (any, event.Version, error) {
	subject, kept := s.subjects[id.ID]
	return &paper.Paper{IsKept: kept && id.Type == paper.StreamType, Subject: subject}, 0, nil
}

// TestCheckPapers: a document and its attachments name papers that are kept for its vendor, or none.
func TestCheckPapers(t *testing.T) {
	t.Parallel()
	state := keptPapers{subjects: map[string]shredding.Subject{"P-1": "vendor:V-1", "P-2": "vendor:V-2", "P-3": "employee:V-1"}}
	for _, kind := range []string{"invoice", "credit_memo"} {
		for name, code := range map[string]string{
			"": "", "P-1": "", "P-2": "ap." + kind + ".paper_not_found", "P-3": "ap." + kind + ".paper_not_found", "P-4": "ap." + kind + ".paper_not_found",
		} {
			for field, d := range map[string]*contract.Document{
				"/source_document/paper": {VendorID: "V-1", SourceDocument: &contract.SourceDocument{Paper: name}},
				"/attachments/1/paper":   {VendorID: "V-1", Attachments: []contract.Attachment{{Paper: "P-1"}, {Paper: contract.OpenText(name)}}},
			} {
				err := checkPapers(t.Context(), state, contract.Kind(kind), d)
				require.Equal(t, code, fault.CodeOf(err), name)
				CheckProblem(t, err)
				if f, refused := fault.As(err); refused {
					require.Equal(t, field, f.Field)
				}
			}
		}
		require.NoError(t, checkPapers(t.Context(), state, contract.Kind(kind), &contract.Document{VendorID: "V-1"}))
	}
}

// TestAttachment_OtherValue: events may hold anything under the name of an attachment's paper.
func TestAttachment_OtherValue(t *testing.T) {
	t.Parallel()
	var d contract.Document
	require.NoError(t, json.Unmarshal([]byte(`{"attachments":[{"paper":7},{"paper":{"id":"X"}},{"paper":"P-1"}]}`), &d))
	require.Equal(t, []contract.Attachment{{}, {}, {Paper: "P-1"}}, d.Attachments)
}
