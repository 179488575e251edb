package plugin

import (
	"strconv"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// CutPage cuts the page that a question asks for out of all rows of a report. It is for
// reports that compute all rows anyway, such as sums per account. All pages of a report are
// read at one sequence, so the position of a row does not change between them. Fault:
// cursor.malformed.
func CutPage(q ports.ReadModelQuery, rows []any) (page []any, next string, err error) {
	first := 0
	if q.Cursor != "" {
		if first, err = strconv.Atoi(q.Cursor); err != nil || first < 0 || first > len(rows) {
			return nil, "", fault.New(fault.Invalid, "cursor.malformed", "this is not a cursor; use next_cursor of the page before, unchanged").WithField("cursor")
		}
	}
	end := min(first+q.Limit, len(rows))
	if end < len(rows) {
		next = strconv.Itoa(end)
	}
	return rows[first:end], next, nil
}
