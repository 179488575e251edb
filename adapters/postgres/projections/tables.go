package projections

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/ports"
)

// The statements below contain names of tables and columns that modules declare in code; values
// of callers are always arguments.

func tableName(t ports.ProjectionTable) string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

func columnNames(t ports.ProjectionTable) string {
	quoted := make([]string, len(t.Key))
	for i, name := range t.Key {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return strings.Join(quoted, ", ")
}

// projectionFilter restricts a shared table to one projection, the argument with a number.
func projectionFilter(t ports.ProjectionTable, argument int) string {
	if !t.Shared {
		return ""
	}
	return fmt.Sprintf(" AND projection = $%d", argument)
}

// tableArguments appends the argument of projectionFilter.
func tableArguments(t ports.ProjectionTable, projection string, arguments ...any) []any {
	if t.Shared {
		arguments = append(arguments, projection)
	}
	return arguments
}
