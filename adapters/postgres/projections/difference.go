package projections

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/ports"
)

// The statements below are made of names of tables and columns that modules declare in
// code; whatever comes from a caller is an argument.

func tableName(t ports.ProjectionTable) string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

func columnNames(t ports.ProjectionTable) string {
	quoted := make([]string, len(t.Key))
	for i, name := range t.Key {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return strings.Join(quoted, ", ")
}

// projectionFilter restricts a shared table to one projection, the argument of that number.
func projectionFilter(t ports.ProjectionTable, argument int) string {
	if !t.Shared {
		return ""
	}
	return fmt.Sprintf(" AND projection = $%d", argument)
}

// deleteSome removes at most $3 rows of the partition $1 and the version $2.
func deleteSome(t ports.ProjectionTable) string {
	return fmt.Sprintf(`DELETE FROM %[1]s WHERE partition_id = $1 AND version = $2%[3]s AND (%[2]s) IN (
		SELECT %[2]s FROM %[1]s WHERE partition_id = $1 AND version = $2%[3]s ORDER BY %[2]s LIMIT $3)`, tableName(t), columnNames(t), projectionFilter(t, 4))
}

// joinVersions are the rows of the versions $2 and $3 in the partition $1 by their key. Rows
// are compared as text, so that 1.0 is not 1.00.
func joinVersions(t ports.ProjectionTable) string {
	side := func(version int) string {
		return fmt.Sprintf("SELECT %s, to_jsonb(t) - 'version' AS r FROM %s AS t WHERE t.partition_id = $1 AND t.version = $%d%s",
			columnNames(t), tableName(t), version, projectionFilter(t, 4))
	}
	return fmt.Sprintf("(%s) AS a FULL JOIN (%s) AS b USING (%s)", side(2), side(3), columnNames(t))
}

// difference compares all tables in one partition.
func (s *Versions) difference(ctx context.Context, tx pgx.Tx, c ports.ProjectionComparison) (ports.ProjectionDifference, error) {
	d := ports.ProjectionDifference{Partition: c.Partition, Tables: make([]ports.TableDifference, 0, len(c.Tables))}
	for _, table := range c.Tables {
		one, err := s.tableDifference(ctx, tx, c, table)
		if err != nil {
			return d, err
		}
		d.Tables = append(d.Tables, one)
	}
	return d, nil
}

func (s *Versions) tableDifference(ctx context.Context, tx pgx.Tx, c ports.ProjectionComparison, t ports.ProjectionTable) (ports.TableDifference, error) {
	d := ports.TableDifference{Table: t.Schema + "." + t.Name}
	arguments := []any{int32(c.Partition), int32(c.Left), int32(c.Right)}
	if t.Shared {
		arguments = append(arguments, c.Projection)
	}
	err := tx.QueryRow(ctx, `SELECT count(a.r), count(b.r), count(*) FILTER (WHERE b.r IS NULL), count(*) FILTER (WHERE a.r IS NULL),
		count(*) FILTER (WHERE a.r IS NOT NULL AND b.r IS NOT NULL AND a.r::text <> b.r::text)
		FROM `+joinVersions(t), arguments...).Scan(&d.LeftRows, &d.RightRows, &d.OnlyLeft, &d.OnlyRight, &d.Changed)
	if err != nil || d.OnlyLeft+d.OnlyRight+d.Changed == 0 || c.Examples <= 0 {
		return d, err
	}
	members := make([]string, 0, 2*len(t.Key))
	for _, name := range t.Key {
		members = append(members, "'"+strings.ReplaceAll(name, "'", "''")+"'", pgx.Identifier{name}.Sanitize())
	}
	rows, err := tx.Query(ctx, fmt.Sprintf(`SELECT json_build_object(%s)::text,
			CASE WHEN b.r IS NULL THEN 'left' WHEN a.r IS NULL THEN 'right' ELSE 'both' END,
			CASE WHEN a.r IS NULL OR b.r IS NULL THEN '{}'::text[]
				ELSE ARRAY(SELECT x.key FROM jsonb_each_text(a.r) AS x WHERE x.value IS DISTINCT FROM b.r ->> x.key ORDER BY x.key) END
		FROM %s WHERE a.r IS NULL OR b.r IS NULL OR a.r::text <> b.r::text ORDER BY %s LIMIT %d`,
		strings.Join(members, ", "), joinVersions(t), columnNames(t), c.Examples), arguments...)
	if err != nil {
		return d, err
	}
	d.Examples, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e ports.RowDifference, err error) {
		err = row.Scan(&e.Key, &e.Where, &e.Columns)
		return e, err
	})
	return d, err
}
