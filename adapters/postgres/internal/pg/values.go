package pg

import (
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/domain/event"
)

func UUID(id event.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// PageSize turns a limit of 0, which reads to the end, into a number for LIMIT.
func PageSize(limit int) int32 {
	if limit <= 0 || limit > math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(limit)
}

func TimeOrZero(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

func OptionalTime(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

func OptionalDate(d *event.Date) pgtype.Date {
	if d == nil {
		return pgtype.Date{}
	}
	return pgtype.Date{Time: d.Time(), Valid: true}
}

func OptionalText(s string) pgtype.Text { return pgtype.Text{String: s, Valid: s != ""} }

func Date(d event.Date) pgtype.Date { return pgtype.Date{Time: d.Time(), Valid: true} }
