package ports

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
)

// ReadModelSource answers a read model that a module declared.
type ReadModelSource interface {
	// Query answers from committed rows only. It is deterministic: the same query
	// gives the same bytes for ever. Errors: report.* and cursor.* faults (Invalid).
	Query(ctx context.Context, q ReadModelQuery) (Report, error)
}

// ReadModelQuery is a validated question to a read model.
type ReadModelQuery struct {
	Partition event.PartitionID
	Entity    LegalEntity
	Version   int               // of the projection that writes it: rows of other versions do not count
	Versions  map[string]int    // of the further projections that it reads, by name
	AsOf      event.Date        // effective axis, inclusive
	Known     event.Sequence    // recorded axis, inclusive, already resolved
	KnownAt   string            // the caller's known_at as asked, or "seq:<n>" of the head
	Params    map[string]string // declared parameters that were given, path parameters included
	Cursor    string            // only the source can read it; "" at the start
	Limit     int               // rows of a page, at least 1
}

// ReportField is a named value that keeps its place.
type ReportField struct {
	Name  string
	Value any
}

// ReportFields are named values in their order.
type ReportFields []ReportField

// MarshalJSON writes an object whose members are in the order of the fields.
func (f ReportFields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the writer of the document decides
	b.WriteByte('{')
	for i, field := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := e.Encode(field.Name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := e.Encode(field.Value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Report is an answer: header, rows, footer. Amounts are decimal strings at the
// currency's scale.
type Report struct {
	Header     ReportFields
	RowsName   string // member that holds the rows; "" is "rows"
	Rows       []any  // structs with json tags, or ReportFields; nil is written as []
	Footer     ReportFields
	Flat       bool // header and footer are members of the document itself
	HasMore    bool
	NextCursor string
}
