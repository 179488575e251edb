package shredding_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// TestSubjectPerField mixes fields of one person with those of persons who have the same id or
// the same type, and with ids that are escaped.
func TestSubjectPerField(t *testing.T) {
	t.Parallel()
	var declared []shredding.Declaration
	declare := func(path, subject string) {
		declared = append(declared, shredding.Declaration{Path: path, Class: "contact", Subject: json.RawMessage(subject)})
	}
	declare("$.email", `{"path":"$.id","type":"employee"}`)
	declare("$.phone", `{"path":"$.id","type":"employee"}`)
	declare("$.partner", `{"path":"$.id","type":"person"}`)
	declare("$.contact", `{"entity_role":"contact"}`)
	declare("$.boss", `{"path":"$.boss_id","type":"person"}`)
	declare("$.street", `{"path":"$.id","type":"employee"}`)
	manifest, findings := shredding.ParseManifest(declared)
	require.Empty(t, findings)
	for _, id := range []string{`"E-1"`, `"E\u002d1"`} {
		fields, err := manifest.Resolve([]byte(`{"data":{"id":`+id+`,"boss_id":"E-2","email":1,"phone":2,"partner":3,"contact":4,"boss":5,"street":6}}`), "/data",
			[]event.EntityRef{{Type: "person", ID: "E-1", Role: "contact"}})
		require.NoError(t, err)
		var subjects []string
		for _, f := range fields {
			subjects = append(subjects, f.Pointer+" "+string(f.Subject))
		}
		require.Equal(t, []string{
			"/data/email employee:E-1", "/data/phone employee:E-1", "/data/partner person:E-1", "/data/contact person:E-1", "/data/boss person:E-2", "/data/street employee:E-1",
		}, subjects)
	}
	for document, code := range map[string]string{
		`{"data":{"id":"","email":1}}`:             "pii.subject_missing",
		`{"data":{"email":1}}`:                     "pii.subject_missing",
		`{"data":{"id":7,"email":1}}`:              "pii.subject_missing",
		`{"data":{"id":"a b","email":1}}`:          "pii.subject_invalid",
		`{"data":{"id":"a@b.example","email":1}}`:  "pii.subject_invalid",
		`{"data":{"id":"\u00e9","email":1}}`:       "pii.subject_invalid",
		`{"data":{"id":"E-1","email":1,"boss":2}}`: "pii.subject_missing",
	} {
		_, err := manifest.Resolve([]byte(document), "/data", nil)
		require.Equal(t, code, fault.CodeOf(err), document)
	}
}
