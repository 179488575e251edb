package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/tabular"
)

const mimeCSV = "text/csv; charset=utf-8; header=present"

// reportCSV writes the rows of a rendered report as CSV. It is made of the JSON document, so
// that both formats show the same, opened personal values included.
func reportCSV(model module.ReadModel, params map[string]string, document []byte) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(document, &members); err != nil {
		return nil, err
	}
	var rows []json.RawMessage
	if err := json.Unmarshal(members[cmp.Or(model.RowsName, "rows")], &rows); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := tabular.CSV(&b, module.Table(model.ColumnsFor(params)), rows)
	return b.Bytes(), err
}
